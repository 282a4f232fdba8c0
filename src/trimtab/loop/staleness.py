"""How old an answer may be when it is trained on, counted in policy versions; see docs/asynchronous.md.

A step's training publishes at most one version, so with V(k) the version after k trained steps

    V(k) - V(c) <= k - c        for k >= c.

Collection of step k begins only once the engine holds the weights of c >= k - S trained steps, and weights
are only ever replaced by newer ones: every token sampled for step k has a version >= V(c). At its update

    V(k) - version <= V(k) - V(c) <= k - c <= S.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from trimtab.config import Run
from trimtab.data.selection import Reason, Selection, Verdict
from trimtab.errors import RunError
from trimtab.loop.collected import Collected
from trimtab.types import ScoredGroup


@dataclass(frozen=True, slots=True)
class Bound:
    """staleness: S. in_flight: whether weights are replaced below running answers ("update"), not ("drain").

    carried: the bound of groups that an earlier step has sampled, >= S; see ``Selection.max_staleness``.
    """

    staleness: int
    in_flight: bool
    carried: int

    @classmethod
    def of(cls, run: Run, selection: Selection | None) -> Bound:
        """The run's."""
        staleness = run.cluster.staleness
        allowed = selection.max_staleness if selection is not None and selection.carry else 0
        return cls(staleness, run.cluster.in_flight == "update", max(staleness, allowed))

    @property
    def period(self) -> int:
        """Trained steps from one delivery of weights to the next.

        A drain empties the pipeline, so it comes as seldom as the bound allows: every S steps. Then the
        collection of step k, which begins after S * floor((k - 1) / S) trained steps, is never older than S.
        """
        return 1 if self.in_flight else max(1, self.staleness)

    def delivered(self, trained: int) -> int:
        """The trained steps of the last regular delivery, after ``trained`` steps."""
        return self.period * (trained // self.period)

    def admitted(self, delivered: int) -> int:
        """The first step whose collection may not begin while the engine has the weights of ``delivered``."""
        return delivered + self.staleness + 1

    def selection(self, selection: Selection | None) -> Selection | None:
        """Carried groups may be as old as fresh ones."""
        return None if selection is None else replace(selection, max_staleness=self.carried)

    def too_old(self, found: Collected, version: int) -> list[ScoredGroup]:
        """The step's groups that policy ``version`` may not be trained on."""
        carried = {judged.scored.group.key for judged in found.judged if judged.carried_in}
        return [
            scored
            for scored in found.kept
            if version - oldest(scored, version)
            > (self.carried if scored.group.key in carried else self.staleness)
        ]


def oldest(scored: ScoredGroup, version: int) -> int:
    """The oldest version among the group's tokens; ``version`` where it has none."""
    spans = (span.version for rollout in scored.group.rollouts for span in rollout.versions)
    return min(spans, default=version)


def require_drained(found: Collected) -> None:
    """Raises RunError where an answer has tokens of two versions, which a drain excludes."""
    for scored in found.fresh:
        for rollout in scored.group.rollouts:
            versions = {span.version for span in rollout.versions}
            if len(versions) > 1:
                raise RunError(
                    f"rollout {rollout.key} was sampled by versions {sorted(versions)} although "
                    'cluster.in_flight is "drain": the engine got weights while it was sampling'
                )


def without(found: Collected, stale: Sequence[ScoredGroup]) -> None:
    """Take these groups out of the step's training, as dropped for their age."""
    keys = {scored.group.key for scored in stale}
    found.kept = [scored for scored in found.kept if scored.group.key not in keys]
    found.judged = [
        replace(judged, verdict=Verdict(False, Reason.STALE)) if judged.scored.group.key in keys else judged
        for judged in found.judged
    ]


def still_usable(queue: Sequence[Collected], bound: Bound, trained: int, version: int) -> int:
    """How many steps of a checkpoint's queue may be trained under this bound, which may be a new one.

    The rest, from the first one on that may not, is collected anew: its effect on the loop was not counted.
    """
    limit = bound.admitted(bound.delivered(trained)) - trained
    for place, found in enumerate(queue):
        if place >= limit or bound.too_old(found, version + place):
            return place
    return len(queue)
