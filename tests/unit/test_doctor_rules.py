"""Each rule on histories made by hand: what it finds, the cause it names first, and where it stays silent."""
# SPDX-License-Identifier: Apache-2.0

import pytest

from tests.doctor_cases import case_with, first_cause, is_found, is_skipped, ramp, run_tables
from trimtab.doctor.rules import entropy, grading, lengths, optimizer, progress, region, signal
from trimtab.record.findings import Outcome, Severity
from trimtab.record.history import History

SAPO50 = run_tables({"name": "sapo", "tau_pos": 50.0, "tau_neg": 52.0})
WIDE = run_tables({"name": "gspo", "clip_low": 0.2, "clip_high": 0.2})
SMALL = run_tables(sampling={"samples_per_prompt": 2})
COLD = run_tables(sampling={"temperature": 0.2})
SHORT = run_tables(sampling={"max_new_tokens": 16})
PENALTY = run_tables({"name": "dapo", "overlong_buffer": 50})
ONE_UPDATE = run_tables(trainer={"updates_per_step": 1})
CRITIC0 = run_tables("ppo", trainer={"critic_learning_rate": 0.0})

STUCK = {"groups/uniform": 1.0, "groups/mixed": 0.0, "groups/outcome_std": 0.0}
LEARNING = {"pass/at_1": ramp(0.4, 0.7, noise=0.02), "reward/outcome": ramp(0.4, 0.7, noise=0.02)}
WRONG = {**STUCK, "groups/all_wrong": 1.0, "groups/all_right": 0.0, "pass/at_1": 0.0, "reward/outcome": 0.0}
RIGHT = {**STUCK, "groups/all_wrong": 0.0, "groups/all_right": 1.0, "pass/at_1": 1.0, "reward/outcome": 1.0}
CUT = {"length/truncated": 0.97, "pass/at_1": 0.02, "length/mean": 16.0}
SHRINKING = {"length/mean": ramp(30, 6, noise=0.3), "pass/at_1": ramp(0.4, 0.1, noise=0.02)}
PUNISHED = {
    "reward/shaping_share": 0.95,
    "reward/shaping": -0.4,
    "groups/reward_std": 0.9,
    "length/right": 30.0,
}
HOT = {"kl/old_k3": 0.9, "clip/removed": 0.3, "optimizer/grad_norm": 0.2, "pass/at_1": ramp(0.4, 0.0)}
SHUT = {"gate/mass": 0.6, "gate/positive_below_half": 0.3, "gate/negative_below_half": 0.3}

