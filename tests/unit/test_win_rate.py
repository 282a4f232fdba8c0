"""Win rate within a group, by a reward model and by a judge."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import math
from pathlib import Path

import pytest

from tests.classifiers import write_classifier
from tests.handmade import group_of, prompt_of, rollout_of
from tests.judge_server import JudgeServer, Reply, Request, completion, verdict
from trimtab.config import resolve
from trimtab.errors import RunError, SettingError
from trimtab.rewards.build import build_grader
from trimtab.rewards.model import RewardModel
from trimtab.rewards.rubric import GraderConfig, Rubric
from trimtab.rewards.win_rate import WinRate, met
from trimtab.types import Finish, ScoredGroup


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_classifier(tmp_path_factory.mktemp("rm") / "qwen3"))


def compared(grader: WinRate, texts: list[str], prompt=None, **finish: Finish) -> ScoredGroup:
    rollouts = [
        rollout_of(text, index=i, finish=finish.get(f"at_{i}", Finish.STOP)) for i, text in enumerate(texts)
    ]
    return asyncio.run(Rubric([(grader, 1.0)]).grade(group_of(rollouts, prompt)))


def by_length(request: Request, number: int) -> Reply:
    """A judge that prefers the longer answer."""
    first, second = len(request.fenced("first")), len(request.fenced("second"))
    better = "neither" if first == second else "first" if first > second else "second"
    return verdict(request, better=better)


def judged(server: JudgeServer, **options) -> WinRate:
    judge = {"url": server.url, "model": "m", "retries": 0}
    return WinRate(by="judge", options=judge, **options)


def test_a_reward_model_gives_mean_win_probabilities(folder):
    texts = ["7", "12345678", "7 apples", "7"]
    s = asyncio.run(RewardModel(path=folder).scores(prompt_of(), [rollout_of(text) for text in texts]))
    wins = [sum(1 / (1 + math.exp(-(s[i] - s[j]) / 2.0)) for j in range(4) if j != i) / 3 for i in range(4)]
    scored = compared(WinRate(options={"path": folder, "scale": 2.0}), texts)
    assert scored.values == pytest.approx(wins, abs=1e-6)
    assert scored.values.mean() == pytest.approx(0.5)
    assert scored.grades[0].parts == {"win-rate": scored.grades[0].value}


def test_a_judge_is_asked_in_both_orders_once_a_group():
    with JudgeServer(by_length) as server:
        scored = compared(judged(server), ["a", "aaa", "aa", "aa"])
        assert scored.values == pytest.approx([0.0, 1.0, 0.5, 0.5])
        asked = [(r.fenced("first"), r.fenced("second")) for r in server.requests]
        assert sorted(asked) == sorted({*asked}), "equal questions once, equal answers never"
        assert len(asked) == 6
        assert all((second, first) in asked for first, second in asked)


def test_a_judge_who_always_likes_the_first_gains_nothing():
    with JudgeServer(lambda r, n: verdict(r, better="first")) as server:
        assert compared(judged(server), ["a", "b", "c"]).values == pytest.approx([0.5] * 3)


def test_opponents_bound_the_questions():
    assert met(5, None) == [(i, j) for i in range(5) for j in range(i + 1, 5)]
    assert met(6, 1) == [(0, 1), (0, 5), (1, 2), (2, 3), (3, 4), (4, 5)]
    with JudgeServer(by_length) as server:
        scored = compared(judged(server, opponents=1), ["a" * n for n in range(1, 7)])
        assert len(server.requests) == 12
    assert scored.values == pytest.approx([0.0, 0.5, 0.5, 0.5, 0.5, 1.0])


def test_an_answer_that_spoils_its_comparisons_is_ungraded_and_costs_others_nothing():
    def confused(request: Request, number: int) -> Reply:
        if "!" in request.fenced("first") + request.fenced("second"):
            return completion("I cannot tell.")
        return by_length(request, number)

    with JudgeServer(confused) as server:
        scored = compared(judged(server), ["!", "aaa", "aa", "a"])
    assert [grade.value for grade in scored.grades] == [None, 1.0, 0.5, 0.0]
    assert scored.grades[0].state.value == "grader_failed"
    assert "1 comparisons failed" in scored.grades[1].detail


def test_an_answer_without_a_conclusion_loses_to_any_other(folder):
    opened = prompt_of(text="3+4=<think>")
    texts = ["never", "x</think>7", "y</think>8"]
    assert compared(WinRate(options={"path": folder}), texts, opened).values[0] == 0.0
    with JudgeServer(by_length) as server:
        assert compared(judged(server), texts, opened).values == pytest.approx([0.0, 0.75, 0.75])


def test_an_answer_that_is_too_long_for_the_model_is_left_out(folder):
    scored = compared(WinRate(options={"path": folder}), ["7" * 300, "7", "8"])
    assert [grade.state.value for grade in scored.grades] == ["not_gradable", "partial", "partial"]
    assert scored.values.sum() == pytest.approx(1.0)


def test_cut_answers_are_wrong_and_not_compared(folder):
    scored = compared(WinRate(options={"path": folder}), ["7", "8", "9"], at_2=Finish.LENGTH)
    assert scored.grades[2].value == 0.0
    assert scored.values[:2].sum() == pytest.approx(1.0)


def test_one_answer_alone_is_refused(folder):
    grader = WinRate(options={"path": folder})
    scored = compared(grader, ["7"])
    assert scored.grades[0].value is None
    with pytest.raises(RunError, match="no other finished answer"):
        Rubric([(grader, 1.0)]).check([scored])
    with pytest.raises(SettingError, match="cannot grade p#0/0 alone"):
        asyncio.run(grader(prompt_of(), rollout_of("7")))


def test_a_recipe_with_too_few_answers_is_refused(folder, tmp_path: Path):
    recipe = tmp_path / "r.toml"
    recipe.write_text(f"""
[model]
path = "embedded/sums"
[data]
task = "sums"
[algorithm]
name = "ppo"
[sampling]
samples_per_prompt = 1
[[reward.graders]]
name = "win-rate"
options = {{ by = "reward-model", options = {{ path = "{folder}" }} }}
""")
    with pytest.raises(SettingError, match=r"needs 2 of them, but sampling.samples_per_prompt is 1"):
        resolve([str(recipe)])
    resolve([str(recipe)], ["sampling.samples_per_prompt=2"])


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"by": "reward-modl"}, "by"),
        ({}, "path"),
        ({"options": {"pth": "x"}}, "did you mean 'path'"),
        ({"by": "judge", "options": {"url": "http://x/v1", "modl": "m"}}, "did you mean 'model'"),
        ({"options": {"path": "x"}, "opponents": 2}, "opponents"),
        ({"by": "judge", "options": {"url": "http://x/v1", "model": "m"}, "opponents": 0}, "opponents"),
    ],
)
def test_impossible_options_are_refused(options, word):
    with pytest.raises(SettingError, match=word):
        build_grader(GraderConfig(name="win-rate", options=options))
