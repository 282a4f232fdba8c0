"""The [algorithm] table: presets, their numbers, overrides, free composition, and mistakes in it."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
import pickle

import pytest

from trimtab.advantages.gae import GAE
from trimtab.advantages.group import GroupRelative, LeaveOneOut
from trimtab.algorithms import ALGORITHMS, build_algorithm, spelled_out
from trimtab.data.selection import Selection
from trimtab.errors import SettingError
from trimtab.objectives.aggregate import (
    SeqMeanTokenSumNorm,
    prompt_mean,
    seq_mean_token_mean,
    seq_mean_token_sum,
    token_mean,
)
from trimtab.objectives.policy import PolicyGradient
from trimtab.objectives.ratio import sequence_ratio, sequence_token_ratio, token_ratio
from trimtab.objectives.regularizers import EntropyBonus, EntropyTarget, ReferenceKL
from trimtab.objectives.surrogate import Clip, ClippedWeight, DualClip, SignDecoupledClip, SoftGate, Unclipped
from trimtab.objectives.value import ClippedValueLoss
from trimtab.rewards.kl import KLInReward
from trimtab.rewards.shaping import HardOverlong, RewardScale, SoftOverlong


def build(allow=(), samples=8, tokens=500, **table):
    return build_algorithm(table, max_new_tokens=tokens, samples_per_prompt=samples, allow=allow)


def policy(algorithm) -> PolicyGradient:
    return algorithm.objective.terms[0][1]


CUSTOM = {
    "name": "custom",
    "advantage": "group",
    "ratio": "token",
    "surrogate": {"name": "clip", "low": 0.2, "high": 0.28},
    "aggregate": "token-mean",
}


# -------------------------------------------------------------------------------------- the presets
@pytest.mark.parametrize(
    ("name", "advantage", "ratio", "surrogate", "aggregate"),
    [
        ("ppo", GAE(1.0, 0.95, whiten=True), token_ratio, Clip(0.2, 0.2), token_mean),
        ("grpo", GroupRelative(), token_ratio, Clip(0.2, 0.2), seq_mean_token_mean),
        ("dr_grpo", GroupRelative("none"), token_ratio, Clip(0.2, 0.2), SeqMeanTokenSumNorm(500)),
        ("dapo", GroupRelative(), token_ratio, Clip(0.2, 0.28), token_mean),
        ("gspo", GroupRelative(), sequence_ratio, Clip(3e-4, 4e-4), seq_mean_token_mean),
        ("gspo_token", GroupRelative(), sequence_token_ratio, Clip(3e-4, 4e-4), seq_mean_token_mean),
        ("sapo", GroupRelative(), token_ratio, SoftGate(1.0, 1.05), seq_mean_token_mean),
        (
            "sign_decoupled",
            GroupRelative(),
            token_ratio,
            SignDecoupledClip(0.2, 0.05, 0.5, "min"),
            token_mean,
        ),
        ("cispo", GroupRelative(), token_ratio, ClippedWeight(1.0, 4.0), token_mean),
        ("rloo", LeaveOneOut(), token_ratio, Unclipped(), seq_mean_token_sum),
    ],
)
def test_presets_carry_the_papers_numbers(name, advantage, ratio, surrogate, aggregate):
    algorithm = build(name=name)
    assert algorithm.name == name
    assert algorithm.advantage == advantage
    assert policy(algorithm) == PolicyGradient(ratio, surrogate)
    assert algorithm.objective.aggregate == aggregate


def test_what_the_presets_have_besides():
    dapo = build(name="dapo")
    assert dapo.reward == RewardScale(1.0, -1.0)
    assert dapo.selection == Selection()
    assert dapo.shaping == SoftOverlong(100, 500)
    assert not dapo.overlong_filter
    assert dapo.needs == {"old_logprobs_T"}
    assert ALGORITHMS["dapo"]().shaping == SoftOverlong(4096, 20480)
    assert build(name="dapo", overlong_buffer=50).shaping == SoftOverlong(50, 500)

    grpo = build(name="grpo")
    assert grpo.objective.terms[1] == (0.04, ReferenceKL("k3"))
    assert grpo.needs == {"old_logprobs_T", "ref_logprobs_T"}
    assert build(name="grpo", kl_coef=0).needs == {"old_logprobs_T"}
    assert grpo.selection is grpo.shaping is None

    ppo = build(name="ppo")
    assert ppo.objective.terms[1] == (0.1, ClippedValueLoss(0.2))
    assert ppo.kl_in_reward == KLInReward(0.02, "k1")
    assert ppo.needs == {"old_logprobs_T", "ref_logprobs_T", "values_T"}
    assert build(name="ppo", kl_coef=0.0).needs == {"old_logprobs_T", "values_T"}
    assert build(name="ppo", value_clip="none").objective.terms[1][1] == ClippedValueLoss(None)
    assert build(name="ppo", entropy_coef=0.01).objective.terms[2] == (0.01, EntropyBonus())
    for name in ("dr_grpo", "gspo", "sapo", "rloo", "cispo"):
        assert build(name=name).needs == {"old_logprobs_T"}


# ----------------------------------------------------------------------------------- natural changes
def test_any_piece_of_a_preset_can_be_replaced_or_changed():
    assert policy(build(name="dapo", clip_high=0.3)).surrogate == Clip(0.2, 0.3)
    assert build(name="dapo", aggregate="prompt-mean").objective.aggregate is prompt_mean
    assert build(name="dapo", overlong_filter=True).overlong_filter
    assert build(name="dapo", selection="none").selection is None
    assert build(name="dapo", selection={"low": 0.1, "high": 0.9}).selection == Selection(low=0.1, high=0.9)
    assert build(name="grpo", selection={}).selection == Selection()
    assert build(name="dapo", shaping="none").shaping is None
    assert build(name="grpo", shaping="soft-overlong").shaping == SoftOverlong(100, 500)
    assert build(name="grpo", shaping={"name": "soft-overlong", "maximum": 400}).shaping == SoftOverlong(
        80, 400
    )
    assert build(name="grpo", shaping={"name": "hard-overlong", "penalty": 0.5}).shaping == HardOverlong(
        0.5, 500
    )
    assert build(name="dapo", shaping={"buffer": 7}).shaping == SoftOverlong(7, 500)
    assert build(name="dapo", reward={"wrong": 0}).reward == RewardScale(1.0, 0.0)
    assert build(name="grpo", advantage={"scale": "none"}).advantage == GroupRelative("none")
    assert build(name="grpo", advantage="leave-one-out").advantage == LeaveOneOut()
    dual = {"name": "dual-clip", "low": 0.2, "high": 0.2, "cap": 3.0}
    assert policy(build(name="grpo", surrogate=dual)).surrogate == DualClip(0.2, 0.2, 3.0)
    assert policy(build(name="grpo", surrogate={"high": 0.3})).surrogate == Clip(0.2, 0.3)
    norm = build(name="grpo", aggregate={"name": "seq-mean-token-sum-norm", "horizon": 64})
    assert norm.objective.aggregate == SeqMeanTokenSumNorm(64)
    assert build(name="dr_grpo", aggregate={"horizon": 64}).objective.aggregate == SeqMeanTokenSumNorm(64)


def test_terms_can_be_added_changed_and_left_out():
    assert build(name="grpo", terms={"kl": "none"}) == build(name="grpo", kl_coef=0.0)
    assert build(name="grpo", terms={"kl": {"coef": 0.0}}) == build(name="grpo", kl_coef=0.0)
    changed = build(name="grpo", terms={"kl": {"estimator": "k2"}})
    assert changed.objective.terms[1] == (0.04, ReferenceKL("k2"))
    added = build(
        name="dapo", terms={"kl": {"coef": 0.001, "importance_weighted": True}, "entropy": {"coef": 0.01}}
    )
    assert added.objective.terms[1:] == ((0.001, ReferenceKL("k3", True)), (0.01, EntropyBonus()))


def test_an_entropy_target_brings_a_bonus_to_steer():
    algorithm = build(name="dapo", entropy_target={"target": 0.3})
    assert algorithm.entropy_target == EntropyTarget(target=0.3)
    assert algorithm.objective.terms[-1] == (0.0, EntropyBonus())
    assert not algorithm.objective.entropy_grad
    assert algorithm.objective.with_coefficient("entropy", 0.01).entropy_grad


def test_custom_is_spelled_from_nothing():
    algorithm = build(**CUSTOM)
    assert algorithm.name == "custom"
    assert dataclasses.replace(algorithm, name="x") == dataclasses.replace(
        build(name="dapo", shaping="none", selection="none", reward={"wrong": 0.0}), name="x"
    )
    for key in ("advantage", "ratio", "surrogate", "aggregate"):
        with pytest.raises(SettingError, match=rf"needs algorithm\.{key}"):
            build(**{k: v for k, v in CUSTOM.items() if k != key})
    critic = {
        **CUSTOM,
        "advantage": {"name": "gae", "lam": 1},
        "terms": {"value": {"coef": 0.5, "clip": "none"}},
    }
    algorithm = build(samples=1, **critic)
    assert algorithm.advantage == GAE(1.0, 1.0)
    assert algorithm.objective.terms[1] == (0.5, ClippedValueLoss(None))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_preset_can_be_spelled_out_and_built_again(name):
    algorithm = build(name=name)
    again = build(**spelled_out(algorithm))
    assert dataclasses.replace(again, name=name) == algorithm
    assert pickle.loads(pickle.dumps(algorithm)) == algorithm


# --------------------------------------------------------------------------------------------- errors
@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "algorithm.name is missing"),
        ({"name": "dappo"}, "unknown algorithm 'dappo' (did you mean 'dapo'?)"),
        (
            {"name": "dapo", "clip_hihg": 0.3},
            "dapo has no key algorithm.clip_hihg (did you mean 'clip_high'?)",
        ),
        ({"name": "dapo", "agregate": "token-mean"}, "(did you mean 'aggregate'?)"),
        ({"name": "dapo", "max_new_tokens": 9}, "dapo has no key algorithm.max_new_tokens"),
        ({"name": "gspo", "kl_coef": 0.1}, "gspo has no key algorithm.kl_coef"),
        ({**CUSTOM, "clip_high": 0.3}, "unknown key algorithm.clip_high"),
        ({"name": "dapo", "clip_high": "0.3"}, "algorithm.clip_high must be a number, got '0.3'"),
        ({"name": "dapo", "clip_high": True}, "algorithm.clip_high must be a number, got True"),
        ({"name": "dapo", "overlong_buffer": 1.5}, "algorithm.overlong_buffer must be a whole number"),
        ({"name": "dapo", "overlong_filter": 1}, "algorithm.overlong_filter must be true or false"),
        ({"name": "dapo", "clip_high": -1}, "clip needs high >= 0"),
        ({"name": "sapo", "tau_pos": 0}, "soft gate needs tau_pos > 0"),
        ({"name": "sapo", "tau_neg": -1.0}, "soft gate needs tau_neg > 0"),
        ({"name": "sign_decoupled", "bound": "mean"}, "algorithm.bound must be one of min, max"),
        (
            {"name": "grpo", "surrogate": {"name": "klip"}},
            "algorithm.surrogate needs a known name, got 'klip'",
        ),
        ({"name": "grpo", "surrogate": {"hihg": 1.0}}, "unknown key algorithm.surrogate.hihg"),
        ({"name": "grpo", "surrogate": {"name": "clip", "hihg": 1.0}}, "(did you mean 'high'?)"),
        ({"name": "grpo", "surrogate": "none"}, "algorithm.surrogate needs a known name, got 'none'"),
        ({"name": "grpo", "surrogate": 3}, "algorithm.surrogate must be a table"),
        (
            {"name": "grpo", "ratio": "seqence"},
            "unknown algorithm.ratio 'seqence' (did you mean 'sequence'?)",
        ),
        (
            {"name": "grpo", "aggregate": "tokenmean"},
            "unknown aggregate 'tokenmean' (did you mean 'token-mean'?)",
        ),
        ({"name": "grpo", "aggregate": {"horizon": 5}}, "algorithm.aggregate needs a name"),
        ({"name": "grpo", "aggregate": {"name": "token-mean", "horizon": 5}}, "takes no horizon"),
        (
            {"name": "grpo", "aggregate": {"name": "token-mean", "size": 5}},
            "unknown key algorithm.aggregate.size",
        ),
        ({"name": "grpo", "terms": {"kk": {"coef": 1.0}}}, "unknown term algorithm.terms.kk"),
        ({"name": "gspo", "terms": {"kl": {}}}, "algorithm.terms.kl needs coef"),
        ({"name": "gspo", "terms": {"kl": {"coef": -1.0}}}, "algorithm.terms.kl.coef must be >= 0"),
        ({"name": "grpo", "kl_coef": -1.0}, "coefficient of the kl term must be >= 0, got -1"),
        ({"name": "ppo", "value_coef": float("inf")}, "coefficient of the value term must be >= 0"),
        ({"name": "ppo", "entropy_coef": -0.01}, "coefficient of the entropy term must be >= 0"),
        (
            {"name": "gspo", "terms": {"kl": {"coef": 1.0, "beta": 1.0}}},
            "unknown key algorithm.terms.kl.beta",
        ),
        (
            {"name": "gspo", "terms": {"entropy": {"coef": 1.0, "target": 1.0}}},
            "algorithm.terms.entropy.target",
        ),
        ({"name": "gspo", "kl_in_reward": {}}, "algorithm.kl_in_reward needs coef"),
        ({"name": "grpo", "selection": {"low": 0.9, "high": 0.1}}, "low"),
        ({"name": "dapo", "selection": {"metric": "reward"}}, "raw grades only"),
        ({"name": "dapo", "overlong_buffer": 500}, "must be smaller than the maximum length (500)"),
        (
            {"name": "grpo", "shaping": {"name": "soft-overlong", "buffer": 120, "maximum": 100}},
            "smaller than",
        ),
        ({"name": "gspo", "terms": {"value": {"coef": 0.5}}}, "only GAE makes"),
        (
            {"name": "grpo", "clip_high": 0.3, "surrogate": {"name": "soft-gate"}},
            "algorithm.clip_high has no effect",
        ),
    ],
)
def test_mistakes_are_named_with_place_and_remedy(table, message):
    with pytest.raises(SettingError) as caught:
        build(**table)
    assert message in str(caught.value)


def test_a_preset_argument_beside_an_unrelated_piece_is_fine():
    algorithm = build(name="grpo", clip_high=0.3, kl_coef=0.01, aggregate="token-mean")
    assert policy(algorithm).surrogate == Clip(0.2, 0.3)
    assert build(name="grpo", clip_high=0.2, surrogate={"name": "soft-gate"}).name == "grpo"
