"""Probes of an update with what is masked, left out, clamped or not finite."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math

import pytest
import torch

from tests.scenes import FOUR_WAY_RATIOS, batch, four_way, report
from trimtab.metrics import read
from trimtab.probes import mismatch_metrics, update_metrics
from trimtab.types import Trace


def shown(metrics):
    found = read(metrics)
    assert found.missing == {}
    return found.values


def test_what_stands_at_masked_tokens_reaches_no_metric():
    """The same update with NaN, inf and wild values at masked tokens gives the same metrics."""

    def make(junk: float):
        made = batch(
            (2, 2),
            mask=[True, False, True, True],
            sampler=[-1.0, junk, -1.1, -0.9],
            old_logprobs_T=[-1.0, junk, -1.0, -1.0],
            ref_logprobs_T=[-1.5, junk, -1.0, -1.0],
            values_T=[0.1, junk, 0.3, 0.2],
            returns_T=[1.0, junk, 0.0, 0.5],
            advantages_T=[1.0, junk, -1.0, -1.0],
            weights_T=[0.5, junk, 0.25, 0.25],
        )
        trace = Trace(
            logprobs_T=torch.tensor([-0.9, junk, -1.2, -1.0]),
            entropy_T=torch.tensor([0.1, junk, 0.2, 0.3]),
            ratio_T=torch.tensor([1.1, junk, 0.8, 1.0]),
            gate_T=torch.tensor([1.0, junk, 0.0, 1.0]),
            clamped_T=torch.tensor([False, True, False, False]),
            value_clipped_T=torch.tensor([False, True, False, True]),
        )
        return read(update_metrics(made, report(trace)) | mismatch_metrics(made))

    clean = make(0.0)
    assert clean.missing == {}
    for junk in (math.nan, math.inf, -math.inf, 1e30):
        assert make(junk) == clean
    assert clean.values["ratio/clamped"] == 0.0
    assert clean.values["value/clipped"] == pytest.approx(1 / 3)


def test_metrics_are_taken_on_unclamped_log_ratios_and_the_clamped_are_counted():
    """A log-ratio of 100 has a finite ratio in float64; one of 1000 has none and is named."""
    for gap, missing in ((100.0, set()), (1000.0, {"ratio/token", "ratio/sequence", "kl/old_k3"})):
        made = batch((1,), old_logprobs_T=[-1.0 - gap], advantages_T=[1.0])
        trace = Trace(
            logprobs_T=torch.tensor([-1.0]),
            ratio_T=torch.tensor([math.exp(20.0)]),
            gate_T=torch.tensor([0.0]),
            clamped_T=torch.tensor([True]),
        )
        found = read(update_metrics(made, report(trace)))
        assert found.values["ratio/clamped"] == 1
        assert found.values["kl/old_k1"] == pytest.approx(-gap)
        assert {key for key in found.missing if "_" not in key.split("/")[1] or "k3" in key} == missing
        if not missing:
            assert found.values["ratio/token"] == pytest.approx(math.exp(gap), rel=1e-4)


def test_a_nan_is_named_and_spares_what_it_does_not_touch():
    made, trace = four_way((0.25, 0.25, 0.5), FOUR_WAY_RATIOS, (0, 1, 1))
    spoilt = Trace(logprobs_T=torch.tensor([math.nan, -1.0, -1.0]))
    found = read(update_metrics(made, report(trace | spoilt)))
    assert found.missing["ratio/token"] == "1 values were NaN or infinite"
    assert found.values["policy/entropy"] == 1.0
    assert "ratio/token" not in found.values


def test_a_skipped_update_without_a_trace_leaves_only_the_optimizers_part():
    made = batch((2,), mask=[False, False], old_logprobs_T=[-1.0, -1.0])
    values = shown(update_metrics(made, report(Trace(), applied=False, seconds={})))
    assert values == {"optimizer/updates": 0, "optimizer/skipped": 1}


def test_an_update_passed_over_for_a_nan_says_nothing_of_a_loss_it_never_had():
    made = batch((2,), old_logprobs_T=[-1.0, -1.0], advantages_T=[1.0, 0.0])
    passed = report(Trace(), applied=False, loss=0.0, losses={}, seconds={})
    values = shown(update_metrics(made, passed))
    assert values["advantage/absolute"] == 0.5
    assert not {key for key in values if key.startswith(("loss/", "policy/", "ratio/", "kl/"))}


def test_answers_that_a_trainer_left_out_have_an_advantage_and_no_trace():
    """skip_silent leaves NaN in the trace of answers with A = 0; a NaN elsewhere is still named."""
    made = batch(
        (2, 1, 1),
        old_logprobs_T=[-1.0] * 4,
        advantages_T=[0.0, 0.0, 2.0, -1.0],
        weights_T=[0.25] * 4,
    )
    nan = math.nan
    trace = Trace(
        logprobs_T=torch.tensor([nan, nan, -1.0, -1.0]),
        entropy_T=torch.tensor([nan, nan, 0.5, 1.5]),
        ratio_T=torch.tensor([nan, nan, 1.0, 1.0]),
        gate_T=torch.tensor([nan, nan, 1.0, 1.0]),
    )
    values = shown(update_metrics(made, report(trace)))
    assert values["advantage/silent"] == 0.5
    assert values["advantage/absolute"] == 0.75
    assert values["policy/entropy"] == 1.0
    assert values["ratio/token"] == 1.0
    assert values["gate/mass"] == 1.0
    loud = made.with_columns(advantages_T=torch.tensor([0.0, 0.1, 2.0, -1.0], dtype=torch.float64))
    assert "policy/entropy" in read(update_metrics(loud, report(trace))).missing


def test_a_token_is_clamped_where_any_term_clamped_it():
    policy, kl = (Trace(clamped_T=torch.tensor(c)) for c in ([True, False, False], [False, False, True]))
    both = Trace(logprobs_T=torch.zeros(3)) | policy | kl
    assert shown(update_metrics(batch((3,)), report(both)))["ratio/clamped"] == 2
