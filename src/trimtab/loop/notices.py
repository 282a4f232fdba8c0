"""What a run says of its own accord where it cannot learn: answers cut off, graders that never move."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trimtab.types import UNIFORM_TOLERANCE, Finish, GradeState, ScoredGroup

CUT_SHARE = 0.9
"""From this share of truncated answers on, with nothing right among them, a step teaches nothing."""

CONSTANT_ANSWERS = 200
"""Answers in a row after which a grader that gave all of them the same value is told of."""

SHOWN_ANSWERS, SHOWN_CHARACTERS = 3, 120
COUNTED = ("one", "two", "three")
"""So many answers the last step may have had."""
SPOKEN = -1


def cut_off(groups: Sequence[ScoredGroup]) -> float | None:
    """Share of truncated answers, if it is ``CUT_SHARE`` or more and no answer earned anything; else None."""
    cut = [rollout.finish is Finish.LENGTH for scored in groups for rollout in scored.group.rollouts]
    earned = any(bool((scored.values > 0.0).any()) for scored in groups)
    share = float(np.mean(cut)) if cut else 0.0
    return share if share >= CUT_SHARE and not earned else None


def cut_off_sentence(share: float, max_new_tokens: int) -> str:
    """What was cut, and the limit to try."""
    return (
        f"{share:.0%} of the answers were cut off at sampling.max_new_tokens = {max_new_tokens} and none was "
        f"right: set sampling.max_new_tokens = {4 * max_new_tokens}, or take a model that answers shorter"
    )


def lost_answers(groups: Sequence[ScoredGroup]) -> str | None:
    """The first answer of a step whose grader failed or took too long, and how many more there are."""
    faults = (GradeState.TIMEOUT, GradeState.GRADER_FAILED)
    lost = [
        grade.detail if rollout.key in grade.detail else f"no grade of {rollout.key}: {grade.detail}"
        for scored in groups
        for rollout, grade in zip(scored.group.rollouts, scored.grades, strict=True)
        if grade.state in faults
    ]
    more = f" (and {len(lost) - 1} more in this step)" if len(lost) > 1 else ""
    return f"{lost[0]}{more}" if lost else None


def constant_parts(groups: Sequence[ScoredGroup], streaks: dict[str, list[float]]) -> list[str]:
    """A sentence for each part of the grade that has one value for ``CONSTANT_ANSWERS`` answers in a row.

    Any value counts: what is always 1 teaches as little as what is always 0. Only a part that had other
    values before and now is 1 throughout is left alone: it has been learned. Each part is told of once.

    ``streaks`` goes through the run: by part its value, for how many answers in a row (``SPOKEN`` once told),
    and 1 if it had other values before. Answers that did not end by themselves do not count: they are wrong
    without being asked about.
    """
    texts: dict[str, list[str]] = {}
    for scored in groups:
        for rollout, grade in zip(scored.group.rollouts, scored.grades, strict=True):
            if rollout.finish is not Finish.STOP:
                continue
            for part, value in grade.parts.items():
                streak = streaks.setdefault(part, [value, 0, 0])
                if streak[1] == SPOKEN:
                    continue
                if abs(value - streak[0]) > UNIFORM_TOLERANCE:
                    streak[:] = [value, 0, 1]
                    texts[part] = []
                streak[1] += 1
                texts.setdefault(part, []).append(rollout.text[:SHOWN_CHARACTERS])
    sentences: list[str] = []
    for part, examples in texts.items():
        value, count, varied = streaks[part]
        if count < CONSTANT_ANSWERS or (varied and value >= 1.0 - UNIFORM_TOLERANCE):
            continue
        which = f"the last {count:g} answers" if varied else f"all {count:g} answers so far"
        shown = examples[:SHOWN_ANSWERS]
        sentences.append(
            f"grader {part!r} has given {value:g} to {which}, and what never moves cannot teach: check what "
            f"it reads; {COUNTED[len(shown) - 1]} of them: {', '.join(map(repr, shown))}"
        )
        streaks[part][1] = SPOKEN
    return sentences
