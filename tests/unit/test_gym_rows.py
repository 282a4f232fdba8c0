"""Rows from reasoning-gym, and the recipe that trains on them."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.commands import script
from trimtab.config import resolve
from trimtab.errors import DataError, SettingError
from trimtab.rewards.build import build_rubric
from trimtab.types import Draw, Finish, Grade, Group, Prompt, Rollout, VersionSpan

gym = script("make_reasoning_gym")

SUMS = {
    "min_terms": 3,
    "max_terms": 4,
    "max_digits": 1,
    "operators": ["+", "-"],
    "allow_parentheses": False,
    "allow_negation": False,
}
COUNTS = {"train": 40, "held_out": 8}


def entries(seed: int, count: int = 2000) -> Iterator[dict[str, str]]:
    """Sums as reasoning-gym words them, many of them twice."""
    rng = random.Random(seed)
    for _ in range(count):
        a, b, c = (rng.randint(0, 9) for _ in range(3))
        yield {"question": f"Calculate {a} + {b} - {c}.", "answer": str(a + b - c)}


def test_a_question_is_in_one_split_whatever_the_seed_and_never_twice():
    one, other = (gym.split("sums", entries(seed), COUNTS) for seed in (0, 1))
    for rows in (one, other):
        assert {name: len(chosen) for name, chosen in rows.items()} == COUNTS
        prompts = [row["prompt"] for chosen in rows.values() for row in chosen]
        assert len(set(prompts)) == len(prompts)
    train = {row["prompt"] for rows in (one, other) for row in rows["train"]}
    held_out = {row["prompt"] for rows in (one, other) for row in rows["held_out"]}
    assert train.isdisjoint(held_out)


def test_rows_are_the_same_for_the_same_entries_and_ids_name_questions():
    rows = gym.split("sums", entries(0), COUNTS)
    assert rows == gym.split("sums", entries(0), COUNTS)
    other = gym.split("sums", entries(1), COUNTS)
    both = [row for found in (rows, other) for row in found["train"]]
    assert len({row["id"] for row in both}) == len({row["prompt"] for row in both})
    assert rows["train"][0].keys() == {"id", "prompt", "answer", "task"}


def test_too_few_questions_and_answers_that_cannot_be_matched_are_errors():
    with pytest.raises(DataError, match=r"too few different questions .* held_out"):
        gym.split("sums", entries(0, count=10), COUNTS)
    for answer in ("1\n2", "", None):
        with pytest.raises(DataError, match="one line of text can be matched"):
            gym.split("sums", [{"question": "q", "answer": answer}], COUNTS)


def test_settings_are_json_or_text():
    found = gym.parsed(["size=3", 'operators=["+"]', "style=simple", "on=true"])
    assert found == {"size": 3, "operators": ["+"], "style": "simple", "on": True}
    with pytest.raises(SettingError, match="key=value, got 'size'"):
        gym.parsed(["size"])


signed = st.tuples(st.sampled_from("+-"), st.integers(0, 99))


@given(st.lists(signed, min_size=1, max_size=5), st.integers(0, 99))
def test_a_worked_out_sum_is_true_line_by_line(rest: list[tuple[str, int]], first: int):
    expression = f"{first}" + "".join(f" {sign} {term}" for sign, term in rest)
    total = first + sum(term if sign == "+" else -term for sign, term in rest)
    *lines, last = gym.work_out(f"Calculate {expression}.", str(total)).splitlines()
    assert last == f"Answer: {total}"
    assert len(lines) == len(rest)
    before = first
    for line, (sign, term) in zip(lines, rest, strict=True):
        after = before + (term if sign == "+" else -term)
        assert line == f"{before} {sign} {term} = {after}"
        before = after


@pytest.mark.parametrize(
    "expression", ["(1 + 2) * 3", "7", "1 + ", "3 - -4", "2 * 3", "1 + 2 = 3", "1 + x", ""]
)
def test_what_is_no_plain_sum_is_not_worked_out(expression: str):
    with pytest.raises(DataError, match="only sums of plus and minus"):
        gym.work_out(f"Calculate {expression}.", "9")


def test_a_wrong_gold_answer_is_found_and_demonstrations_cannot_outnumber_rows():
    with pytest.raises(DataError, match="gives 3, the row says '4'"):
        gym.work_out("Calculate 1 + 2.", "4")
    rows = [{"prompt": "Calculate 1 + 2.", "answer": "3"}]
    assert gym.demonstrations(rows, 1, 0.0) == [
        {"prompt": "Calculate 1 + 2.", "response": "1 + 2 = 3\nAnswer: 3"}
    ]
    with pytest.raises(DataError, match="2 demonstrations were asked for"):
        gym.demonstrations(rows, 2, 0.0)


@pytest.mark.parametrize(("direct", "expected"), [(0.0, 0), (0.25, 2), (0.5, 4), (1.0, 8)])
def test_a_share_of_the_demonstrations_only_states_the_result(direct: float, expected: int):
    rows = [{"prompt": f"Calculate {n} + 2.", "answer": str(n + 2)} for n in range(8)]
    responses = [row["response"] for row in gym.demonstrations(rows, 8, direct)]
    assert sum(response.startswith("Answer:") for response in responses) == expected
    assert all(response.endswith(f"Answer: {n + 2}") for n, response in enumerate(responses))
    with pytest.raises(SettingError, match=r"must be in \[0, 1\]"):
        gym.demonstrations(rows, 8, direct + 1.5)


def test_without_reasoning_gym_or_with_wrong_settings_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(SettingError, match="pip install reasoning-gym"):
        next(gym.draw("basic_arithmetic", {}, 0, COUNTS))


def test_reasoning_gym_refuses_what_it_does_not_know():
    pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed")
    with pytest.raises(SettingError, match="did you mean 'basic_arithmetic'"):
        next(gym.draw("basic_aritmetic", {}, 0, COUNTS))
    with pytest.raises(SettingError, match="refuses these settings"):
        next(gym.draw("basic_arithmetic", {"min_term": 3}, 0, COUNTS))


def test_neighbouring_seeds_of_reasoning_gym_do_not_leak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed")
    name = "basic_arithmetic"
    near = [gym.split(name, gym.draw(name, SUMS, seed, COUNTS), COUNTS) for seed in (0, 1)]
    trained = {row["prompt"] for rows in near for row in rows["train"]}
    assert trained.isdisjoint(row["prompt"] for rows in near for row in rows["held_out"])
    given_settings = [f"{key}={json.dumps(value)}" for key, value in SUMS.items()]
    arguments = [name, str(tmp_path / "a"), *given_settings, "--train", "40", "--held-out", "8"]
    monkeypatch.setattr(sys, "argv", ["make_reasoning_gym.py", *arguments, "--demonstrations", "4"])
    assert gym.main() == 0
    written = [json.loads(line) for line in (tmp_path / "a" / "train.jsonl").read_text().splitlines()]
    assert written == near[0]["train"]
    shown = [json.loads(line) for line in (tmp_path / "a" / "demonstrations.jsonl").read_text().splitlines()]
    assert [row["prompt"] for row in shown] == [row["prompt"] for row in written[:4]]


def graded(response: str, answer: str) -> Grade:
    """The grade that the recipe gives to this response."""
    tokens = np.arange(3)
    rollout = Rollout(
        prompt_id="p",
        draw=0,
        index=0,
        token_ids=tokens,
        logprobs=tokens.astype("float32"),
        mask=tokens >= 0,
        finish=Finish.STOP,
        versions=(VersionSpan(0, 0, 3),),
        seed=0,
        text=response,
    )
    prompt = Prompt(id="p", token_ids=tokens, text="Calculate 1 + 2.", task="sums", answer=answer)
    rubric = build_rubric(resolve("smollm2-sums").reward)
    scored = asyncio.run(rubric.grade(Group(draw=Draw(prompt, 0), rollouts=(rollout,))))
    return scored.grades[0]


def test_the_recipe_grades_demonstrations_right_and_gives_nothing_for_half_an_answer():
    for entry in entries(0, count=20):
        assert graded(gym.work_out(entry["question"], entry["answer"]), entry["answer"]).value == 1.0
    for half in ("1 + 2 = 3", "Answer: 3 apples", "The answer is 3", "Answer: 4", "", "Answer:"):
        assert graded(half, "3").value == 0.0
    assert graded("3", "3").value == 1.0


def test_the_recipe_is_dapo_and_teaches_the_form_it_grades():
    run = resolve("smollm2-sums")
    assert run.algorithm["name"] == "dapo"
    marker = run.reward.graders[0].options["marker"]
    assert marker in run.data.template.system
    system, user = run.data.template.apply("Calculate 1 + 2.")
    assert (system["role"], user["content"]) == ("system", "Calculate 1 + 2.")
    assert run.sampling.samples_per_prompt == 8
    assert run.trainer.updates_per_step > 1
