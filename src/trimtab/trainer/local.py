"""The trainer for one process: a Hugging Face model on the CPU or one GPU."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from trimtab.errors import RunError, SettingError
from trimtab.models import LoadedModel
from trimtab.objectives.objective import Objective
from trimtab.trainer.annotate import annotated
from trimtab.trainer.config import TrainerConfig
from trimtab.trainer.critic import Critic, value_head, value_model
from trimtab.trainer.faults import NotFiniteError, first_not_finite, first_spoilt
from trimtab.trainer.forward import Asked, Reader
from trimtab.trainer.optimizer import Optimizer, Owned
from trimtab.trainer.state import Counts, Parameters, read_state, write_state
from trimtab.trainer.update import Accumulated, Clock, accumulate, cut, nothing_to_train
from trimtab.types import Batch, StepReport, Trace, WeightSource

Parts = Sequence[Sequence[int]]


class LocalTrainer:
    """Implements ``Trainer`` on one device. Updates ``model`` in place; a sampler may share the module.

    temperature: the sampler's; all log-probabilities are taken at it.
    reference: the model of the KL terms, where an algorithm has one.
    critic: whether there is one; ``config.critic`` says which kind. ``seed`` draws its first weights.
    total_updates: updates of the whole run, which a falling schedule needs.
    exact_sampler: the sampler computes these very weights in float32, so that its log-probabilities are
        this trainer's up to rounding (see ``TrainerConfig.old_logprobs``).

    Raises: SettingError for settings that cannot work with this model.
    """

    def __init__(
        self,
        model: LoadedModel,
        *,
        temperature: float,
        config: TrainerConfig,
        reference: LoadedModel | None = None,
        critic: bool = False,
        seed: int = 0,
        total_updates: int | None = None,
        exact_sampler: bool = False,
    ) -> None:
        if config.schedule != "constant" and total_updates is None:
            raise SettingError(
                f"trainer.schedule {config.schedule!r} needs the number of updates of the whole run; "
                "give total_updates, or take the constant schedule"
            )
        self.model = model
        self.config = config
        self.total_updates = total_updates
        self.takes_sampler = config.old_logprobs == "sampler" or (
            config.old_logprobs == "auto"
            and exact_sampler
            and model.dtype is torch.float32
            and not config.autocast
        )
        self.old_from_update = config.old_logprobs == "auto" and not (
            self.takes_sampler or config.skip_silent
        )
        self.critic = _critic(model, config, seed) if critic else None
        share = config.share_prompts == "auto"
        self.reader = Reader(
            model,
            temperature=temperature,
            critic=self.critic,
            autocast=config.autocast,
            recompute_layers=config.gradient_checkpointing,
            share_prompts=share,
        )
        self.reference = (
            Reader(reference, temperature=temperature, autocast=config.autocast, share_prompts=share)
            if reference
            else None
        )
        self.owners = [Owned.of("policy", model.module, config.learning_rate)]
        if self.critic is not None:
            self.owners.append(Owned.of("critic", self.critic, config.critic_learning_rate))
        self.optimizer = Optimizer(self.owners, config)
        self.version = 0
        self.counts = Counts()

    def describe(self) -> str:
        """What is optimised and how, one line an owner."""
        return self.optimizer.describe(self.config)

    async def annotate(self, batch: Batch, columns: frozenset[str]) -> Batch:
        """See ``Trainer``. With ``values_T`` also ``bootstrap_S``, the value after each last token.

        Raises: SettingError for a column that this trainer cannot fill.
        """
        return annotated(
            batch,
            columns,
            self.reader,
            self.reference,
            from_sampler=self.takes_sampler,
            max_tokens=self.config.tokens_per_micro_batch,
        )

    async def update(self, batch: Batch, objective: Objective) -> StepReport:
        """See ``Trainer``. Weights that the batch has already are kept.

        A batch whose tokens are all masked, or whose gradient is exactly zero, makes no optimizer step.

        Raises: RunError when a loss or gradient is not finite (beyond ``max_nonfinite_skips`` in a
        row), when a weight is not finite after the update, or when no weight at all got a gradient.
        """
        if "weights_T" not in batch.columns:
            batch = objective.weighted(batch)
        clock = Clock(self.model.device)
        asked = self.asked(objective)
        skip = nothing_to_train(batch)
        parts: Parts = []
        if skip is None:
            limit = self.config.tokens_per_micro_batch
            batch, parts = cut(batch, objective, limit, self.reader.cost, skip_silent=self.config.skip_silent)
        try:
            done = self._accumulate(batch, objective, parts, asked, clock)
            norms = self._norms(batch, objective, parts, asked, clock)
        except NotFiniteError as fault:
            done, norms, skip = Accumulated({}, Trace()), {}, self._passed_over(fault)
        else:
            self.counts.nonfinite = 0
            skip = skip or self._without_signal(parts, norms)
        report = self._report(done, norms, skip, clock, warming=not asked.policy_grad)
        if skip is None:
            with clock("optimizer"):
                self._step(norms, warming=not asked.policy_grad)
                self._require_whole(batch)
        self._clear()
        return report

    async def publish(self) -> tuple[WeightSource, int]:
        """The live weights and their version, which rises only when they have changed since last time.

        So a resumed run's first sync gives the version that the interrupted run had.
        """
        if self.counts.changed:
            self.version += 1
            self.counts.changed = False
        return Parameters(self.model.module), self.version

    async def save(self, path: Path) -> None:
        """Write all state below ``path``, and ``path/model``, which transformers can load.

        Raises: RunError when a weight is not finite; such weights are never saved.
        """
        write_state(path, self.model, self.owners, self.optimizer, self.counts, self.version)

    async def load(self, path: Path) -> None:
        """Take back what ``save`` wrote, in place and to the bit.

        Raises: RunError when it belongs to another model or critic.
        """
        self.counts, self.version = read_state(path, self.model, self.owners, self.optimizer)

    # ---------------------------------------------------------------------- parts of an update

    def asked(self, objective: Objective) -> Asked:
        """What this update's passes are for: while the critic warms up, nothing of the policy."""
        values = self.critic is not None and "values_T" in objective.needs
        warming = values and self.counts.warmups < self.config.critic_warmup_updates
        return Asked(
            values=values,
            critic_grad=values,
            policy_grad=not warming,
            entropy_grad=objective.entropy_grad and not warming,
        )

    def _accumulate(
        self, batch: Batch, objective: Objective, parts: Parts, asked: Asked, clock: Clock
    ) -> Accumulated:
        def absorb() -> None:
            for owned in self.owners:
                owned.absorb()

        try:
            return accumulate(
                batch,
                objective,
                lambda part: self.reader(part, asked)[0],
                parts,
                clock,
                after_backward=absorb,
            )
        except NotFiniteError as fault:
            for owned in self.owners:
                if name := first_not_finite(owned.masters):
                    raise NotFiniteError(f"the {owned.name}'s weight {name}", fault.keys) from None
            raise

    def _norms(
        self, batch: Batch, objective: Objective, parts: Parts, asked: Asked, clock: Clock
    ) -> dict[str, float | None]:
        """Each owner's gradient norm, its gradients clipped. Raises NotFiniteError."""
        with clock("optimizer"):
            norms = {owned.name: owned.clip(self.config.max_grad_norm) for owned in self.owners}
        if all(norm is None or math.isfinite(norm) for norm in norms.values()):
            return norms
        name = self._bad_gradient() or "the norm of the gradient"
        for part in parts:  # a second time, one by one, to find whose it was
            self._clear()
            self._accumulate(batch, objective, [part], asked, clock)
            if self._bad_gradient():
                raise NotFiniteError(name, [batch.keys_S[s] for s in part])
        raise NotFiniteError(name, [batch.keys_S[s] for part in parts for s in part])

    def _bad_gradient(self) -> str | None:
        for owned in self.owners:
            if name := first_not_finite(owned.gradients()):
                return f"the gradient of the {owned.name}'s {name}"
        return None

    def _passed_over(self, fault: NotFiniteError) -> str:
        """The reason to skip this update, while skips in a row are allowed; else the fault itself."""
        self.counts.nonfinite += 1
        if self.counts.nonfinite > self.config.max_nonfinite_skips:
            self._clear()
            raise fault
        return str(fault)

    def _without_signal(self, parts: Parts, norms: Mapping[str, float | None]) -> str | None:
        if any(norms.values()):
            return None
        if parts and all(norm is None for norm in norms.values()):
            raise RunError(
                "no weight got a gradient from this update, so nothing can be learned; check that the "
                "model's parameters require gradients and that the objective has a term with a gradient"
            )
        return "the gradient is exactly zero: no answer of the update has a signal"

    def _step(self, norms: Mapping[str, float | None], *, warming: bool) -> None:
        for owned in self.owners:
            if not norms[owned.name]:
                owned.clear()  # a zero gradient would still move weights by momentum and decay
        self.optimizer.step(self._factor(warming))
        self.counts.updates += 1
        self.counts.warmups += warming
        self.counts.changed |= bool(norms["policy"])

    def _require_whole(self, batch: Batch) -> None:
        """Raises NotFiniteError where the update has left a weight that is not finite."""
        for owned in self.owners:
            if name := first_spoilt(owned.masters):
                keys = [batch.keys_S[s] for s in (batch.trained_S > 0).nonzero().flatten().tolist()]
                raise NotFiniteError(f"the {owned.name}'s weight {name} after the update", keys, spoilt=True)

    def _factor(self, warming: bool) -> float:
        """Of both learning rates. The schedule begins where the critic's warm-up ends."""
        if warming:
            return 1.0
        return self.config.rate_factor(self.counts.updates - self.counts.warmups, self.total_updates)

    def _clear(self) -> None:
        for owned in self.owners:
            owned.clear()

    def _report(
        self,
        done: Accumulated,
        norms: Mapping[str, float | None],
        skip: str | None,
        clock: Clock,
        *,
        warming: bool,
    ) -> StepReport:
        return StepReport(
            applied=skip is None,
            skip_reason=skip,
            loss=sum(done.losses.values()),
            losses=done.losses,
            grad_norm=norms.get("policy"),
            critic_grad_norm=norms.get("critic"),
            learning_rate=0.0 if warming else self.config.learning_rate * self._factor(warming),
            critic_warmup=warming,
            trace=done.trace,
            seconds=clock.seconds,
        )


def _critic(model: LoadedModel, config: TrainerConfig, seed: int) -> Critic:
    if config.critic == "model":
        return value_model(model, seed=seed)
    return value_head(model, detached=config.critic_detached, seed=seed)
