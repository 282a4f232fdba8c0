"""What the pages are given: spikes survive, histograms add up, characters stay whole, nothing is NaN."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from trimtab.dashboard import store as store_module
from trimtab.dashboard.curves import MOST_POINTS, curve
from trimtab.dashboard.heat import heat
from trimtab.dashboard.pieces import pieces
from trimtab.dashboard.prompts import bands
from trimtab.dashboard.region import bounds, gate_curve, span
from trimtab.dashboard.store import RunStore
from trimtab.dashboard.views import OF_A_RUN, view
from trimtab.errors import DataError, SettingError
from trimtab.objectives.surrogate import Clip, ClippedWeight, DualClip, SignDecoupledClip, SoftGate
from trimtab.record.history import Series
from trimtab.record.reader import RunReader

RECORDED = Path(__file__).parents[1] / "fixtures" / "dashboard" / "recorded"


@pytest.fixture
def runs(tmp_path: Path) -> RunStore:
    shutil.copytree(RECORDED, tmp_path / "a")
    shutil.copytree(RECORDED, tmp_path / "sweep" / "b")
    return RunStore(tmp_path)


def test_few_points_are_all_told_as_they_are():
    told = curve(Series(np.arange(5), np.arange(5) / 4.0), points=10)
    assert told == {"steps": [0, 1, 2, 3, 4], "values": [0.0, 0.25, 0.5, 0.75, 1.0]}


def test_a_single_spike_among_100_000_steps_survives():
    values = np.zeros(100_000)
    values[77_777], values[12_345] = 9.0, -4.0
    told = curve(Series(np.arange(100_000), values), points=500)
    assert len(told["steps"]) == len(told["values"]) == 500
    assert max(told["high"]) == 9.0
    assert min(told["low"]) == -4.0
    assert told["steps"][-1] == 99_999
    assert sum(told["values"]) * 200 == pytest.approx(5.0)


def test_no_more_points_than_a_screen_has_however_many_are_asked_for():
    told = curve(Series(np.arange(50_000), np.ones(50_000)), points=10**9)
    assert len(told["steps"]) == MOST_POINTS


def test_only_what_came_after_a_step_is_told():
    told = curve(Series(np.array([3, 5, 8]), np.array([1.0, 2.0, 3.0])), points=10, after=5)
    assert told == {"steps": [8], "values": [3.0]}


def test_heat_columns_are_shares_and_merge_what_they_join():
    reader = RunReader(RECORDED)
    every, joined = (heat(reader, "length/wrong", columns) for columns in (100, 3))
    assert every["columns"] == [[step, step] for step in range(8)]
    assert joined["columns"] == [[0, 2], [3, 5], [6, 7]]
    for told in (every, joined):
        for counts, outside in zip(told["counts"], told["outside"], strict=True):
            assert sum(counts) + sum(outside) == pytest.approx(1.0, abs=2e-3)
    counts = np.stack([reader.distributions(step)["length/wrong"].counts for step in range(8)])
    whole = counts[:3].sum(axis=0)
    filled = counts.sum(axis=0).nonzero()[0]
    assert len(joined["counts"][0]) == filled[-1] + 1 - filled[0]
    assert joined["counts"][0] == pytest.approx(whole[filled[0] : filled[-1] + 1] / whole.sum(), abs=1e-3)
    assert joined["quantiles"][0][0] <= joined["quantiles"][0][1] <= joined["quantiles"][0][2]


def test_gates_of_exactly_0_and_1_have_rows_of_their_own():
    told = heat(RunReader(RECORDED), "gate/negative", 100)
    assert len(told["edges"]) == 13
    assert told["edges"][:2] == pytest.approx([-0.005, 0.005])
    assert told["edges"][-2:] == pytest.approx([0.995, 1.005])


def test_a_histogram_that_the_run_lacks_is_empty():
    assert heat(RunReader(RECORDED), "ratio/nothing", 10)["columns"] == []


def _bytes_decoder(tokens: list[bytes]):
    return lambda ids: b"".join(tokens[i] for i in ids).decode("utf-8", "replace")


@pytest.mark.parametrize("text", ["数学 is 楽しい", "ok 👍🏽 and 👩‍🔬!", "naïve", "plain", ""])
def test_characters_split_over_single_bytes_stay_whole(text: str):
    raw = text.encode()
    decode = _bytes_decoder([bytes([value]) for value in range(256)])
    found = pieces(list(raw), decode)
    assert "".join(piece.text for piece in found) == text
    assert not any("\ufffd" in piece.text for piece in found)
    assert [piece.start for piece in found[1:]] == [piece.stop for piece in found[:-1]]


def test_a_broken_character_ends_and_does_not_swallow_the_rest():
    decode = _bytes_decoder([bytes([value]) for value in range(256)])
    found = pieces([0xE6, *[0x41] * 40], decode)
    assert found[-1].stop == 41
    assert len(found) > 20


def test_bands_count_every_prompt_once():
    told = bands([0.0, 0.25, 0.5, 0.75, 1.0, 1.0])
    assert [band["prompts"] for band in told] == [1, 2, 1, 2]


def test_prompts_are_counted_over_steps(runs: RunStore):
    told = view(runs, "prompts", {"run": "a"})
    reader = runs.open("a").reader
    groups = {(step, row.group): row.kept for step in range(8) for row in reader.rollouts(step)}
    assert told["draws"] == len(groups) == sum(prompt["draws"] for prompt in told["prompts"])
    assert told["kept"] == sum(groups.values())
    assert told["span"] == [0, 7]
    assert sum(band["prompts"] for band in told["bands"]) <= told["total"] == len(told["prompts"])


def test_every_view_is_strict_json(runs: RunStore):
    rows = [
        row
        for group in view(runs, "rollouts", {"run": "a", "step": "7"})["groups"]
        for row in group["rollouts"]
    ]
    key = next(row["key"] for row in rows if row["has_tokens"])
    query = {"run": "a", "step": "7", "rollout": key, "key": "ratio/token", "keys": "reward/mean"}
    for name in OF_A_RUN:
        json.dumps(view(runs, name, query), allow_nan=False)
    for name, more in (("runs", {}), ("algorithms", {}), ("differences", {"runs": '["a", "sweep/b"]'})):
        json.dumps(view(runs, name, more), allow_nan=False)


def test_tokens_have_a_value_for_each_id_and_another_algorithm_beside(runs: RunStore):
    rows = [
        row
        for group in view(runs, "rollouts", {"run": "a", "step": "7"})["groups"]
        for row in group["rollouts"]
    ]
    row = next(row for row in rows if row["has_tokens"] and row["update"] is not None)
    told = view(runs, "tokens", {"run": "a", "step": "7", "rollout": row["key"], "as": "sapo"})
    assert "".join(piece[0] for piece in told["pieces"]).startswith(told["text"][:5])
    assert {len(column) for column in told["columns"].values()} == {row["length"]}
    assert {len(column) for column in told["other"]["columns"].values()} == {row["length"]}
    assert told["other"]["algorithm"] == "sapo"
    assert all(gate > 0.0 for gate in told["other"]["columns"]["gates"] if gate is not None)


def test_what_is_not_there_is_said(runs: RunStore):
    for name, query, wrong in (
        ("curve", {"run": "a"}, SettingError),
        ("curves", {"run": "a"}, SettingError),
        ("rollouts", {"run": "a", "step": "x"}, SettingError),
        ("rollouts", {"run": "a", "step": "99"}, DataError),
        ("run", {"run": "nobody"}, DataError),
        ("tokens", {"run": "a", "step": "7", "rollout": "nobody"}, DataError),
        ("tokens", {"run": "a", "step": "7", "rollout": "nobody", "as": "gpro"}, DataError),
    ):
        with pytest.raises(wrong):
            view(runs, name, query)


def test_differences_name_what_differs_only(runs: RunStore):
    path = runs.root / "sweep" / "b" / "run.json"
    stored = json.loads(path.read_text())
    stored["run"]["run"]["seed"] = 41
    path.write_text(json.dumps(stored))
    told = view(runs, "differences", {"runs": "a,sweep/b"})
    assert list(told["differences"]) == ["run.seed"]
    assert told["differences"]["run.seed"][1] == 41


def test_runs_are_named_by_their_path_and_nothing_outside_is_opened(runs: RunStore):
    assert sorted(runs.ids()) == ["a", "sweep/b"]
    assert RunStore(RECORDED).ids() == ["recorded"]
    for name in ("..", "../a", "a/..", "/", "", "a/../a", str(RECORDED)):
        with pytest.raises(DataError):
            runs.open(name)


def test_memory_is_bounded_and_the_run_used_longest_ago_is_closed(
    runs: RunStore, monkeypatch: pytest.MonkeyPatch
):
    first = runs.open("a")
    assert runs.open("a") is first
    monkeypatch.setattr(store_module, "MOST_VALUES", first.values + 1)
    runs.open("sweep/b")
    assert runs.open("a") is not first
    kept = runs.open("a")
    for step in range(8):
        kept.rollouts(step)
    assert len(kept._rollouts) == store_module.ROLLOUT_FILES


def test_gates_break_exactly_at_the_bounds():
    for surrogate in (Clip(0.2, 0.28), Clip(3e-4, 4e-4), DualClip(), SignDecoupledClip()):
        told = gate_curve(surrogate)
        ratio = np.array(told["ratio"])
        for at, label in bounds(surrogate):
            side = told["positive" if "A > 0" in label else "negative"]
            below, above = (side[int(np.abs(ratio - at * (1 + far)).argmin())] for far in (-1e-9, 1e-9))
            assert (below == 0.0) != (above == 0.0), (surrogate, label)
    assert bounds(SoftGate()) == []
    assert [at for at, _ in bounds(ClippedWeight(1.0, 4.0))] == [5.0]
    low, high = span(bounds(Clip(3e-4, 4e-4)))
    assert (low, high) == pytest.approx((1 - 1.2e-3, 1 + 1.2e-3))
