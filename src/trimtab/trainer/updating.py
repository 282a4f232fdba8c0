"""One update of a trainer, whoever holds the weights: passes, norms, the optimizer's step, the report.

Every process of the trainer runs this with the same batch and comes to the same report. What they compute
apart and must know together goes through ``together``.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from trimtab.errors import RunError
from trimtab.objectives.objective import Objective
from trimtab.trainer.config import TrainerConfig
from trimtab.trainer.faults import NotFiniteError, first_not_finite, first_spoilt
from trimtab.trainer.forward import Asked
from trimtab.trainer.optimizer import Optimizer, Owned
from trimtab.trainer.state import Counts
from trimtab.trainer.together import Parts, Reads, Together
from trimtab.trainer.update import Accumulated, Clock, accumulate, cut, nothing_to_train
from trimtab.types import Batch, StepReport, Trace


@dataclass(slots=True, kw_only=True, eq=False)
class Updater:
    """Makes updates of the weights that ``owners`` hold, and counts them.

    reader: the policy with its critic. has_critic: whether it has one. total_updates: of the whole run.
    """

    config: TrainerConfig
    device: torch.device
    reader: Reads
    has_critic: bool
    owners: list[Owned]
    optimizer: Optimizer
    total_updates: int | None
    together: Together
    counts: Counts = field(default_factory=Counts)

    def update(self, batch: Batch, objective: Objective) -> StepReport:
        """See ``LocalTrainer.update``."""
        if "weights_T" not in batch.columns:
            batch = objective.weighted(batch)
        clock = Clock(self.device)
        asked = self.asked(objective)
        skip = nothing_to_train(batch)
        parts: Parts = []
        if skip is None:
            batch, parts = self._cut(batch, objective)
        try:
            done = self._accumulate(batch, objective, parts, asked, clock)
            norms = self._norms(batch, objective, parts, asked, clock)
            self._require_gradients(parts, asked)
        except NotFiniteError as fault:
            done, norms, skip = Accumulated({}, Trace()), {}, self._passed_over(fault)
        else:
            self.counts.nonfinite = 0
            skip = skip or self._without_signal(parts, norms)
        report = self._report(done, norms, skip, warming=not asked.policy_grad)
        if skip is None:
            with clock("optimizer"):
                self._step(norms, warming=not asked.policy_grad)
                self._require_whole(batch)
        self.clear()
        return dataclasses.replace(report, seconds=self._seconds(clock))

    def asked(self, objective: Objective) -> Asked:
        """What this update's passes are for: while the critic warms up, nothing of the policy."""
        values = self.has_critic and "values_T" in objective.needs
        warming = values and self.counts.warmups < self.config.critic_warmup_updates
        return Asked(
            values=values,
            critic_grad=values,
            policy_grad=not warming,
            entropy_grad=objective.entropy_grad and not warming,
        )

    def clear(self) -> None:
        """Drop all gradients."""
        for owned in self.owners:
            owned.clear()

    def published(self) -> bool:
        """Whether the weights have changed since this was last asked."""
        changed, self.counts.changed = self.counts.changed, False
        return changed

    def _cut(self, batch: Batch, objective: Objective) -> tuple[Batch, Parts]:
        def cutting(limit: int) -> tuple[Batch, list[list[int]]]:
            return cut(batch, objective, limit, self.reader.cost, skip_silent=self.config.skip_silent)

        return self.together.cut(cutting, self.config.tokens_per_micro_batch)

    def _accumulate(
        self, batch: Batch, objective: Objective, parts: Parts, asked: Asked, clock: Clock
    ) -> Accumulated:
        share = self.together.share(batch, parts)
        try:
            done = accumulate(
                share.batch,
                objective,
                lambda part: self.reader(part, asked)[0],
                share.parts,
                clock,
                after_backward=self._absorb,
                agree=self.together.agree,
            )
        except NotFiniteError as fault:
            for owned in self.owners:
                bad = self.together.first(first_not_finite(owned.masters.items()), list(owned.masters))
                if bad:
                    raise NotFiniteError(f"the {owned.name}'s weight {bad}", fault.keys) from None
            raise
        found = {f.name: getattr(done.trace, f.name) for f in dataclasses.fields(Trace)}
        columns = {name: column_T for name, column_T in found.items() if column_T is not None}
        return Accumulated(self.together.added(done.losses), Trace(**self.together.whole(columns, share)))

    def _absorb(self) -> None:
        for owned in self.owners:
            owned.absorb()

    def _norms(
        self, batch: Batch, objective: Objective, parts: Parts, asked: Asked, clock: Clock
    ) -> dict[str, float | None]:
        """Each owner's gradient norm, its gradients clipped. Raises NotFiniteError."""
        with clock("optimizer"):
            norms = {
                owned.name: owned.clip(self.config.max_grad_norm, self.together.norm) for owned in self.owners
            }
        if all(norm is None or math.isfinite(norm) for norm in norms.values()):
            return norms
        name = self._bad_gradient() or "the norm of the gradient"
        for part in parts:  # a second time, one by one, to find whose it was
            self.clear()
            self._accumulate(batch, objective, [part], asked, clock)
            if self._bad_gradient():
                raise NotFiniteError(name, [batch.keys_S[s] for s in part])
        raise NotFiniteError(name, [batch.keys_S[s] for part in parts for s in part])

    def _require_gradients(self, parts: Parts, asked: Asked) -> None:
        """Raises RunError where an adapter got no gradient from the policy's first update and cannot learn.

        With experts that is no fault: a layer may have had no token.
        """
        first = self.counts.updates == self.counts.warmups
        if not (first and parts and asked.policy_grad) or self.reader.routers:
            return
        for owned in self.owners:
            if owned.trained_only and owned.gradients():
                missing = next((name for name in owned.masters if name not in owned.gradients()), None)
                if missing := self.together.first(missing, list(owned.masters)):
                    raise RunError(
                        f"the {owned.name}'s {missing} got no gradient: the model does not call this layer "
                        "in the usual way; name other layers in model.lora.targets"
                    )

    def _bad_gradient(self) -> str | None:
        for owned in self.owners:
            gradients = owned.gradients()
            if name := self.together.first(first_not_finite(gradients.items()), list(gradients)):
                return f"the gradient of the {owned.name}'s {name}"
        return None

    def _passed_over(self, fault: NotFiniteError) -> str:
        """The reason to skip this update, while skips in a row are allowed; else the fault itself."""
        self.counts.nonfinite += 1
        if self.counts.nonfinite > self.config.max_nonfinite_skips:
            self.clear()
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
            if name := self.together.first(first_spoilt(owned.masters), list(owned.masters)):
                keys = [batch.keys_S[s] for s in (batch.trained_S > 0).nonzero().flatten().tolist()]
                raise NotFiniteError(f"the {owned.name}'s weight {name} after the update", keys, spoilt=True)

    def _factor(self, warming: bool) -> float:
        """Of both learning rates. The schedule begins where the critic's warm-up ends."""
        if warming:
            return 1.0
        return self.config.rate_factor(self.counts.updates - self.counts.warmups, self.total_updates)

    def _seconds(self, clock: Clock) -> dict[str, float]:
        """By stage, of the slowest process: the others wait for it."""
        return self.together.longest(dict(sorted(clock.seconds.items())))

    def _report(
        self, done: Accumulated, norms: Mapping[str, float | None], skip: str | None, *, warming: bool
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
            seconds={},
        )
