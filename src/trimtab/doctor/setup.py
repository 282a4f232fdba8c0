"""What a run was set up to do, as far as its record says: the facts that decide what is normal for it."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trimtab.algorithms.build import composed
from trimtab.algorithms.parts import Parts
from trimtab.errors import TrimtabError
from trimtab.objectives.aggregate import aggregate_name
from trimtab.objectives.ratio import sequence_ratio, sequence_token_ratio
from trimtab.objectives.surrogate import Clip, DualClip, SignDecoupledClip, SoftGate, Unclipped

Tree = Mapping[str, Any]

NO_BOX = 0.9
"""From this distance on a clip bound lets so much through that it bounds nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Facts of a run; None means that its record does not say, as with many imported runs.

    parts: the algorithm taken apart. box: (low, high), how far a ratio may leave 1 before a clip cuts.
    updates_per_step: optimizer steps a step, epochs included. penalty_free: the longest answer without
    a length penalty. settings: the resolved run, as tables.
    """

    name: str | None = None
    parts: Parts | None = None
    box: tuple[float, float] | None = None
    updates_per_step: int | None = None
    group_size: int | None = None
    temperature: float | None = None
    max_new_tokens: int | None = None
    penalty_free: int | None = None
    settings: Tree = field(default_factory=dict[str, Any])

    @property
    def sequence_ratio(self) -> bool:
        """Whether whole answers are cut: GSPO."""
        return self.parts is not None and self.parts.ratio in (sequence_ratio, sequence_token_ratio)

    @property
    def gate(self) -> SoftGate | None:
        """SAPO's gate."""
        surrogate = self.parts.surrogate if self.parts else None
        return surrogate if isinstance(surrogate, SoftGate) else None

    @property
    def has_critic(self) -> bool:
        return self.parts is not None and self.parts.value is not None

    @property
    def selects(self) -> bool:
        """Whether groups without signal are replaced: dynamic sampling."""
        return self.parts is not None and self.parts.selection is not None

    @property
    def bounded(self) -> bool | None:
        """Whether anything keeps the ratio near 1: a box, a gate or a bounded weight."""
        if self.parts is None:
            return None
        return not isinstance(self.parts.surrogate, Unclipped) and (self.box is None or self.box[1] < NO_BOX)

    @property
    def aggregate(self) -> str | None:
        return aggregate_name(self.parts.aggregate) if self.parts and self.parts.aggregate else None

    def setting(self, path: str) -> Any:
        """A setting by its dotted name; None where the record does not have it."""
        found: Any = self.settings
        for name in path.split("."):
            found = found.get(name) if isinstance(found, Mapping) else None
        return found

    def number(self, path: str) -> float | None:
        found = self.setting(path)
        return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None


def setup_of(run: Tree) -> Setup:
    """The facts in the ``run`` tables of a run.json. Tables that are not trimtab's give fewer facts."""
    plain = Setup(settings=run)
    longest, group = _whole(plain, "sampling.max_new_tokens"), _whole(plain, "sampling.samples_per_prompt")
    updates, epochs = _whole(plain, "trainer.updates_per_step"), _whole(plain, "trainer.epochs")
    parts = _parts(run, longest)
    name = plain.setting("algorithm.name")
    shaping = parts.shaping if parts else None
    free = shaping.breakpoints(longest)[0].length if shaping and longest else None
    return Setup(
        name=name if isinstance(name, str) else None,
        parts=parts,
        box=_box(parts),
        updates_per_step=None if updates is None else updates * (epochs or 1),
        group_size=group,
        temperature=plain.number("sampling.temperature"),
        max_new_tokens=longest,
        penalty_free=free,
        settings=run,
    )


def _parts(run: Tree, longest: int | None) -> Parts | None:
    table = run.get("algorithm")
    if not isinstance(table, Mapping) or "name" not in table:
        return None
    arguments = {name: _number(value) for name, value in table.items() if name != "allow"}
    try:
        return Parts.of(composed(arguments, max_new_tokens=longest or 1 << 20))
    except (TrimtabError, TypeError, ValueError):  # another trainer's words, or an algorithm made in code
        return None


def _box(parts: Parts | None) -> tuple[float, float] | None:
    match parts.surrogate if parts else None:
        case Clip() | DualClip() as clip:
            return clip.low, clip.high
        case SignDecoupledClip() as clip:
            return clip.neg, clip.pos
        case _:
            return None


def _number(value: Any) -> Any:
    return float(value) if value in ("inf", "-inf") else value


def _whole(setup: Setup, path: str) -> int | None:
    found = setup.number(path)
    return None if found is None else int(found)
