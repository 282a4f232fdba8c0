"""Preflight's questions about the answers that were drawn: do they end, can they be read and graded?"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trimtab.doctor.preflight.check import Check, Level
from trimtab.evaluation.estimators import wilson
from trimtab.rewards.grader import Reading
from trimtab.rewards.rubric import Rubric
from trimtab.rewards.shaping import LengthShaping
from trimtab.types import Finish, Grade, Prompt, Rollout, ScoredGroup

Answer = tuple[Prompt, Rollout, Grade]

NEARLY_ALL, MANY, SOME = 0.9, 0.2, 0.02
SHOWN, TAIL = 3, 120


def answers_of(groups: Sequence[ScoredGroup]) -> list[Answer]:
    """Every drawn answer with its prompt and grade."""
    return [
        (scored.group.prompt, rollout, grade)
        for scored in groups
        for rollout, grade in zip(scored.group.rollouts, scored.grades, strict=True)
    ]


def answer_checks(
    groups: Sequence[ScoredGroup],
    rubric: Rubric,
    shaping: LengthShaping | None,
    *,
    max_new_tokens: int,
    room: int,
) -> list[Check]:
    """All checks of this file. room: new tokens that the context leaves beside the longest prompt."""
    answers = answers_of(groups)
    return [
        truncation(answers, max_new_tokens, room),
        *([overlong(answers, shaping, max_new_tokens)] if shaping is not None else []),
        parsing(answers, rubric),
        grading(answers, rubric),
        repetition(groups),
    ]


def truncation(answers: Sequence[Answer], limit: int, room: int) -> Check:
    """Share of answers that the limit cuts off, the quantiles of length, and a limit to try."""
    lengths = np.array([rollout.length for _, rollout, _ in answers])
    cut = np.array([rollout.finish is Finish.LENGTH for _, rollout, _ in answers])
    share, (low, high) = float(cut.mean()), wilson(float(cut.mean()), len(cut))
    middle, most = (int(q) for q in np.quantile(lengths, (0.5, 0.95)))
    numbers = {
        "share": share,
        "interval": [low, high],
        "median": middle,
        "p95": most,
        "suggested": suggested_limit(lengths[~cut], share, limit, room),
    }
    says = (
        f"{int(cut.sum())} of {len(cut)} answers ({share:.1%}, 95% interval {low:.1%} to {high:.1%}) were "
        f"cut off at sampling.max_new_tokens = {limit}; response tokens: median {middle}, 95% up to {most}"
    )
    if share < SOME:
        return Check(name="truncation", level=Level.OK, says=says, numbers=numbers)
    suggested = numbers["suggested"]
    level = Level.CRITICAL if share >= NEARLY_ALL else Level.WARNING if share >= MANY else Level.NOTE
    advice = (
        f"set sampling.max_new_tokens = {suggested}"
        if suggested > limit
        else f"the context has no room for more than {room} tokens; take a model that answers shorter"
    )
    tails = tuple(repr(rollout.text[-TAIL:]) for (_, rollout, _), c in zip(answers, cut, strict=True) if c)
    return Check(
        name="truncation", level=level, says=says, advice=advice, numbers=numbers, shown=tails[:SHOWN]
    )


def suggested_limit(ended: np.ndarray, cut_share: float, limit: int, room: int) -> int:
    """A limit that would cut about one answer in a hundred, never beyond ``room``.

    Where next to nothing is cut: the 99% quantile and a tenth. Where the limit hides the tail no quantile
    is known, and it is doubled, or from 30% on made four times as long, to look again.
    """
    if cut_share < SOME and len(ended):
        return min(room, int(np.ceil(1.1 * np.quantile(ended, 0.99))))
    return min(room, limit * (4 if cut_share >= 0.3 else 2))


def overlong(answers: Sequence[Answer], shaping: LengthShaping, limit: int) -> Check:
    """Share of right answers that the length penalty would already touch."""
    right = np.array([rollout.length for _, rollout, grade in answers if grade.value == 1.0])
    points = ", ".join(f"{p.penalty:g} at {p.length}" for p in shaping.breakpoints(limit))
    if not len(right):
        says = f"no right answer was drawn to hold the length penalty ({points}) against"
        return Check(name="overlong", level=Level.SKIPPED, says=says)
    share = float((shaping.penalties(right, limit) < 0.0).mean())
    heavy = share >= MANY
    return Check(
        name="overlong",
        level=Level.WARNING if heavy else Level.OK,
        says=f"the length penalty ({points}) touches {share:.1%} of {len(right)} right answers",
        advice="start it later: raise sampling.max_new_tokens or lower the buffer" if heavy else "",
        numbers={"share": share, "right": len(right)},
    )


def parsing(answers: Sequence[Answer], rubric: Rubric) -> Check:
    """Share of ended answers in which the grader found a final answer at all."""
    ended = [(p, r) for p, r, _ in answers if r.finish is Finish.STOP]
    reads = any(isinstance(grader, Reading) for grader, _ in rubric.graders)
    if not reads or not ended:
        why = "no answer ended by itself" if reads else "no grader here reads a final answer"
        return Check(name="parsing", level=Level.SKIPPED, says=f"parse success is unknown: {why}")
    unread = [r for p, r in ended if rubric.read_answer(p, r) is None]
    share = 1.0 - len(unread) / len(ended)
    level = Level.OK if share >= 0.8 else Level.WARNING if share >= 0.05 else Level.CRITICAL
    return Check(
        name="parsing",
        level=level,
        says=f"a final answer was found in {share:.1%} of {len(ended)} answers that ended by themselves",
        advice=""
        if level is Level.OK
        else "ask for the marker in data.template, or give the grader the form that the model writes",
        numbers={"share": share, "answers": len(ended)},
        shown=tuple(repr(r.text[-TAIL:]) for r in unread[:SHOWN]) if level is not Level.OK else (),
    )


def grading(answers: Sequence[Answer], rubric: Rubric) -> Check:
    """Answers without a grade, with the first reason."""
    ungraded = [grade for _, _, grade in answers if not grade.graded]
    share = len(ungraded) / len(answers)
    if not ungraded:
        return Check(name="grading", level=Level.OK, says=f"all {len(answers)} answers were graded")
    stops = share > rubric.max_ungraded_share or share == 1.0
    reason = next((grade.detail for grade in ungraded if grade.detail), "no reason given")
    return Check(
        name="grading",
        level=Level.CRITICAL if stops else Level.WARNING,
        says=f"{len(ungraded)} of {len(answers)} answers could not be graded; the first reason: {reason}",
        advice="mend the grader: ungraded answers are never counted as wrong, and too many stop the run",
        numbers={"share": share, "ungraded": len(ungraded)},
        shown=tuple((rubric.first_traceback or "").splitlines()[-SHOWN:]),
    )


def repetition(groups: Sequence[ScoredGroup]) -> Check:
    """Share of answers whose text another answer of the same group has too."""
    total = sum(len(scored.group.rollouts) for scored in groups)
    different = sum(len({rollout.text for rollout in scored.group.rollouts}) for scored in groups)
    share = 1.0 - different / total
    heavy = share > 0.5
    return Check(
        name="repetition",
        level=Level.WARNING if heavy else Level.OK,
        says=f"{share:.1%} of the answers repeat another one of their group word for word",
        advice="raise sampling.temperature towards 1, or take harder prompts" if heavy else "",
        numbers={"share": share},
    )
