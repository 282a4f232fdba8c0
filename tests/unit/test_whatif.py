"""The same tokens under another algorithm: gates, weights and shares, on hand-made records."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
import math
import time

import numpy as np
import pytest
import torch

from tests.recorded import recorded
from trimtab.algorithms import ALGORITHMS, build_algorithm
from trimtab.doctor.whatif import reweigh
from trimtab.doctor.whatif_recorded import as_recorded, tally
from trimtab.errors import DataError, SettingError
from trimtab.types import Finish

FAR = math.log(3.0)


def algorithm(name: str, **arguments):
    return build_algorithm({"name": name, **arguments}, max_new_tokens=64, samples_per_prompt=4)


def wild_group():
    """Four answers of twelve tokens; two tokens of the first, right one are three times as likely now."""
    wild = [0.0] * 12
    wild[4] = wild[9] = FAR
    return [recorded(0, 1.0, wild), *(recorded(i, 0.0, [0.0] * 12) for i in (1, 2, 3))]


def test_grpo_cuts_the_wild_tokens_gspo_the_whole_answer_sapo_damps_only_them():
    rows = wild_group()
    grpo, gspo, sapo = (reweigh(rows, algorithm(name)).rollouts for name in ("grpo", "gspo", "sapo"))
    first = "p#0/0"
    assert np.flatnonzero(grpo[first].cut_T).tolist() == [4, 9]
    assert not grpo[first].damped_T.any()
    assert not grpo[first].cut_whole
    assert gspo[first].cut_whole
    assert gspo[first].share == 0.0
    assert not sapo[first].cut_T.any()
    assert np.flatnonzero(sapo[first].damped_T).tolist() == [4, 9]
    assert sapo[first].gate_T[4] == pytest.approx(1.0 / math.cosh(1.0) ** 2, abs=1e-6)
    for found in (grpo, gspo, sapo):
        assert all(not (found[f"p#0/{i}"].cut_T | found[f"p#0/{i}"].damped_T).any() for i in (1, 2, 3))


def test_the_counts_of_the_example():
    rows = wild_group()
    counts = {name: tally(reweigh(rows, algorithm(name))) for name in ("grpo", "gspo", "sapo")}
    assert {name: (t.cut, t.damped, t.answers_cut, t.answers_touched) for name, t in counts.items()} == {
        "grpo": (2, 0, 0, 1),
        "gspo": (12, 0, 1, 1),
        "sapo": (0, 2, 0, 1),
    }
    assert counts["grpo"].moved == 48
    assert counts["grpo"].mass == pytest.approx(1 - 2 * 1.5 / (12 * 1.5 + 36 * 0.5))
    assert counts["gspo"].positive == 0.0


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name != "ppo"])
def test_shares_are_the_product_of_weight_gate_ratio_and_advantage(name: str):
    rng = np.random.default_rng(5)
    rows = [
        recorded(i, float(i % 3 == 0), rng.normal(0, 0.3, size=int(n))) for i, n in enumerate([5, 9, 14, 7])
    ]
    found = reweigh(rows, algorithm(name)).rollouts.values()
    products = [np.abs(p.weight_T * p.gate_T * p.ratio_T * p.advantages_T) for p in found]
    total = sum(float(product.sum()) for product in products)
    assert total > 0 or all(part.cut_whole for part in found)
    for part, product in zip(found, products, strict=True):
        np.testing.assert_allclose(part.gradient_share_T, product / (total or 1.0), atol=1e-6)


def test_weights_are_of_the_whole_update_though_tokens_of_a_part_are_kept():
    rows = [recorded(i, float(i == 0), [0.1] * (4 + i), group=f"p#{g}") for g in (0, 1) for i in range(4)]
    part = [r if r.group == "p#0" else dataclasses.replace(r, tokens=None) for r in rows]
    for name in ("grpo", "dapo", "gspo", "dr_grpo"):
        whole, seen = reweigh(rows, algorithm(name)), reweigh(part, algorithm(name))
        assert seen.rollouts.keys() == {f"p#0/{i}" for i in range(4)}
        assert (seen.batch_rollouts, seen.batch_tokens, seen.tokens) == (8, 44, 22)
        for key, found in seen.rollouts.items():
            np.testing.assert_array_equal(found.weight_T, whole.rollouts[key].weight_T)
            np.testing.assert_array_equal(found.advantages_T, whole.rollouts[key].advantages_T)
        assert sum(found.share for found in seen.rollouts.values()) == pytest.approx(1.0)


def test_each_update_has_weights_and_shares_of_its_own():
    rows = [recorded(i, float(i == 0), [0.1] * 6, group=f"p#{g}", update=g) for g in (0, 1) for i in range(4)]
    found = reweigh(rows, algorithm("grpo"))
    for update in (0, 1):
        parts = [part for part in found.rollouts.values() if part.update == update]
        assert sum(part.weight_T.sum() for part in parts) == pytest.approx(1.0)
        assert sum(part.share for part in parts) == pytest.approx(1.0)


def test_advantages_are_made_anew_unless_the_run_made_them_in_the_same_way():
    rows = [recorded(i, float(i == 0), [0.1] * 6, advantage=42.0) for i in range(4)]
    grpo, rloo = algorithm("grpo"), algorithm("rloo")
    anew = reweigh(rows, rloo, own=grpo)
    assert anew.advantages == "recomputed"
    assert anew.rollouts["p#0/0"].advantages_T[0] == pytest.approx(1.0)
    assert anew.rollouts["p#0/1"].advantages_T[0] == pytest.approx(-1 / 3)
    kept = reweigh(rows, algorithm("sapo"), own=grpo)
    assert kept.advantages == "recorded"
    assert kept.rollouts["p#0/0"].advantages_T[0] == 42.0


def test_a_length_penalty_of_the_other_algorithm_counts():
    rows = [recorded(i, 1.0, [0.0] * n) for i, n in enumerate([10, 60])]
    plain = reweigh(rows, algorithm("grpo")).rollouts["p#0/1"]
    dapo = reweigh(rows, algorithm("dapo")).rollouts["p#0/1"]
    assert (plain.advantages_T == 0).all()
    assert (dapo.advantages_T < 0).all()


def test_overlong_filtering_takes_the_tokens_of_cut_off_answers():
    rows = [recorded(0, 1.0, [0.1] * 4), recorded(1, 0.0, [0.1] * 6, finish=Finish.LENGTH)]
    found = reweigh(rows, algorithm("grpo", overlong_filter=True)).rollouts
    assert not found["p#0/1"].trained_T.any()
    assert found["p#0/0"].weight_T.sum() == pytest.approx(1.0)
    assert found["p#0/0"].advantages_T[0] > 0, "it still counts in the baseline"


def test_tokens_that_the_run_did_not_look_at_are_counted_and_left_out():
    rows = [recorded(i, 1.0, [math.nan] * n) for i, n in enumerate([10, 60])]
    found = reweigh(rows, algorithm("dapo"))
    assert found.unseen == 70
    assert np.isnan(found.rollouts["p#0/0"].gate_T).all()
    assert reweigh(rows, algorithm("grpo")).unseen == 0


def test_what_cannot_be_made_anew_is_refused_with_the_reason():
    rows = wild_group()
    with pytest.raises(SettingError, match="come from a critic"):
        reweigh(rows, algorithm("ppo"), own=algorithm("grpo"))
    with pytest.raises(DataError, match="no rollout of this step has values per token"):
        reweigh([dataclasses.replace(row, tokens=None) for row in rows], algorithm("grpo"))
    with pytest.raises(DataError, match="record.tokens"):
        as_recorded(rows, "grpo")


def test_rollouts_that_were_not_in_the_batch_change_nothing():
    rows = wild_group()
    others = [
        dataclasses.replace(recorded(4, 0.0, [0.0] * 5), value=None, grade=None),
        dataclasses.replace(recorded(0, 1.0, [0.0] * 5, group="q#0"), kept=False, update=None),
    ]
    alone, among = (reweigh(r, algorithm("grpo")).rollouts["p#0/0"] for r in (rows, [*rows, *others]))
    np.testing.assert_array_equal(alone.weight_T, among.weight_T)
    np.testing.assert_array_equal(alone.advantages_T, among.advantages_T)


def test_it_is_fast_enough_for_a_switch_in_a_page():
    rng = np.random.default_rng(0)
    rows = [
        recorded(i % 8, float(i % 2), rng.normal(0, 0.1, size=125), group=f"p#{i // 8}") for i in range(64)
    ]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        reweigh(rows, algorithm("sapo"))
        started = time.perf_counter()
        found = reweigh(rows, algorithm("gspo"))
        spent = time.perf_counter() - started
    finally:
        torch.set_num_threads(threads)
    assert found.tokens == 8000
    assert spent < 0.5