FOUND = [
    (signal.uniform_groups, WRONG, None, "data-too-hard", "critical"),
    (signal.uniform_groups, RIGHT, None, "data-mastered", "critical"),
    (
        signal.uniform_groups,
        {"groups/uniform": 0.55, "pass/at_1": 0.5, "groups/all_right": 0.3, "groups/all_wrong": 0.25},
        SMALL,
        "group-too-small",
        "warning",
    ),
    (
        signal.uniform_groups,
        {"groups/uniform": 0.9, "pass/at_1": 0.5},
        COLD,
        "temperature-too-low",
        "warning",
    ),
    (signal.loss_near_zero, {**WRONG, "advantage/absolute": 0.0}, None, "data-too-hard", "critical"),
    (signal.duplicate_rollouts, {"groups/duplicates": 0.8}, COLD, "temperature-too-low", "warning"),
    (
        signal.few_useful_groups,
        {"flow/keep_rate": 0.02, "groups/all_wrong": 0.97, "pass/at_1": 0.01},
        run_tables("dapo"),
        "data-too-hard",
        "critical",
    ),
    (grading.constant_reward, {"reward/outcome": 0.5, **STUCK}, None, "reward-constant", "critical"),
    (
        grading.grader_faults,
        {"grades/ungraded": 0.2, "grades/timeout": 0.2, "grades/grader_failed": 0.0},
        None,
        "grader-faults",
        "warning",
    ),
    (
        grading.dead_part,
        {"grades/part/answer": ramp(0.4, 0.8), "grades/part/format": 0.0},
        None,
        "format-reward-dead",
        "warning",
    ),
    (
        entropy.entropy_collapse,
        {"policy/entropy": ramp(0.35, 0.0149), "pass/at_1": 0.3},
        None,
        "upper-clip-too-low",
        "warning",
    ),
    (
        entropy.entropy_explosion,
        {"policy/entropy": ramp(0.1, 2.5), "kl/old_k3": 0.2, **SHRINKING},
        None,
        "learning-rate-too-high",
        "critical",
    ),
    (lengths.truncation, CUT, SHORT, "max-length-too-short", "critical"),
    (
        lengths.length_rewarded,
        {"reward/length_correlation_within": 0.9, "length/mean": ramp(30, 50)},
        None,
        "reward-pays-length",
        "critical",
    ),
    (
        lengths.length_growth,
        {"length/mean": ramp(30, 55), "reward/length_correlation_within": 0.9, "pass/at_1": 0.2},
        None,
        "reward-pays-length",
        "warning",
    ),
    (lengths.length_collapse, {**SHRINKING, **PUNISHED}, PENALTY, "overlong-penalty-too-strong", "critical"),
    (lengths.length_penalty, {**SHRINKING, **PUNISHED}, PENALTY, "overlong-penalty-too-strong", "critical"),
    (
        region.never_clipped,
        {"clip/removed": 0.0, "clip/sequences": 0.0, "optimizer/updates": 4},
        WIDE,
        "gspo-clip-too-wide",
        "warning",
    ),
    (region.sapo_gates, SHUT, SAPO50, "sapo-temperature-too-large", "warning"),
    (region.sapo_gates, {**SHUT, "kl/old_k3": 0.9}, run_tables("sapo"), "learning-rate-too-high", "warning"),
    (region.large_updates, HOT, None, "learning-rate-too-high", "critical"),
    (
        progress.reference_drift,
        {"kl/reference_k3": ramp(0, 3), "loss/kl": ramp(0, -0.1), "reward/outcome": 0.4},
        None,
        "wrong-kl-sign",
        "critical",
    ),
    (progress.outcome_falls, HOT, None, "learning-rate-too-high", "critical"),
    (
        optimizer.critic,
        {"value/explained_variance": 0.0, "value/mean": 0.0, "value/return": 0.5},
        CRITIC0,
        "critic-frozen",
        "warning",
    ),
    (
        progress.coverage,
        {"pool/drawn": ramp(0.1, 1.0), "pool/trained": ramp(0.05, 0.2), "pool/mastered": 0.05,
         "groups/all_wrong": 0.8, "pass/at_1": 0.05},
        run_tables("dapo"),
        "data-too-hard",
        "warning",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "values", "run", "cause", "severity"),
    FOUND,
    ids=[f"{r.__name__}-{c}" for r, _, _, c, _ in FOUND],
)
def test_the_symptom_is_found_and_its_cause_comes_first(rule, values, run, cause, severity):
    finding = rule(case_with(values, run=run))
    assert is_found(finding), finding
    assert first_cause(finding) == cause, [c.name for c in finding.causes]
    assert finding.severity == severity
    assert finding.confidence is not None
    assert 0 < finding.confidence <= 1
    assert finding.evidence
    assert finding.source
    assert all(one.test and one.change and one.what for one in finding.causes)


CLEAR = [
    (signal.uniform_groups, {"groups/uniform": ramp(0.1, 0.95), "pass/at_1": ramp(0.4, 0.97)}, None),
    (signal.duplicate_rollouts, {"groups/duplicates": 0.3}, None),
    (entropy.entropy_collapse, {"policy/entropy": ramp(0.12, 0.01), "pass/at_1": ramp(0.5, 0.95)}, None),
    (entropy.entropy_explosion, {"policy/entropy": ramp(0.1, 0.13)}, None),
    (lengths.truncation, {"length/truncated": ramp(0.3, 0.02), "pass/at_1": ramp(0.3, 0.6)}, None),
    (lengths.length_growth, {"length/mean": ramp(30, 60), **LEARNING}, None),
    (lengths.length_collapse, {"length/mean": ramp(45, 30), **LEARNING}, None),
    (lengths.length_rewarded, {"reward/length_correlation_within": -0.1}, None),
    (lengths.length_penalty, {"reward/shaping_share": 0.1, "length/mean": 30.0}, run_tables("dapo")),
    (region.gspo_clip, {"clip/sequences": 0.15}, run_tables("gspo")),
    (region.never_clipped, {"clip/removed": 0.0, "optimizer/updates": 1}, ONE_UPDATE),
    (region.never_clipped, {"clip/removed": 0.0, "optimizer/updates": 4}, None),
    (region.sapo_gates, {"gate/mass": 0.9999}, run_tables("sapo")),
    (region.large_updates, {"kl/old_k3": 0.0004, "clip/removed": 0.002}, None),
    (region.large_updates, {"kl/old_k3": 0.0004, "clip/removed": 0.45}, run_tables("gspo")),
    (progress.reference_drift, {"kl/reference_k3": ramp(0, 0.05), "policy/entropy": 0.1}, None),
    (progress.outcome_falls, LEARNING, None),
    (optimizer.gradient_spikes, {"optimizer/grad_norm_max": [0.1] * 19 + [9.0]}, None),
    (
        optimizer.critic,
        {
            "value/explained_variance": -0.1,
            "value/mean": ramp(0, 0.6),
            "value/return": ramp(0.2, 0.62),
        },
        run_tables("ppo"),
    ),
    (optimizer.skipped_updates, {"optimizer/skipped": [1.0] + [0.0] * 19, "optimizer/updates": 4}, None),
    (grading.dead_part, {"grades/part/answer": ramp(0.4, 0.8), "grades/part/format": 1.0}, None),
]


