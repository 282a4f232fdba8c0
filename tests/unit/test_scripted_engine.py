"""What tests may ask of the scripted engine beyond the contract of engines."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio

import numpy as np
import pytest
import torch

from trimtab.errors import DataError, RunError
from trimtab.rollout.engine import Sampling
from trimtab.rollout.scripted import ScriptedEngine
from trimtab.types import Draw, Finish, Group, Prompt

SAMPLING = Sampling(max_new_tokens=8)


def draw(name: str = "a", number: int = 0) -> Draw:
    return Draw(Prompt(id=name, token_ids=np.array([1]), text="?", task="t"), number)


def run(engine: ScriptedEngine, *draws: Draw, n: int = 2, sampling: Sampling = SAMPLING) -> list[Group]:
    async def collect() -> list[Group]:
        return [group async for group in engine.generate(draws, n, sampling, seed=0)]

    return asyncio.run(collect())


def texts(groups: list[Group]) -> list[str]:
    return [r.text for group in groups for r in group.rollouts]


def test_answers_are_taken_in_turn_over_draws():
    engine = ScriptedEngine({"a": ["1", "2", "3"]})
    assert texts(run(engine, draw(), draw(number=1))) == ["1", "2", "3", "1"]


def test_a_function_may_look_at_draw_and_index():
    engine = ScriptedEngine(lambda d, i: f"{d.prompt.id}{d.number}{i}")
    assert texts(run(engine, draw(number=4))) == ["a40", "a41"]


def test_ids_are_taken_as_they_are():
    engine = ScriptedEngine({"a": [[65, 66, 3], [65, 66]]})
    stopped, open_ended = run(engine, draw())[0].rollouts
    assert (stopped.text, stopped.finish, stopped.length) == ("AB", Finish.STOP, 3)
    assert (open_ended.text, open_ended.finish, open_ended.length) == ("AB", Finish.LENGTH, 2)


def test_an_empty_answer_of_ids_has_no_token():
    empty = run(ScriptedEngine({"a": [[]]}), draw())[0].rollouts[0]
    assert (empty.length, empty.versions, empty.finish) == (0, (), Finish.LENGTH)


def test_short_groups_come_first():
    engine = ScriptedEngine({"long": ["123456"], "short": ["1"]})
    assert [g.prompt.id for g in run(engine, draw("long"), draw("short"))] == ["short", "long"]


def test_it_fails_where_it_is_told():
    engine = ScriptedEngine({"a": ["1"], "b": ["1"]}, fails_on=frozenset({"b"}))
    assert len(run(engine, draw())) == 1
    with pytest.raises(RunError, match="'b'"):
        run(engine, draw("b"))


def test_a_prompt_without_an_answer():
    with pytest.raises(DataError, match="no answer for prompt 'x'"):
        run(ScriptedEngine({"a": ["1"]}), draw("x"))


def test_loaded_weights_are_kept():
    engine, weight = ScriptedEngine({}), torch.ones(2)
    asyncio.run(engine.load_weights([("w", weight)], 3))
    weight += 1
    assert engine.version == 3
    assert engine.loaded[0]["w"].tolist() == [1, 1]
