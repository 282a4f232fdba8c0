"""The recipe for code rewards, shortened: programs are run, and their grades are what the record says."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.handmade import prompt_of, rollout_of
from tests.tiny_runs import train_silently
from trimtab.config import resolve
from trimtab.record.reader import RunReader
from trimtab.record.rows import RolloutRow
from trimtab.rewards.blocks import last_program
from trimtab.rewards.code import CodeTests
from trimtab.types import Finish, GradeState

SHORT = (
    "run.steps=2",
    "data.train_prompts=24",
    "data.held_out=4",
    "sampling.prompts_per_step=3",
    "sampling.samples_per_prompt=4",
    "evaluation.samples=2",
    "evaluation.ks=[1, 2]",
    "trainer.updates_per_step=1",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory):
    """A finished run of two small steps, and what it said."""
    folder = tmp_path_factory.mktemp("runs") / "programs"
    summary, view = train_silently(resolve("programs", SHORT), folder)
    return folder, summary, view


def test_it_says_before_it_starts_how_programs_are_confined(run):
    folder, _, view = run
    said = next(line for line in view.lines if line.startswith("code: "))
    assert "escape attempts were refused" in said
    assert said in RunReader(folder).run["facts"]["opening"]


def test_right_and_wrong_programs_are_graded_and_trained_on(run):
    folder, summary, _ = run
    rows = recorded(folder)
    states = {row.grade for row in rows}
    assert states == {GradeState.RIGHT, GradeState.WRONG}
    assert summary["evaluation"]["final"]["answers"] == 8
    assert summary["evaluation"]["final"]["ungraded"] == 0
    assert summary["seconds"]["stages"]["grade"] > 0
    trained = [row for row in rows if row.kept]
    assert {row.value for row in trained} == {0.0, 1.0}


def test_the_recorded_grades_are_those_of_the_recorded_programs_run_again(run):
    folder, _, _ = run
    rows = [row for row in recorded(folder) if last_program(row.text)[0] and row.finish is Finish.STOP]
    right, wrong = (
        [row for row in rows if row.grade is state][:3] for state in (GradeState.RIGHT, GradeState.WRONG)
    )
    assert len(right) == len(wrong) == 3
    grader = CodeTests(remembered=0)
    for row in right + wrong:
        asked = prompt_of(answer=row.answer, text=row.prompt)
        grade = asyncio.run(grader(asked, rollout_of(row.text)))
        assert (grade.state, grade.detail) == (row.grade, row.detail)


def recorded(folder: Path) -> list[RolloutRow]:
    reader = RunReader(folder)
    return [row for step in reader.rollout_steps() for row in reader.rollouts(step)]
