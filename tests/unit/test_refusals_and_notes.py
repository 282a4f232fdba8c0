"""What a recipe is refused and how it is lifted; what is said about algorithms, in lists and at the start."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import inspect

import pytest

from trimtab.algorithms import ALGORITHMS, REFUSALS, build_algorithm, describe, notes, overview
from trimtab.errors import SettingError


def build(allow=(), samples=8, tokens=500, **table):
    return build_algorithm(table, max_new_tokens=tokens, samples_per_prompt=samples, allow=allow)


# ------------------------------------------------------------------------------------------- refusals
REFUSED = {
    "wide-sequence-clip": {"name": "gspo", "clip_low": 0.2, "clip_high": 0.2},
    "flat-sequence-gate": {"name": "sapo", "ratio": "sequence"},
    "sequence-token-mean": {"name": "gspo", "aggregate": "token-mean"},
    "token-advantages-sequence-ratio": {
        "name": "gspo",
        "advantage": "gae",
        "terms": {"value": {"coef": 0.5}},
    },
    "single-rollout-groups": {"name": "grpo", "samples": 1},
    "single-rollout-selection": {"name": "ppo", "selection": {}, "samples": 1},
    "k1-in-loss": {"name": "grpo", "terms": {"kl": {"estimator": "k1"}}},
    "kl-in-scaled-reward": {"name": "gspo", "kl_in_reward": {"coef": 0.1}},
    "untrained-critic": {"name": "ppo", "value_coef": 0.0},
}


def test_every_refusal_is_tested():
    assert set(REFUSED) == {refusal.name for refusal in REFUSALS}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_says_how_to_lift_it_and_can_be_lifted(name):
    table = REFUSED[name]
    with pytest.raises(SettingError) as caught:
        build(**table)
    assert f'algorithm.allow = ["{name}"]' in str(caught.value)
    assert build(allow=[name], **table).name == table["name"]


def test_lifting_what_is_unknown_or_does_not_apply_is_an_error():
    with pytest.raises(SettingError, match="unknown refusal 'wide-clip'"):
        build(allow=["wide-clip"], name="gspo")
    with pytest.raises(SettingError, match="does not run into"):
        build(allow=["wide-sequence-clip"], name="gspo")


@pytest.mark.parametrize("name", ALGORITHMS)
def test_no_preset_is_refused(name):
    assert build(name=name, samples=2).name == name


@pytest.mark.parametrize(
    "surrogate",
    [
        {"name": "clip", "high": 0.021},
        {"name": "dual-clip", "low": 3e-4, "high": 0.2},
        {"name": "sign-decoupled-clip"},
        {"name": "clipped-weight"},
    ],
    ids=lambda surrogate: surrogate["name"],
)
@pytest.mark.parametrize("name", ["gspo", "gspo_token"])
def test_no_trust_region_may_be_wide_on_a_sequence_ratio(name, surrogate):
    with pytest.raises(SettingError, match="wide-sequence-clip"):
        build(name=name, surrogate=surrogate)


def test_sound_neighbours_of_refused_compositions_are_built():
    assert build(name="gspo", clip_low=0.02, clip_high=0.02)
    assert build(name="gspo", aggregate="seq-mean-token-sum")
    assert build(name="sapo", ratio="sequence", surrogate={"tau_pos": 500.0, "tau_neg": 525.0})
    assert build(name="gspo", advantage={"scale": "none"}, kl_in_reward={"coef": 0.1})
    assert build(name="grpo", terms={"kl": {"estimator": "k1", "importance_weighted": True}})
    assert build(name="ppo", samples=1)


# ------------------------------------------------------------------------------------------ in words
def test_the_overview_is_read_off_the_real_algorithms():
    rows = {row.algorithm: row for row in overview()}
    assert list(rows) == list(ALGORITHMS)
    assert rows["gspo"].ratio == "sequence"
    assert rows["gspo"].trust_region == "clip 0.0003 / 0.0004"
    assert rows["sapo"].trust_region == "soft gate 1 / 1.05"
    assert rows["dr_grpo"].aggregation == "seq-mean-token-sum-norm (3000)"
    assert "dynamic sampling" in rows["dapo"].also
    text = str(overview())
    assert all(name in text for name in ALGORITHMS)
    assert len(text.splitlines()) == len(ALGORITHMS) + 1


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_explains_formula_source_and_neighbour(name):
    text = describe(name)
    assert "Source:" in text
    assert "Against its neighbour" in text
    assert "Pieces:" in text
    parameters = inspect.signature(ALGORITHMS[name]).parameters
    assert all(f"{parameter} = " in text.split("Arguments:")[1] for parameter in parameters)


def test_describe_an_unknown_name():
    with pytest.raises(SettingError, match="did you mean 'gspo'"):
        describe("gspoo")


def said(updates=1, **table) -> tuple[str, ...]:
    return notes(build(**table), max_new_tokens=500, updates_per_step=updates, epochs=1)


def test_what_a_run_says_at_its_start():
    assert "inactive" in said(name="gspo")[0]
    assert "can act in the other 7" in said(updates=8, name="gspo")[0]
    assert "carried" not in said(name="gspo")[0] + said(updates=8, name="gspo")[0]
    for updates in (1, 8):
        assert "in carried groups" in said(updates=updates, name="dapo")[0], "an older policy sampled them"
    assert "carried" not in said(name="dapo", selection={"carry": False})[0]
    assert "without a trust region" in said(updates=8, name="rloo")[0]
    assert any("0 at 400" in line and "-1 at 500" in line for line in said(name="dapo"))
    assert any("baseline" in line for line in said(name="dapo", overlong_filter=True))
    assert any("says nothing" in line for line in said(name="sapo"))
    assert any("tau_neg is below" in line for line in said(name="sapo", tau_neg=0.5))
    assert any("for ever" in line for line in said(name="sign_decoupled", bound="max"))
    assert not any("for ever" in line for line in said(name="sign_decoupled"))
