"""Preflight: whether a run will learn, and what it will cost, before it is begun.

checks of the prompts -> a few hundred real answers -> checks of answers, groups and cost -> verdict
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import dataclass

from trimtab.algorithms.algorithm import Algorithm
from trimtab.data.prompts import PromptSet
from trimtab.doctor.preflight.answers import answer_checks
from trimtab.doctor.preflight.check import Check, Level, Preflight
from trimtab.doctor.preflight.cost import Plan, measure_update, memory_check, time_check
from trimtab.doctor.preflight.draw import Drawn, draw
from trimtab.doctor.preflight.groups import draws_per_group, group_checks
from trimtab.doctor.preflight.prompts import prompt_checks
from trimtab.models import LoadedModel
from trimtab.rewards.grader import Unverifiable
from trimtab.rewards.rubric import Rubric
from trimtab.rollout.engine import RolloutEngine, Sampling
from trimtab.trainer.trainer import Trainer

__all__ = ["Budget", "Check", "Level", "Preflight", "Subject", "preflight"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What preflight may spend: answers, answers to a prompt, and about how many seconds of sampling."""

    answers: int = 256
    samples: int = 8
    seconds: float = 120.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Subject:
    """The machines and settings of the run in question. The trainer's model is the one that samples."""

    model: LoadedModel
    prompts: PromptSet
    problems: tuple[Unverifiable, ...]
    rubric: Rubric
    engine: RolloutEngine
    trainer: Trainer
    algorithm: Algorithm
    sampling: Sampling
    plan: Plan
    seed: int


async def preflight(subject: Subject, budget: Budget) -> Preflight:
    """All checks. The last one trains the model for an update: use it for nothing else afterwards."""
    limit = subject.sampling.max_new_tokens
    checks = prompt_checks(subject.model, subject.prompts, subject.problems, limit)
    drawn = await draw(
        subject.engine,
        subject.rubric,
        subject.prompts.train,
        answers=budget.answers,
        samples=budget.samples,
        sampling=subject.sampling,
        seed=subject.seed,
        seconds=budget.seconds,
    )
    checks.append(_drawn_check(drawn, budget))
    longest = max(len(prompt.token_ids) for prompt in subject.prompts.train)
    checks += answer_checks(
        drawn.groups,
        subject.rubric,
        subject.algorithm.shaping,
        max_new_tokens=limit,
        room=subject.model.context - longest,
    )
    plan = subject.plan
    checks += group_checks(
        drawn.groups, subject.algorithm.selection, plan.samples, len(subject.prompts.train), plan.prompts
    )
    measured = await measure_update(subject.trainer, subject.algorithm, drawn.groups, limit)
    per_group = draws_per_group(drawn.groups, subject.algorithm.selection, plan.samples)
    checks += [time_check(plan, drawn, measured, per_group), memory_check(measured)]
    return Preflight(checks=tuple(checks))


def _drawn_check(drawn: Drawn, budget: Budget) -> Check:
    answers = sum(len(scored.group.rollouts) for scored in drawn.groups)
    says = f"{answers} answers to {len(drawn.groups)} training prompts were drawn and graded"
    if drawn.cut_short:
        says += f"; {budget.seconds:g} s allowed no more, so intervals are wide"
    return Check(
        name="drawn",
        level=Level.NOTE if drawn.cut_short else Level.OK,
        says=says,
        advice="give it more time (--seconds)" if drawn.cut_short else "",
        numbers={"answers": answers, "prompts": len(drawn.groups)},
    )
