"""A run: one frozen value, made of one dataclass for each machine."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trimtab.algorithms import build_algorithm
from trimtab.algorithms.algorithm import Algorithm
from trimtab.config.cluster import ClusterConfig
from trimtab.data.prompts import DataConfig
from trimtab.doctor.config import DoctorConfig
from trimtab.errors import SettingError, nearest
from trimtab.evaluation.config import EvaluationConfig
from trimtab.models import ModelConfig
from trimtab.objectives.correction import Correction
from trimtab.record import RecordConfig
from trimtab.rewards.build import GRADERS, build_rubric
from trimtab.rewards.rubric import RewardConfig
from trimtab.rollout.engine import FAST, Fast, Sampling
from trimtab.trainer import TrainerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSection:
    """The ``[run]`` table.

    name: names the run's folder; letters, digits, dots, dashes and underscores.
    seed: decides every random number of the run.
    steps: turns of the loop (collect, grade, ..., update, sync).
    """

    name: str = "run"
    seed: int = 0
    steps: int = 100

    def __post_init__(self) -> None:
        if not re.fullmatch(r"\w[\w.-]*", self.name):
            raise SettingError(
                f"run.name is a folder's name of letters, digits, '.', '-' and '_', got {self.name!r}"
            )
        if self.steps < 1:
            raise SettingError(f"run.steps must be >= 1, got {self.steps}")
        if self.seed < 0:
            raise SettingError(f"run.seed must be >= 0, got {self.seed}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingSection:
    """The ``[sampling]`` table: how much is sampled in a step, and how.

    prompts_per_step: groups that a step trains on (dynamic sampling draws more to fill them).
    samples_per_prompt: answers to one prompt, the size of its group.
    max_new_tokens, temperature, stop: see ``Sampling``.
    fast: "auto", "always" or "never" decode with packed weights in the local engine, see ``LocalEngine``.
    """

    prompts_per_step: int = 32
    samples_per_prompt: int = 8
    max_new_tokens: int = 512
    temperature: float = 1.0
    stop: tuple[str, ...] = ()
    fast: Fast = "auto"

    def __post_init__(self) -> None:
        if self.fast not in FAST:
            value = str(self.fast)
            raise SettingError(f"sampling.fast: unknown value {value!r}{nearest(value, FAST)}")
        for name in ("prompts_per_step", "samples_per_prompt"):
            if getattr(self, name) < 1:
                raise SettingError(f"sampling.{name} must be >= 1, got {getattr(self, name)}")
        self.sampler()

    def sampler(self) -> Sampling:
        """What the engine is given. Raises SettingError for values no sampler can have."""
        try:
            return Sampling(temperature=self.temperature, max_new_tokens=self.max_new_tokens, stop=self.stop)
        except ValueError as problem:
            raise SettingError(str(problem)) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Everything that decides a run. A recipe is this value as TOML, one table for each field.

    ``algorithm`` is the table given to ``build_algorithm``: a preset's name and arguments, or
    ``name = "custom"`` and the pieces; ``allow`` in it lifts refusals by name.

    Raises SettingError where sections contradict each other.

    Example:
        Run(model=ModelConfig(path="embedded/sums"), data=DataConfig(task="sums"), algorithm={"name": "dapo"})
    """

    run: RunSection = field(default_factory=RunSection)
    model: ModelConfig
    data: DataConfig
    reward: RewardConfig = field(default_factory=RewardConfig)
    algorithm: Mapping[str, Any]
    sampling: SamplingSection = field(default_factory=SamplingSection)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    record: RecordConfig = field(default_factory=RecordConfig)
    doctor: DoctorConfig = field(default_factory=DoctorConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)

    def __post_init__(self) -> None:
        if self.trainer.updates_per_step > self.sampling.prompts_per_step:
            raise SettingError(
                f"trainer.updates_per_step is {self.trainer.updates_per_step} but a step has only "
                f"{self.sampling.prompts_per_step} groups and an update needs a whole one; "
                f"raise sampling.prompts_per_step or lower trainer.updates_per_step"
            )
        algorithm = self.build_algorithm()
        if algorithm.correction is not None and self.trainer.old_logprobs == "sampler":
            raise SettingError(
                'trainer.old_logprobs = "sampler" takes the sampler\'s policy for the old one, so that every '
                'factor of algorithm.correction is 1; set trainer.old_logprobs = "recompute" (or "auto"), or '
                'algorithm.correction = "none": then the ratio itself is that to the policy that sampled'
            )
        self._check_kernels(algorithm)
        self._check_group_size()
        self._check_length()
        if not any(".py:" in grader.name for grader in self.reward.graders):
            rubric = build_rubric(self.reward)  # a function's file is left alone until the run starts
            part = algorithm.selection.part if algorithm.selection else None
            names = [grader.name for grader, _ in rubric.graders]
            if part is not None and part not in names:
                raise SettingError(
                    f"algorithm.selection.part: no grader is named {part!r}{nearest(part, names)}"
                )

    def _check_kernels(self, algorithm: Algorithm) -> None:
        """Raise SettingError where entropies are wanted of a kernel that has none."""
        kernels = f'trainer.kernels = "{self.trainer.kernels}" gives no entropies'
        if self.trainer.kernels == "none":
            return
        if algorithm.entropy_target is not None or algorithm.objective.entropy_grad:
            raise SettingError(
                f"{kernels}, but the algorithm has an entropy term; take that out of it, or set "
                'trainer.kernels = "none"'
            )
        if self.record.tokens != 0:
            raise SettingError(
                f"{kernels}, but record.tokens = {self.record.tokens!r} keeps the entropy at every token; "
                'set record.tokens = 0, or trainer.kernels = "none"'
            )

    def _check_group_size(self) -> None:
        """Raise SettingError where a grader compares answers and a prompt has fewer than it needs."""
        kinds = [GRADERS.get(grader.name) for grader in self.reward.graders]
        smallest = max((getattr(kind, "smallest_group", 1) for kind in kinds), default=1)
        counts = {"sampling.samples_per_prompt": self.sampling.samples_per_prompt}
        if self.data.held_out:
            counts["evaluation.samples"] = self.evaluation.samples
        for name, count in counts.items():
            if count < smallest:
                raise SettingError(
                    f"a grader of reward.graders compares the answers to a prompt and needs {smallest} of "
                    f"them, but {name} is {count}; raise it"
                )

    def _check_length(self) -> None:
        """Raise SettingError where an engine is given less room than prompts and answers may take."""
        room = self.cluster.vllm.max_model_len
        longest = self.data.max_prompt_tokens
        needed = (longest or 1) + self.longest_answer
        if self.cluster.engine == "vllm" and 0 < room < needed:
            raise SettingError(
                f"cluster.vllm.max_model_len = {room} is too little for "
                f"{f'prompts of {longest} tokens' if longest else 'a prompt of any length'} with answers of "
                f"{self.longest_answer}; set it to {needed} or more, or to 0"
            )

    def build_algorithm(self) -> Algorithm:
        """The algorithm that the table describes; refused with the reason where it makes no sense."""
        table = dict(self.algorithm)
        allow = table.pop("allow", [])
        if not isinstance(allow, list | tuple) or not all(isinstance(name, str) for name in allow):
            raise SettingError(f"algorithm.allow must be a list of refusals' names, got {allow!r}")
        return build_algorithm(
            table,
            max_new_tokens=self.sampling.max_new_tokens,
            samples_per_prompt=self.sampling.samples_per_prompt,
            allow=tuple(allow),
            correction=self.usual_correction,
        )

    @property
    def usual_correction(self) -> Correction | None:
        """The rollout correction of an algorithm whose table names none: on where an answer may come from
        older weights, or from an engine of its own that is not told to compute in float32; off where the
        sampler is exact, and where the trainer takes its log-probabilities for the old ones.
        """
        cluster = self.cluster
        dtype = cluster.vllm.dtype if cluster.vllm.dtype != "auto" else self.model.dtype
        rounded = cluster.engine != "local" and dtype != "float32"
        wanted = (cluster.staleness > 0 or rounded) and self.trainer.old_logprobs != "sampler"
        return Correction() if wanted else None

    @property
    def exact_sampler(self) -> bool:
        """Whether the sampler computes the very weights that a step's first update starts from, as the
        trainer does: its log-probabilities may then stand for the old ones, if both compute in float32.
        """
        cluster = self.cluster
        same = cluster.engine == "local" and cluster.staleness == 0
        return same and self.build_algorithm().correction is None

    @property
    def longest_answer(self) -> int:
        """Tokens of the longest answer that training or evaluation may ask for."""
        return max(self.sampling.max_new_tokens, self.evaluation.max_new_tokens or 0)

    def evaluation_sampler(self) -> Sampling:
        """The sampler of the evaluation: its own temperature and limit, the training's stop texts."""
        return Sampling(
            temperature=self.evaluation.temperature,
            max_new_tokens=self.evaluation.max_new_tokens or self.sampling.max_new_tokens,
            stop=self.sampling.stop,
        )