@pytest.mark.parametrize(("rule", "values", "run"), CLEAR, ids=[r.__name__ for r, _, _ in CLEAR])
def test_what_is_normal_is_clear(rule, values, run):
    finding = rule(case_with(values, run=run))
    assert finding.outcome is Outcome.CLEAR, finding


@pytest.mark.parametrize(
    ("rule", "run", "missing"),
    [
        (signal.uniform_groups, None, "groups/uniform"),
        (entropy.entropy_collapse, None, "policy/entropy"),
        (lengths.truncation, None, "length/truncated"),
        (region.gspo_clip, run_tables("gspo"), "clip/sequences"),
        (region.sapo_gates, run_tables("sapo"), "gate/mass"),
        (progress.reference_drift, None, "kl/reference_k3"),
        (optimizer.critic, run_tables("ppo"), "value/explained_variance"),
        (grading.grader_faults, None, "grades/ungraded"),
    ],
)
def test_a_missing_metric_is_named(rule, run, missing):
    finding = rule(case_with({"loss/total": 0.0}, run=run))
    assert is_skipped(finding)
    assert missing in finding.missing


def test_gates_are_no_matter_for_a_clip_and_clips_none_for_gates():
    assert "does not apply" in region.sapo_gates(case_with({"gate/mass": 0.2})).title
    assert "does not apply" in region.gspo_clip(case_with({"clip/sequences": 1.0})).title
    assert "does not apply" in optimizer.critic(case_with({"value/mean": 1.0})).title


def test_a_zero_loss_with_advantages_is_told_to_be_normal():
    values = {"advantage/absolute": 0.8, "loss/policy": 1e-4, "optimizer/grad_norm": 0.1}
    finding = signal.loss_near_zero(case_with(values))
    assert finding.outcome is Outcome.CLEAR
    assert "normal" in finding.title


def test_the_change_is_computed_from_the_runs_own_settings():
    cut = lengths.truncation(case_with(CUT, run=SHORT))
    assert cut.causes[0].change == "sampling.max_new_tokens = 64 (now 16)"
    fast = region.large_updates(case_with(HOT))
    assert fast.causes[0].change == "trainer.learning_rate = 1e-05 (now 0.0003)"


def test_one_wild_step_is_not_a_symptom():
    values = {"kl/old_k3": [0.001] * 10 + [5.0] + [0.001] * 9}
    assert not is_found(region.large_updates(case_with(values)))


def test_nan_and_the_reason_of_a_stop_are_found():
    history = History()
    for step in range(6):
        history.append(
            step, 0.0, {"loss/total": 0.1}, {"kl/old_k3": "3 values were NaN"} if step > 3 else None
        )
    finding = optimizer.not_finite(case_with().__class__(history=history))
    assert (is_found(finding), finding.severity) == (True, Severity.CRITICAL)
    assert finding.evidence[0].steps == (4, 5)
    stopped = case_with({"loss/total": 0.1}, events=({"event": "stopped", "reason": "not finite: loss"},))
    assert is_found(optimizer.not_finite(stopped))


def test_held_out_falling_while_training_rises():
    held = History()
    for step, value in ((0, 0.5), (10, 0.6), (20, 0.3)):
        interval = {"evaluation/pass@1_low": value - 0.03, "evaluation/pass@1_high": value + 0.03}
        held.append(step, 0.0, {"evaluation/pass@1": value, **interval})
    values = {"reward/outcome": ramp(0.4, 0.9), "reward/length_correlation_within": 0.9}
    finding = progress.held_out_falls(case_with(values, evaluations=held))
    assert (is_found(finding), finding.severity) == (True, Severity.CRITICAL)
    assert first_cause(finding) == "reward-pays-length"
    assert is_skipped(progress.held_out_falls(case_with(values)))


def test_gold_answers_left_out_at_the_start_are_told():
    facts = {"opening": ["left out 12 prompts whose gold answer does not grade as right:"]}
    finding = grading.gold_answers(case_with({"pass/at_1": 0.5}, facts=facts))
    assert is_found(finding)
    assert "12 gold answers" in finding.title
