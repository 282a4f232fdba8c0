"""A reward model as a grader: any sequence-classification checkpoint, asked in batches.

sigmoid:  value = 1 / (1 + exp(-(score - centre) / scale))
range:    value = (score - low) / (high - low), cut to [0, 1]
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from trimtab.errors import DataError, SettingError, nearest
from trimtab.rewards.grader import Unverifiable
from trimtab.rewards.shown import FORMS, READS, Form, Reads, shown
from trimtab.types import Grade, GradeState, Prompt, Rollout

if TYPE_CHECKING:
    from trimtab.rewards.classifier import Classifier, Row
    from trimtab.rewards.micro_batches import MicroBatches

CARD = "reward_model.json"
"""What ``trimtab reward-model`` writes beside the weights: form, reads, centre and scale for this grader."""

NORMALISATIONS = ("sigmoid", "range")
_LOADING = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardModel:
    """Grades an answer with the score of a checkpoint, brought to [0, 1].

    path: a folder or a hub name; a folder that ``trimtab reward-model`` wrote brings its own form, reads,
        centre and scale.
    form: how prompt and response are put together, see ``Classifier``: auto, chat, text, pair.
    reads: ``conclusion`` shows the model what follows the thinking; ``all`` the whole response.
    label: the good label, where the checkpoint has several.
    clip: scores are cut to this range first.
    normalisation: ``sigmoid`` with ``centre`` (that score earns 0.5; 0) and ``scale`` (> 0; 1), or ``range``,
        which takes the two ends of ``range`` to 0 and 1. There is none that learns while it runs: the same
        answer has the same value at every step.
    device, dtype: of this model alone, apart from the policy's.
    batch, batch_tokens: rows, and padded tokens, of one forward.
    seconds: limit of one forward.

    A score that is not finite is a fault; an answer longer than the model's context is not gradable.
    """

    limits_itself: ClassVar[Literal[True]] = True
    sees_group: ClassVar[Literal[True]] = True

    path: str = ""
    form: Form | None = None
    reads: Reads | None = None
    label: str | None = None
    clip: tuple[float, float] | None = None
    normalisation: Literal["sigmoid", "range"] = "sigmoid"
    centre: float | None = None
    scale: float | None = None
    range: tuple[float, float] | None = None
    device: str = "auto"
    dtype: str = "auto"
    batch: int = 32
    batch_tokens: int = 32_768
    seconds: float = 300.0
    name: str = "reward-model"

    def __post_init__(self) -> None:
        why = self._fault()
        if why is not None:
            raise SettingError(f"grader {self.name!r}: {why}")

    async def __call__(self, prompt: Prompt, rollout: Rollout) -> Grade:
        row = self._row(prompt, rollout)
        if isinstance(row, Grade):
            return row
        try:
            found: float | Exception = await self._served().batches.ask(row)
        except TimeoutError as late:
            found = late
        return self._grade(self._checked(found, rollout))

    async def grade_group(self, prompt: Prompt, rollouts: Sequence[Rollout]) -> list[Grade | Exception]:
        """A grade or a fault for each rollout; their batches hold nothing else, so that they repeat."""
        scores = await self.scores(prompt, rollouts)
        return [score if isinstance(score, Exception) else self._grade(score) for score in scores]

    async def scores(self, prompt: Prompt, rollouts: Sequence[Rollout]) -> list[float | Grade | Exception]:
        """For each rollout its raw score, or the fault or the grade that it has without one."""
        rows = [self._row(prompt, rollout) for rollout in rollouts]
        asked = [row for row in rows if not isinstance(row, Grade)]
        answers = iter(await self._served().batches.ask_all(asked))
        return [
            row if isinstance(row, Grade) else self._checked(next(answers), rollout)
            for row, rollout in zip(rows, rollouts, strict=True)
        ]

    def _row(self, prompt: Prompt, rollout: Rollout) -> Row | Grade:
        """What the model reads, or the grade that an answer has without it.

        Raises DataError for a form that does not fit the checkpoint.
        """
        response = shown(prompt, rollout, self.reads or read_card(self.path).get("reads", "conclusion"))
        if not response.strip():
            return Grade.of(0.0, detail="there is no answer after the thinking")
        classifier = self._served().classifier
        row = classifier.row(prompt.messages or prompt.text, response)
        if len(row.ids) <= classifier.context:
            return row
        reach = classifier.context
        detail = f"{len(row.ids)} tokens, more than the {reach} that reward model {self.path!r} reads"
        return Grade(state=GradeState.NOT_GRADABLE, value=None, detail=detail)

    def _checked(self, found: float | Exception, rollout: Rollout) -> float | Grade | Exception:
        """The score, where it is one; a batch that took too long is a time-out."""
        if isinstance(found, TimeoutError):
            detail = f"no score of {rollout.key} within {self.seconds:g} s of forward"
            return Grade(state=GradeState.TIMEOUT, value=None, detail=detail)
        if isinstance(found, Exception) or math.isfinite(found):
            return found
        why = f"reward model {self.path!r} gave {rollout.key} the score {found}; try dtype = 'float32'"
        return ValueError(why)

    def _grade(self, score: float | Grade | Exception) -> Grade:
        """Raises the fault, where there is one."""
        if isinstance(score, Exception):
            raise score
        return score if isinstance(score, Grade) else Grade.of(self.value(score), detail=f"score {score:.5g}")

    def value(self, score: float) -> float:
        """The score in [0, 1]."""
        if self.clip is not None:
            score = min(max(score, self.clip[0]), self.clip[1])
        if self.normalisation == "range":
            assert self.range is not None, "checked at construction"
            low, high = self.range
            return min(max((score - low) / (high - low), 0.0), 1.0)
        card = read_card(self.path)
        centre = card.get("centre", 0.0) if self.centre is None else self.centre
        scale = card.get("scale", 1.0) if self.scale is None else self.scale
        return sigmoid((score - centre) / scale)

    def self_check(self, prompts: Sequence[Prompt]) -> list[Unverifiable]:
        """Loads the model before the run, so that a wrong path stops it there. No gold answer is needed."""
        classifier = self._served().classifier
        if prompts:
            classifier.row(prompts[0].messages or prompts[0].text, "x")
        return []

    def _served(self) -> Served:
        with _LOADING:
            return _serve(
                self.path,
                self.form or read_card(self.path).get("form", "auto"),
                self.label,
                (self.device, self.dtype),
                (self.batch, self.batch_tokens, self.seconds),
                stamp_of(self.path),
            )

    def _fault(self) -> str | None:
        choices = {"form": FORMS, "reads": READS, "normalisation": NORMALISATIONS}
        for key, known in choices.items():
            given = getattr(self, key)
            if given is not None and given not in known:
                return f"{key} cannot be {given!r}{nearest(str(given), known)}"
        if not self.path:
            return "needs the option path, a folder or hub name of a sequence-classification checkpoint"
        if self.batch < 1 or self.batch_tokens < 1 or not self.seconds > 0.0:
            return "batch and batch_tokens must be >= 1 and seconds > 0"
        for key, ends in (("clip", self.clip), ("range", self.range)):
            if ends is not None and not -math.inf < ends[0] < ends[1] < math.inf:
                return f"{key} must be two finite numbers, the smaller first, got {list(ends)}"
        if (self.normalisation == "range") != (self.range is not None):
            return 'normalisation = "range" and range = [low, high] belong together'
        if self.normalisation == "range" and (self.centre is not None or self.scale is not None):
            return 'centre and scale belong to normalisation = "sigmoid"'
        if self.centre is not None and not math.isfinite(self.centre):
            return f"centre must be finite, got {self.centre}"
        if self.scale is not None and not 0.0 < self.scale < math.inf:
            return f"scale must be > 0 and finite, got {self.scale}"
        return None


def sigmoid(x: float) -> float:
    """1 / (1 + exp(-x)), without overflow."""
    if x >= 0.0:
        return 1.0 / (1.0 + math.exp(-x))
    return math.exp(x) / (1.0 + math.exp(x))


def read_card(path: str) -> dict[str, Any]:
    """What ``trimtab reward-model`` wrote beside the weights; {} for any other checkpoint."""
    return _card(path, stamp_of(path))


def stamp_of(path: str) -> int:
    """When the config of a folder was written: a model that was trained anew is loaded anew."""
    config = Path(path) / "config.json"
    return config.stat().st_mtime_ns if config.is_file() else 0


@lru_cache(maxsize=16)
def _card(path: str, stamp: int) -> dict[str, Any]:
    del stamp
    card = Path(path) / CARD
    if not card.is_file():
        return {}
    try:
        found = json.loads(card.read_text(encoding="utf-8"))
        told = {key: found[key] for key in ("form", "reads", "centre", "scale")}
        if told["form"] not in FORMS or told["reads"] not in READS:
            raise ValueError(f"form {told['form']!r}, reads {told['reads']!r}")
        if not (math.isfinite(told["centre"]) and 0.0 < told["scale"] < math.inf):
            raise ValueError(f"centre {told['centre']}, scale {told['scale']}")
        return told
    except (ValueError, KeyError, TypeError) as fault:
        raise DataError(
            f"{card} is damaged ({type(fault).__name__}: {fault}); train the model again"
        ) from None


class Served:
    """A loaded classifier and its queue."""

    def __init__(self, classifier: Classifier, batches: MicroBatches[Row]) -> None:
        self.classifier = classifier
        self.batches = batches


@lru_cache(maxsize=4)
def _serve(
    path: str,
    form: Form,
    label: str | None,
    place: tuple[str, str],
    limits: tuple[int, int, float],
    stamp: int,
) -> Served:
    import torch

    from trimtab.rewards.classifier import load_classifier
    from trimtab.rewards.micro_batches import MicroBatches

    del stamp
    classifier = load_classifier(path, form=form, label=label, device=place[0], dtype=place[1])

    def work(rows: list[Row]) -> list[float]:
        with torch.inference_mode():
            return classifier.scores(rows).tolist()

    rows, tokens, seconds = limits
    batches = MicroBatches(work, size=lambda row: len(row.ids), rows=rows, tokens=tokens, timeout=seconds)
    return Served(classifier, batches)
