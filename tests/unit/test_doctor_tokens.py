"""Rules that look at rollouts and tokens: each pattern of a fault, and the same rollouts without it."""
# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest

from tests.doctor_cases import case_with, first_cause, is_found, is_skipped, ramp, row, run_tables, tokens_of
from trimtab.doctor.rules import grading, region, signal, tokens
from trimtab.record.findings import Outcome
from trimtab.types import Finish, VersionSpan

RANDOM = np.random.default_rng(7)
APART = {"mismatch/logprob": 0.2}


def logprobs(n=12):
    return np.log(RANDOM.uniform(0.1, 0.9, n))


def at_temperature(values, factor):
    """Two-way odds scaled: what another temperature does to a token with one rival."""
    odds = factor * (values - np.log(-np.expm1(values)))
    return -np.log1p(np.exp(-odds))


def compared(change, *, step=0, rollouts=12):
    """Rollouts of a first update whose trainer saw ``change(sampler's log-probabilities, index)``."""
    rows = []
    for index in range(rollouts):
        sampled = logprobs()
        rows.append(row(index, step=step, length=12, tokens=tokens_of(sampled, new=change(sampled, index))))
    return rows


def mismatch(change, series=APART, **given):
    return tokens.sampler_mismatch(case_with(series, rows={0: compared(change)}, **given))


def test_another_temperature_scales_all_odds():
    finding = mismatch(lambda sampled, index: at_temperature(sampled, 0.7))
    assert first_cause(finding) == "temperature-mismatch"
    assert "1.43 times" in finding.causes[0].test
    assert finding.exhibits[0].tokens is not None


def test_tokens_encoded_again_spoil_some_answers_from_some_token_on():
    def change(sampled, index):
        noise = np.where((np.arange(12) >= 5) & (index % 3 == 0), RANDOM.normal(size=12), 0.0)
        return np.minimum(sampled - np.abs(noise), -1e-4)

    assert first_cause(mismatch(change)) == "retokenized"


def test_another_prompt_moves_all_answers_without_a_pattern():
    finding = mismatch(lambda sampled, index: np.minimum(sampled + RANDOM.normal(0, 0.5, 12), -1e-3))
    assert first_cause(finding) == "double-bos"


def test_a_doubled_start_token_is_seen_in_the_prompts():
    rows = [row(g, group=f"p-{g}#0", tokens=tokens_of(logprobs(), prompt=(1, 1, 5, 6))) for g in range(4)]
    finding = tokens.doubled_start_token(case_with(rows={0: rows}))
    assert is_found(finding)
    assert first_cause(finding) == "double-bos"
    fine = [row(g, group=f"p-{g}#0", tokens=tokens_of(logprobs(), prompt=(1, 5, 5))) for g in range(4)]
    assert tokens.doubled_start_token(case_with(rows={0: fine})).outcome is Outcome.CLEAR


def test_weights_that_never_arrive_drift_apart_for_ever():
    values = {"mismatch/logprob": [0.0, *ramp(0.01, 0.4, 19)], "pass/at_1": 0.4}
    finding = tokens.sampler_mismatch(case_with(values))
    assert first_cause(finding) == "weights-never-synced"


def test_a_sampler_that_runs_behind_stays_at_one_distance():
    values = {"mismatch/logprob": [0.0, 0.01] + [0.02] * 18, "pass/at_1": ramp(0.4, 0.8)}
    finding = tokens.sampler_mismatch(case_with(values))
    assert first_cause(finding) == "stale-sampler"


def test_honest_old_versions_are_stale():
    values = {"staleness/mean": [0.0, 1.0, 2.0] + [3.0] * 17}
    assert first_cause(tokens.sampler_mismatch(case_with(values))) == "stale-sampler"
    ageing = {"staleness/mean": list(range(20)), "pass/at_1": 0.4}
    assert first_cause(tokens.sampler_mismatch(case_with(ageing))) == "weights-never-synced"


def test_the_same_numbers_on_both_sides_are_clear():
    finding = mismatch(lambda sampled, index: sampled, {"mismatch/logprob": 1e-7})
    assert finding.outcome is Outcome.CLEAR


def ended(trained_last, count=10):
    mask = [True] * 7 + [trained_last]
    kept = tokens_of(logprobs(8), trained=mask)
    return [row(i, tokens=kept, trained_tokens=sum(mask)) for i in range(count)]


def test_an_untrained_end_token():
    finding = tokens.untrained_ends(case_with(rows={0: ended(trained_last=False)}))
    assert first_cause(finding) == "eos-masked"
    assert finding.exhibits[0].tokens == (7, 8)
    assert tokens.untrained_ends(case_with(rows={0: ended(trained_last=True)})).outcome is Outcome.CLEAR
    assert is_skipped(tokens.untrained_ends(case_with(rows={0: ended(trained_last=False, count=3)})))


def test_the_end_token_is_missed_without_values_per_token_too():
    rows = [row(i, length=9, trained_tokens=8) for i in range(10)]
    assert is_found(tokens.untrained_ends(case_with(rows={0: rows})))
    cut = [row(i, length=9, trained_tokens=8, finish=Finish.LENGTH) for i in range(10)]
    assert is_skipped(tokens.untrained_ends(case_with(rows={0: cut})))


def later(old_follows):
    """First and later updates of a step; the policy moves by 0.05 nats at the later ones."""
    rows = []
    for index in range(8):
        sampled, update = logprobs(8), 4 + index % 4
        new = sampled + (0.05 if update > 4 else 0.0)
        rows.append(
            row(index, update=update, tokens=tokens_of(sampled, new=new, old=new if old_follows else sampled))
        )
    return {0: rows}


