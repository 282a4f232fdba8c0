"""A long record is shown from some of its lines until all are read, and no look keeps another waiting."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import tempfile
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.dashboard import store as store_module
from trimtab.dashboard import views
from trimtab.dashboard.store import RunStore
from trimtab.dashboard.views import view
from trimtab.record.jsonl import JsonlTail
from trimtab.record.reader import RunReader

STEPS = 3000


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunStore:
    folder = tmp_path / "long"
    folder.mkdir()
    (folder / "run.json").write_text(
        json.dumps({"schema": 1, "name": "long", "run": {"run": {"steps": STEPS}}})
    )
    lines = [{"step": n, "time": 1.0 + n, "metrics": {"reward/mean": n / STEPS}} for n in range(STEPS)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    monkeypatch.setattr(store_module, "LONG_BYTES", 1000)
    return RunStore(tmp_path)


def reward(runs: RunStore) -> dict:
    return view(runs, "curves", {"run": "long", "keys": "reward/mean", "points": "4000"})["curves"][
        "reward/mean"
    ]


def test_a_long_record_is_first_shown_from_some_lines_that_reach_its_end(runs: RunStore):
    told = view(runs, "run", {"run": "long"})
    assert told["whole"] is False
    assert told["step"] == STEPS - 1
    shown = reward(runs)
    assert 300 <= len(shown["steps"]) <= store_module.GLIMPSE + 1
    assert all(
        value == pytest.approx(step / STEPS)
        for step, value in zip(shown["steps"], shown["values"], strict=True)
    )


def test_soon_all_of_it_is_there_without_being_asked(runs: RunStore, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(store_module, "HEAD_START", 0.0)
    view(runs, "run", {"run": "long"})
    deadline = time.monotonic() + 20
    while not view(runs, "run", {"run": "long"})["whole"]:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert reward(runs)["steps"] == list(range(STEPS))


def test_a_view_that_needs_all_waits_for_all(runs: RunStore, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(store_module, "HEAD_START", 600.0)
    assert view(runs, "run", {"run": "long"})["whole"] is False
    view(runs, "findings", {"run": "long"})
    assert view(runs, "run", {"run": "long"})["whole"] is True
    assert len(reward(runs)["steps"]) == STEPS


def test_a_short_record_is_whole_at_once(runs: RunStore, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(store_module, "LONG_BYTES", 1 << 30)
    assert view(runs, "run", {"run": "long"})["whole"] is True


def test_while_the_doctor_looks_other_views_answer(runs: RunStore, monkeypatch: pytest.MonkeyPatch):
    inside, free = threading.Event(), threading.Event()

    def slow(run: object, query: object) -> dict:
        inside.set()
        assert free.wait(20)
        return {}

    monkeypatch.setitem(views.OF_A_RUN, "findings", slow)
    monkeypatch.setattr(store_module, "FRESH_SECONDS", 0.0)
    looking = threading.Thread(target=view, args=(runs, "findings", {"run": "long"}))
    looking.start()
    try:
        assert inside.wait(20)
        assert len(reward(runs)["steps"]) == STEPS
    finally:
        free.set()
        looking.join()


@given(st.lists(st.integers(0, 300), max_size=60), st.integers(1, 40), st.booleans())
def test_spread_gives_whole_lines_in_order_and_always_the_last(sizes: list[int], count: int, torn: bool):
    lines = [b"%d:" % place + b"x" * size for place, size in enumerate(sizes)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lines.jsonl"
        path.write_bytes(b"".join(line + b"\n" for line in lines) + (b"torn" if torn else b""))
        tail = JsonlTail(path)
        found = list(tail.spread(count))
    places = [int(line.text.split(b":")[0]) for line in found]
    assert [line.text for line in found] == [lines[place] for place in places]
    assert places == sorted(set(places))
    assert len(found) <= count + 1
    assert places[-1:] == [len(lines) - 1][: len(lines)]
    assert tail.offset == 0


def test_a_glimpse_of_a_resumed_run_forgets_the_branch_that_was_given_up(tmp_path: Path):
    folder = tmp_path / "again"
    folder.mkdir()
    (folder / "run.json").write_text('{"schema": 1}')
    steps = [*range(100), *range(40, 80)]
    with (folder / "metrics.jsonl").open("w") as file:
        for place, step in enumerate(steps):
            file.write(json.dumps({"step": step, "time": float(place), "metrics": {"a/b": place}}) + "\n")
    series = RunReader(folder, glimpse=1000).history.series("a/b")
    assert series.steps.tolist() == list(range(80))
    assert series.values.tolist() == [*range(40), *range(100, 140)]
