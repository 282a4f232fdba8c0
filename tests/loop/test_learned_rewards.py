"""Runs whose rewards come from a reward model, from comparisons, and from a judge on this machine."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path

import pytest

from tests.classifiers import write_classifier
from tests.judge_server import JudgeServer, Reply, Request, verdict
from tests.tiny_runs import tiny_run, train_silently
from trimtab.errors import DataError, RunError, SettingError
from trimtab.record.reader import RunReader


@pytest.fixture(scope="module")
def scorer(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Options of a random reward model over the characters that the policy writes."""
    return {"path": str(write_classifier(tmp_path_factory.mktemp("scorer") / "rm"))}


def run_of(model: Path, graders: list[dict], **sections):
    return tiny_run(
        model, run={"steps": 2, "seed": 3}, reward={"graders": graders, "truncated": "grade"}, **sections
    )


def test_a_run_learns_from_a_reward_model_and_repeats_exactly(model, scorer, tmp_path):
    graders = [
        {"name": "reward-model", "options": scorer},
        {"name": "win-rate", "weight": 0.5, "options": {"options": scorer}},
    ]
    for name in ("one", "two"):
        train_silently(run_of(model, graders), tmp_path / name)
    one, two = (RunReader(tmp_path / name) for name in ("one", "two"))
    rows = one.rollouts(1)
    assert len(rows) == 16
    values = [row.parts["reward-model"] for row in rows]
    assert all(0.0 < value < 1.0 for value in values)
    assert len(set(values)) > 4
    ours = [row.parts["win-rate"] for row in rows[:4]]
    assert sum(ours) / 4 == pytest.approx(0.5)
    assert [(row.text, row.parts) for row in rows] == [(row.text, row.parts) for row in two.rollouts(1)]


def test_a_run_asks_a_judge_and_stops_where_it_gives_no_verdicts(model, tmp_path):
    def judge(request: Request, number: int) -> Reply:
        return verdict(request, grade=sum(map(str.isdigit, request.fenced("answer"))) % 11)

    def grader(server: JudgeServer) -> list[dict]:
        return [{"name": "judge", "options": {"url": server.url, "model": "m", "retries": 0}}]

    with JudgeServer(judge) as server:
        train_silently(run_of(model, grader(server), data={"held_out": 0}), tmp_path / "run")
        assert 0 < len(server.requests) <= 32
    with (
        JudgeServer(lambda r, n: Reply(503, "away")) as server,
        pytest.raises(RunError, match="no reply in 1 attempts; the last: away"),
    ):
        train_silently(run_of(model, grader(server), data={"held_out": 0}), tmp_path / "stopped")


def test_what_is_missing_stops_before_the_first_answer(model, tmp_path, monkeypatch):
    monkeypatch.delenv("TRIMTAB_NO_KEY", raising=False)
    judge = {"url": "http://127.0.0.1:9/v1", "model": "m", "api_key_env": "TRIMTAB_NO_KEY"}
    for name, options, fault in (
        ("reward-model", {"path": str(tmp_path / "none")}, DataError),
        ("win-rate", {"options": {"path": str(tmp_path / "none")}}, DataError),
        ("judge", judge, SettingError),
    ):
        with pytest.raises(fault, match="none|TRIMTAB_NO_KEY"):
            train_silently(run_of(model, [{"name": name, "options": options}]), tmp_path / name)
        assert not list((tmp_path / name).glob("rollouts/*"))
