"""What a run says of its own accord where it cannot learn: answers cut off, graders that give nothing."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trimtab.types import Finish, ScoredGroup

CUT_SHARE = 0.9
"""From this share of truncated answers on, with nothing right among them, a step teaches nothing."""

SILENT_ANSWERS = 200
"""Answers in a row, from the run's first one, after which a grader that gave 0 to all of them is told of."""

SHOWN_ANSWERS, SHOWN_CHARACTERS = 3, 120
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


def silent_graders(groups: Sequence[ScoredGroup], zeros: dict[str, int]) -> list[str]:
    """A sentence for each grader that has now given 0 to ``SILENT_ANSWERS`` answers and more to none.

    ``zeros`` counts them by grader over the run, ``SPOKEN`` once a grader gave more or was told of. Answers
    that did not end by themselves do not count: they are wrong without being asked about.
    """
    texts: dict[str, list[str]] = {}
    for scored in groups:
        for rollout, grade in zip(scored.group.rollouts, scored.grades, strict=True):
            if rollout.finish is not Finish.STOP:
                continue
            for grader, value in grade.parts.items():
                if value > 0.0:
                    zeros[grader] = SPOKEN
                elif zeros.setdefault(grader, 0) != SPOKEN:
                    zeros[grader] += 1
                    texts.setdefault(grader, []).append(rollout.text[:SHOWN_CHARACTERS])
    told = [grader for grader in texts if zeros[grader] >= SILENT_ANSWERS]
    sentences = [
        f"grader {grader!r} has given 0 to all {zeros[grader]} answers so far, and what never moves cannot "
        f"teach: check what it reads; three of them: {', '.join(map(repr, texts[grader][:SHOWN_ANSWERS]))}"
        for grader in told
    ]
    zeros.update(dict.fromkeys(told, SPOKEN))
    return sentences
