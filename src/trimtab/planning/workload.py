"""What a step asks for: groups, answers, updates, passes; and how it is laid out over processes."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from trimtab.errors import SettingError

if TYPE_CHECKING:
    from trimtab.config import Run

UNEVEN_PROMPT = 64.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One step of the loop.

    groups, answers: groups that a step trains on, answers to a prompt. prompt: tokens of a prompt.
    draw_factor: prompts drawn at most, as a multiple of ``groups``; 0 where every group is kept.
    carry: kept groups beyond the need wait for a later step, until they are ``carry_staleness`` updates old,
        or as old as the loop's staleness where that is more.
    updates, epochs: a step makes ``updates * epochs`` updates.
    passes, ahead_passes: forward passes over the batch before the first update (old and reference
        log-probabilities), in the synchronous and in the asynchronous loop.
    micro_batch: tokens that go through the trainer at once. checkpointing: layers are computed twice.
    reference, critic: further models that the trainer holds; a critic of its own is trained as well.
    lora_rank: of the adapters that are trained instead of the weights; 0 where all weights are. lora_targets:
        as in ``[model.lora]``.
    """

    groups: int = 32
    answers: int = 8
    prompt: float = UNEVEN_PROMPT
    draw_factor: float = 0.0
    carry: bool = True
    carry_staleness: int = 1
    updates: int = 1
    epochs: int = 1
    passes: int = 0
    ahead_passes: int = 0
    micro_batch: int = 2048
    checkpointing: bool = False
    reference: bool = False
    critic: bool = False
    lora_rank: int = 0
    lora_targets: str | tuple[str, ...] = "all-linear"

    @property
    def draw_limit(self) -> int:
        """Prompts that a step may draw in all."""
        return math.ceil(self.groups * max(1.0, min(self.draw_factor, 1e6)))

    @property
    def all_updates(self) -> int:
        return self.updates * self.epochs


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Which processes sample and which train.

    engines 0: one process samples, grades and trains in turn, and ``trainers`` is 1.
    tensor_parallel: devices of one engine. engine, staleness, in_flight: as in ``[cluster]``.
    """

    engines: int
    trainers: int = 1
    tensor_parallel: int = 1
    staleness: int = 0
    in_flight: Literal["drain", "update"] = "drain"
    engine: Literal["local", "vllm"] = "vllm"

    def __post_init__(self) -> None:
        if self.engines < 0 or self.trainers < 1 or self.tensor_parallel < 1 or self.staleness < 0:
            raise SettingError(
                "a split needs engines >= 0, trainers >= 1, tensor_parallel >= 1 and staleness >= 0, got "
                f"{self.engines}, {self.trainers}, {self.tensor_parallel} and {self.staleness}"
            )
        if not self.engines and (self.staleness or self.trainers > 1):
            raise SettingError("one process cannot sample while it trains; staleness needs engines >= 1")

    @property
    def period(self) -> int:
        """Trained steps from one delivery of weights to the next, as in ``loop.staleness``."""
        return 1 if self.in_flight == "update" else max(1, self.staleness)

    @property
    def devices(self) -> int:
        """GPUs, or places for a process."""
        return self.engines * self.tensor_parallel + self.trainers if self.engines else 1

    def __str__(self) -> str:
        if not self.engines:
            return "one process"
        wide = f" of {self.tensor_parallel}" if self.tensor_parallel > 1 else ""
        return f"{self.engines} engine{'s' if self.engines > 1 else ''}{wide} + {self.trainers}"


def workload_of(run: Run, prompt: float, *, float32: bool, engine: Literal["local", "vllm"]) -> Workload:
    """The workload that a run's tables describe. prompt: mean tokens of a prompt.

    float32, engine: with local engines in float32 and S = 0, ``old_logprobs = "auto"`` takes the engine's own
    numbers and needs no pass of the trainer.
    """
    algorithm, trainer = run.build_algorithm(), run.trainer
    critic = "values_T" in algorithm.needs and trainer.critic == "model"
    selection, lora = algorithm.selection, run.model.lora
    own_base = lora is not None and run.model.reference is None  # which then is the reference
    factor = 0.0
    if selection is not None:
        limit = selection.max_draws
        factor = selection.max_draws_factor if limit is None else limit / run.sampling.prompts_per_step
    return Workload(
        groups=run.sampling.prompts_per_step,
        answers=run.sampling.samples_per_prompt,
        prompt=prompt,
        draw_factor=factor,
        carry=selection is not None and selection.carry,
        carry_staleness=0 if selection is None else selection.max_staleness,
        updates=trainer.updates_per_step,
        epochs=trainer.epochs,
        passes=_passes(run, 0, float32, engine) + critic,
        ahead_passes=_passes(run, 1, float32, engine) + critic,
        micro_batch=trainer.tokens_per_micro_batch,
        checkpointing=trainer.gradient_checkpointing,
        reference="ref_logprobs_T" in algorithm.needs and not own_base,
        critic=critic,
        lora_rank=0 if lora is None else lora.rank,
        lora_targets="all-linear" if lora is None else lora.targets,
    )


def _passes(run: Run, staleness: int, float32: bool, engine: Literal["local", "vllm"]) -> int:
    """Forward passes for old and reference log-probabilities, by the rules of ``loop.stages.annotate``."""
    engines = max(1, run.cluster.engines)
    cluster = replace(run.cluster, engines=engines, staleness=staleness, engine=engine)
    run = replace(run, cluster=cluster)
    algorithm, old = run.build_algorithm(), run.trainer.old_logprobs
    once = run.trainer.updates_per_step * run.trainer.epochs == 1
    read_before = algorithm.kl_in_reward is not None or algorithm.correction is not None
    wanted = old == "recompute" or (old == "auto" and not (float32 and run.exact_sampler))
    own = wanted and not (once and not read_before)
    return int(own) + int("ref_logprobs_T" in algorithm.needs)
