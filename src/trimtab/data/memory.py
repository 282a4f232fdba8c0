"""What the run remembers of each prompt: how often it was drawn, and how often it was answered right.

Bands of a prompt, by its pass rate over its last groups:
    unseen      no graded answer yet
    hopeless    pass rate <= hopeless_at
    mastered    pass rate >= mastered_at
    learning    between
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from trimtab.errors import SettingError
from trimtab.types import UNIFORM_TOLERANCE, Prompt, ScoredGroup

LATELY = 20
"""Steps that count as lately."""


class Band(StrEnum):
    """Where a prompt stands."""

    UNSEEN = "unseen"
    HOPELESS = "hopeless"
    LEARNING = "learning"
    MASTERED = "mastered"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryConfig:
    """The ``[data.memory]`` table of a recipe.

    mastered_rest, hopeless_rest: steps for which a prompt is not drawn after it was found mastered or
        hopeless; then it is tested again. 0 never rests it (the default): memory only observes.
    window: groups over which the pass rate is taken.
    mastered_at, hopeless_at: pass rates in [0, 1] that bound the bands, both included.
    """

    mastered_rest: int = 0
    hopeless_rest: int = 0
    window: int = 2
    mastered_at: float = 1.0
    hopeless_at: float = 0.0

    def __post_init__(self) -> None:
        if self.window < 1:
            raise SettingError(f"data.memory.window must be >= 1 group, got {self.window}")
        for name in ("mastered_rest", "hopeless_rest"):
            if getattr(self, name) < 0:
                raise SettingError(f"data.memory.{name} must be >= 0 steps, got {getattr(self, name)}")
        if not 0.0 <= self.hopeless_at < self.mastered_at <= 1.0:
            raise SettingError(
                "data.memory needs 0 <= hopeless_at < mastered_at <= 1, got "
                f"hopeless_at = {self.hopeless_at}, mastered_at = {self.mastered_at}"
            )


@dataclass(slots=True)
class Remembered:
    """One prompt. ``rates`` are the pass rates of its last groups, newest last; ``step`` saw the last, and
    ``trained_step`` was the last to train on it.
    """

    drawn: int = 0
    trained: int = 0
    step: int = -1
    rates: list[float] = field(default_factory=list)
    trained_step: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How much of the prompt pool the run has reached.

    prompts: different training prompts; drawn, trained: how many of them at least once; bands: how many
    stand where; moves: ``(from, to)`` -> how often a prompt has changed its band so far; pass_rate:
    mean over the seen prompts of the pass rate of their last groups, None before the first.
    drawn_lately, trained_lately: how many of them in the last ``LATELY`` steps; trained_pass_rate: as
    pass_rate, over the prompts trained on lately.
    """

    prompts: int
    drawn: int
    trained: int
    bands: Mapping[Band, int]
    moves: Mapping[tuple[Band, Band], int]
    pass_rate: float | None
    drawn_lately: int
    trained_lately: int
    trained_pass_rate: float | None


class PromptMemory:
    """Pass rate and counts of every prompt, and which prompts rest until their next test."""

    def __init__(self, config: MemoryConfig | None = None) -> None:
        self.config = MemoryConfig() if config is None else config
        self._prompts: dict[str, Remembered] = {}
        self._moves: Counter[tuple[Band, Band]] = Counter()
        self._now = -1
        """The newest step observed."""

    def observe(self, scored: ScoredGroup, step: int) -> None:
        """Remember a fresh group, before selection. Ungraded rollouts do not touch the pass rate."""
        known = self._prompts.setdefault(scored.group.prompt.id, Remembered())
        before = self._band(known)
        known.drawn += 1
        known.step = self._now = step
        rate = scored.pass_rate
        if rate is not None:
            known.rates = [*known.rates, rate][-self.config.window :]
        after = self._band(known)
        if after is not before:
            self._moves[before, after] += 1

    def observe_trained(self, groups: Sequence[ScoredGroup]) -> None:
        """Count these groups as trained on; carried ones in the step that trains them."""
        for scored in groups:
            known = self._prompts.setdefault(scored.group.prompt.id, Remembered())
            known.trained += 1
            known.trained_step = self._now

    def wants(self, prompt: Prompt, step: int) -> bool:
        """Whether the prompt may be drawn at ``step``: False while it rests."""
        known = self._prompts.get(prompt.id)
        if known is None:
            return True
        rest = self._rest(self._band(known))
        return rest == 0 or step - known.step > rest

    def pass_rate(self, prompt: Prompt) -> float | None:
        """Mean pass rate of the prompt's last groups; None while none was graded."""
        known = self._prompts.get(prompt.id)
        return _mean(known.rates) if known is not None else None

    def band(self, prompt: Prompt) -> Band:
        """Where the prompt stands."""
        known = self._prompts.get(prompt.id)
        return Band.UNSEEN if known is None else self._band(known)

    def coverage(self, prompts: int) -> Coverage:
        """Counts over a pool of ``prompts`` different training prompts."""
        bands = Counter(self._band(known) for known in self._prompts.values())
        bands[Band.UNSEEN] += prompts - len(self._prompts)
        rates = [rate for known in self._prompts.values() if (rate := _mean(known.rates)) is not None]
        since = max(0, self._now - LATELY + 1)
        lately = [known for known in self._prompts.values() if known.trained_step >= since]
        return Coverage(
            prompts=prompts,
            drawn=sum(known.drawn > 0 for known in self._prompts.values()),
            trained=sum(known.trained > 0 for known in self._prompts.values()),
            bands={band: bands[band] for band in Band},
            moves=dict(self._moves),
            pass_rate=_mean(rates),
            drawn_lately=sum(known.step >= since for known in self._prompts.values()),
            trained_lately=len(lately),
            trained_pass_rate=_mean([rate for known in lately if (rate := _mean(known.rates)) is not None]),
        )

    def state(self) -> dict[str, Any]:
        """All that ``restore`` needs, as JSON."""
        return {
            "prompts": {
                key: [p.drawn, p.trained, p.step, p.rates, p.trained_step] for key, p in self._prompts.items()
            },
            "moves": [[before, after, count] for (before, after), count in self._moves.items()],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where ``state`` was taken. The settings may have changed; bands follow the new ones."""
        self._prompts = {
            key: Remembered(drawn, trained, step, list(rates), *newer)
            for key, (drawn, trained, step, rates, *newer) in state["prompts"].items()
        }
        self._now = max((known.step for known in self._prompts.values()), default=-1)
        self._moves = Counter({(Band(before), Band(after)): n for before, after, n in state["moves"]})

    def _band(self, known: Remembered) -> Band:
        rate = _mean(known.rates)
        if rate is None:
            return Band.UNSEEN
        if rate >= self.config.mastered_at - UNIFORM_TOLERANCE:
            return Band.MASTERED
        return Band.HOPELESS if rate <= self.config.hopeless_at + UNIFORM_TOLERANCE else Band.LEARNING

    def _rest(self, band: Band) -> int:
        """Steps after its last group for which a prompt of this band is not drawn."""
        rests = {Band.MASTERED: self.config.mastered_rest, Band.HOPELESS: self.config.hopeless_rest}
        return rests.get(band, 0)


def _mean(rates: Sequence[float]) -> float | None:
    return sum(rates) / len(rates) if rates else None