def test_old_logprobs_that_follow_the_policy():
    values = {"ratio/token_std": 0.0, "optimizer/updates": 4, "optimizer/learning_rate": 3e-4}
    finding = tokens.old_logprobs(case_with(values, rows=later(old_follows=True)))
    assert first_cause(finding) == "old-logprobs-recomputed"
    moving = {**values, "ratio/token_std": 0.01}
    assert tokens.old_logprobs(case_with(moving, rows=later(old_follows=False))).outcome is Outcome.CLEAR


def test_old_logprobs_of_other_weights_at_the_first_update():
    rows = [row(i, tokens=tokens_of(s := logprobs(8), new=s, old=s - 0.3)) for i in range(8)]
    finding = tokens.old_logprobs(case_with({"ratio/token_std": 0.3, "optimizer/updates": 4}, rows={0: rows}))
    assert first_cause(finding) == "old-logprobs-recomputed"


def weighed(weight_of):
    lengths = [4, 8, 12, 16, 20, 24]
    return {0: [row(i, length=n, trained_tokens=n, weight=weight_of(i, n)) for i, n in enumerate(lengths)]}


def test_weights_of_micro_batch_means():
    whole = weighed(lambda i, n: n / 84)
    parts = weighed(lambda i, n: n / (24 if i < 3 else 60) / 2)
    dapo = run_tables("dapo")
    assert tokens.loss_weights(case_with(rows=whole, run=dapo)).outcome is Outcome.CLEAR
    finding = tokens.loss_weights(case_with(rows=parts, run=dapo))
    assert first_cause(finding) == "micro-batch-mean"
    assert tokens.loss_weights(case_with(rows=weighed(lambda i, n: 1 / 6))).outcome is Outcome.CLEAR
    assert is_found(tokens.loss_weights(case_with(rows=whole)))


def beyond(gate):
    values = {
        "ratios": [1.0, 1.9, 0.3, 1.0],
        "gates": [1.0, gate, gate, 1.0],
        "advantages": [1.0, 1.0, -1.0, -1.0],
    }
    return {0: [row(i, length=4, tokens=tokens_of(logprobs(4), **values)) for i in range(3)]}


def test_tokens_outside_the_box_that_keep_their_gradient():
    finding = region.clip_missing(case_with(rows=beyond(1.0)))
    assert first_cause(finding) == "clip-removed"
    assert "gate 1" in finding.exhibits[0].why
    assert region.clip_missing(case_with(rows=beyond(0.0))).outcome is Outcome.CLEAR


def answers(value_of, count=12):
    texts = [("3+4=7\n#7", True), ("3+4=8\n#8", False)]
    rows = []
    for i in range(count):
        text, right = texts[i % 2]
        rows.append(row(i % 4, group=f"p-{i // 4}#0", text=text, value=value_of(right)))
    return {0: rows}


def test_right_answers_that_get_nothing():
    flat = {"reward/outcome": 0.0, "pass/at_1": 0.0}
    case = case_with(flat, rows=answers(lambda right: 0.0))
    finding = grading.denied_answers(case)
    assert first_cause(finding) == "parser-broken"
    assert "'7'" in finding.exhibits[0].why
    assert first_cause(grading.constant_reward(case)) == "parser-broken"
    fine = case_with({"reward/outcome": 0.5}, rows=answers(lambda right: float(right)))
    assert grading.denied_answers(fine).outcome is Outcome.CLEAR


def test_wrong_answers_that_all_get_a_point():
    case = case_with({"reward/outcome": 1.0, "groups/mixed": 0.0}, rows=answers(lambda right: 1.0))
    assert first_cause(grading.constant_reward(case)) == "reward-constant"


def agreeing(said, gold):
    return {0: [row(i % 4, group=f"p-{i // 4}#0", text=f"#{said(i // 4)}", answer=gold(i // 4),
                    value=float(said(i // 4) == gold(i // 4))) for i in range(48)]}  # fmt: skip


def test_gold_answers_that_the_policy_contradicts_with_one_voice():
    wrong = agreeing(lambda g: str(g), lambda g: str(g + 1 if g % 2 else g))
    finding = grading.gold_answers(case_with(rows=wrong))
    assert first_cause(finding) == "gold-wrong"
    right = agreeing(lambda g: str(g), lambda g: str(g))
    assert grading.gold_answers(case_with(rows=right)).outcome is Outcome.CLEAR


@pytest.mark.parametrize(("same", "outcome"), [(True, Outcome.FOUND), (False, Outcome.CLEAR)])
def test_prompts_that_repeat_within_a_step(same, outcome):
    rows = [row(0, group=f"row-{g}#0", prompt="3+4=?" if same else f"{g}+4=?") for g in range(6)]
    finding = signal.repeating_prompts(case_with(rows={0: rows}))
    assert finding.outcome is outcome
    if same:
        assert first_cause(finding) == "duplicate-prompts"


def test_seeds_that_repeat_within_a_group():
    rows = [row(i, seed=5) for i in range(6)]
    finding = signal.duplicate_rollouts(case_with({"groups/duplicates": 0.9}, rows={0: rows}))
    assert first_cause(finding) == "seeds-repeat"


def test_carried_rollouts_do_not_count_as_a_mismatch():
    rows = compared(lambda sampled, index: sampled)
    old = row(99, carried=True, versions=(VersionSpan(-1, 0, 12),), length=12,
              tokens=tokens_of(logprobs(), new=logprobs()))  # fmt: skip
    finding = tokens.sampler_mismatch(case_with({"mismatch/logprob": 1e-7}, rows={0: [*rows, old]}))
    assert finding.outcome is Outcome.CLEAR
