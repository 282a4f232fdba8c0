"""Answers a minute: the graders of ``benchmarks/grading.py``, in the training process and in workers."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.rewards.build import build_rubric
from trimtab.rewards.rubric import GraderConfig, RewardConfig
from trimtab.types import Draw, Finish, Group, Prompt, Rollout, VersionSpan

GROUP = 8
TOKENS = 256
THOUGHT = "Adding the first two numbers gives 12, and taking 5 away leaves 7. " * 12
FUNCTIONS = """
import asyncio

def match(prompt, rollout):
    return float(rollout.text.rpartition("#### ")[2].strip() == prompt.answer)

async def match_later(prompt, rollout):
    await asyncio.sleep(0.05)
    return match(prompt, rollout)
"""
PROGRAM = """```python
a, b = map(int, input().split())
for k in range({index}):
    a += 0
print(a + b)
```"""
TESTS = [{"stdin": f"{k} {k + 1}\n", "stdout": f"{2 * k + 1}\n"} for k in range(3)]


@dataclass(frozen=True, slots=True)
class Case:
    """One line of the table. ``ending`` is the end of each answer; {index} and {half} differ among them."""

    label: str
    grader: GraderConfig
    answers: int
    gold: Any = "7"
    ending: str = "\n#### 7"
    units: int = 1


def cases(functions: Path, answers: int) -> list[Case]:
    """The graders, each where it can run."""
    match, later = f"{functions}:match", f"{functions}:match_later"
    tags = {"tags": ["think", "answer"]}
    said = "</think><answer>7</answer>"
    regex = {"regex": r"<think>.*</think>\s*<answer>.*</answer>"}
    return [
        Case("answer", GraderConfig(name="answer"), answers),
        Case("answer, isolated", GraderConfig(name="answer", isolated=True), answers),
        Case("format, tags", GraderConfig(name="format", options=tags), answers, ending=said),
        Case("format, regex (worker)", GraderConfig(name="format", options=regex), answers, ending=said),
        Case(
            "mathematics",
            GraderConfig(name="mathematics"),
            answers,
            r"\frac{1}{2}",
            "\n\\boxed{{\\frac{{{index}}}{{2}}}}",
        ),
        Case("function", GraderConfig(name=match, isolated=False), answers),
        Case("function, isolated (default)", GraderConfig(name=match), answers),
        Case("async function of 50 ms", GraderConfig(name=later, isolated=False), answers // 4),
        Case("async function of 50 ms, isolated (default)", GraderConfig(name=later), answers // 4),
        Case(
            "code, 3 input tests (tests a minute)",
            GraderConfig(name="code", options={"remembered": 0, "partial": True}),
            max(GROUP, answers // 100),
            TESTS,
            PROGRAM,
            units=len(TESTS),
        ),
    ]


def groups_of(case: Case) -> list[Group]:
    """``case.answers`` answers in groups."""
    groups: list[Group] = []
    for number in range(max(1, case.answers // GROUP)):
        ids = np.arange(100, dtype=np.int64)
        text = "Ada has 7 apples, takes 5 more and gives 5 away. How many are left? <think>"
        prompt = Prompt(id=f"p{number}", token_ids=ids, text=text, task="bench", answer=case.gold)
        rollouts = tuple(_rollout(prompt.id, index, case, number) for index in range(GROUP))
        groups.append(Group(draw=Draw(prompt, 0), rollouts=rollouts))
    return groups


def _rollout(prompt: str, index: int, case: Case, number: int) -> Rollout:
    ending = case.ending.format(index=1 + index + GROUP * number)
    return Rollout(
        prompt_id=prompt,
        draw=0,
        index=index,
        token_ids=np.arange(TOKENS, dtype=np.int64),
        logprobs=np.full(TOKENS, -0.5, dtype=np.float32),
        mask=np.ones(TOKENS, dtype=np.bool_),
        finish=Finish.STOP,
        versions=(VersionSpan(0, 0, TOKENS),),
        seed=index,
        text=THOUGHT + ending,
    )


async def _one_by_one(groups: list[Group]) -> AsyncIterator[Group]:
    for group in groups:
        yield group
        await asyncio.sleep(0)


def measured(case: Case, repeats: int) -> Mapping[str, Any]:
    """The best of ``repeats`` passes over the same answers, after a first one in which workers start."""
    config = RewardConfig(graders=(case.grader,), concurrency=64)
    rubric = build_rubric(config)
    groups = groups_of(case)
    asyncio.run(rubric.grade_all(_one_by_one(groups[: max(2, len(groups) // 10)])))
    found: list[tuple[float, float]] = []
    for _ in range(repeats):
        wall, own = time.perf_counter(), time.process_time()
        scored = asyncio.run(rubric.grade_all(_one_by_one(groups)))
        found.append((time.perf_counter() - wall, time.process_time() - own))
        lost = [grade.detail for group in scored for grade in group.grades if not grade.graded]
        if lost:
            raise RuntimeError(f"{case.label}: {len(lost)} answers were not graded: {lost[0]}")
    count = len(groups) * GROUP
    seconds = min(wall for wall, _ in found)
    return {
        "grader": case.label,
        "answers": count,
        "a_minute": round(60 * count * case.units / seconds),
        "own_microseconds": round(1e6 * min(own for _, own in found) / count),
    }
