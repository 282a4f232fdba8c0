"""Are the tokens, masks, weights and probabilities of the updates those that were sampled?"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from trimtab.doctor.case import Case
from trimtab.doctor.causes import region as token_causes
from trimtab.doctor.causes import sampling
from trimtab.doctor.evidence import exhibits
from trimtab.doctor.evidence.agreement import agreements
from trimtab.doctor.evidence.answers import doubled_start
from trimtab.doctor.evidence.losses import loss_gap
from trimtab.doctor.evidence.training import ends, uneven_updates
from trimtab.doctor.suspicion import LIKELY, Suspicion, blame, share
from trimtab.doctor.verdicts import clear, fact, facts, found, skipped
from trimtab.record.findings import Evidence, Exhibit, Finding, Severity

APART, FAR_APART = 0.003, 0.03
"""Nats: mean |difference| of log-probabilities that is worth a word, and that spoils every ratio."""


def sampler_mismatch(case: Case) -> Finding:
    """Symptom 9: sampler and trainer disagree on what was sampled."""
    rule, key = "sampler-mismatch", "mismatch/logprob"
    age = case.course("staleness/mean")
    allowed = case.setup.number("cluster.staleness") or 0.0
    old = age is not None and age.now >= 2.0 and age.now > allowed
    if case.missing(key) and not old:
        return skipped(case, rule, key)
    course = case.course(key)
    level = 0.0 if course is None else max(course.now, case.median(key))
    if level < APART and not old:
        title = f"sampler and trainer differ by {level:.1g} nats a token"
        return clear(case, rule, title, fact(case, key))
    found_at = agreements(case)
    shown = exhibits.disagreements(max(found_at, key=lambda one: one.size)) if found_at else ()
    title = (
        f"sampler and trainer differ by {level:.2g} nats a token on the same answers"
        if level >= APART
        else f"trained answers are {age.now:.1f} policies old"
        if age
        else ""
    )
    return found(
        case,
        rule,
        Severity.CRITICAL if level > FAR_APART else Severity.WARNING,
        title,
        confidence=0.95 if level > FAR_APART else 0.7,
        evidence=facts(case, key, "mismatch/k3", "mismatch/ess", "staleness/mean", "pass/at_1"),
        exhibits=shown,
        suspects=blame(
            case,
            (
                sampling.weights_never_synced,
                sampling.stale_sampler,
                sampling.double_bos,
                sampling.temperature_mismatch,
                sampling.retokenized,
                sampling.machines_differ,
            ),
        ),
        source="the first update of a step has the weights that sampled: both sides must agree",
    )


def doubled_start_token(case: Case) -> Finding:
    """Symptom 9: prompts that begin with their start token twice."""
    rule = "doubled-start-token"
    if not any(row.tokens is not None for row in case.rollouts.all):
        return skipped(case, rule, "rollouts with tokens")
    rows = doubled_start(case)
    if not rows:
        return clear(case, rule, "no start token stands twice")
    ids = rows[0].tokens.prompt_token_ids[:3].tolist() if rows[0].tokens is not None else []
    shown = tuple(
        Exhibit(step=row.step, rollout=row.key, why=f"the prompt's tokens begin {ids}") for row in rows[:5]
    )
    return found(
        case,
        rule,
        Severity.WARNING,
        f"all {len(rows)} recorded prompts begin with the same token twice",
        confidence=0.9,
        evidence=(Evidence(text=f"first prompt tokens: {ids}", key="prompt_token_ids"),),
        exhibits=shown,
        suspects=blame(case, (sampling.double_bos,)),
        source="templates that write the start token, and tokenizers that add it again",
    )


def untrained_ends(case: Case) -> Finding:
    """Symptom 9 and 2: the end token has no loss."""
    rule = "end-token-untrained"
    state = ends(case)
    if state.stopped < 8:
        return skipped(case, rule, "trained rollouts that ended by themselves")
    if state.share < 0.3:
        return clear(case, rule, f"the end token is trained on in {share(1 - state.share)} of the answers")
    growing = case.course("length/mean")
    longer = growing is not None and growing.rises
    return found(
        case,
        rule,
        Severity.CRITICAL if state.share > 0.9 and longer else Severity.WARNING,
        f"in {share(state.share)} of the finished answers the last token has no loss",
        confidence=0.97,
        evidence=facts(case, "length/mean", "length/truncated"),
        exhibits=exhibits.ends_of(state.untrained, "the end token, not trained on"),
        suspects=blame(case, (token_causes.eos_masked,)),
        source="masks made from token ids instead of lengths; the end token belongs to the answer",
    )


def old_logprobs(case: Case) -> Finding:
    """Symptom 5 and 10: the ratio's denominator moves with the policy."""
    rule = "old-log-probabilities"
    if case.has("optimizer/updates") and case.median("optimizer/updates") <= 1 and not case.rollouts.steps:
        return clear(case, rule, "one update a step: the ratio is 1 by nature")
    suspect = token_causes.old_logprobs_recomputed(case)
    if "no values per token" in suspect.cause.test and not case.has("ratio/token_std"):
        return skipped(case, rule, "rollouts with tokens", "ratio/token_std")
    if suspect.score < LIKELY:
        return clear(case, rule, "old log-probabilities are those of the policy that sampled")
    return found(
        case,
        rule,
        Severity.WARNING,
        "the ratio stays 1 though the policy moves: its denominator is not the policy that sampled"
        if case.now("ratio/token_std", 1.0) < 1e-5
        else "the ratio's denominator is not the policy that sampled",
        confidence=suspect.score,
        evidence=facts(case, "ratio/token_std", "kl/old_k3", "optimizer/updates", "optimizer/learning_rate"),
        exhibits=exhibits.far_tokens(case),
        suspects=blame(
            case,
            (
                token_causes.old_logprobs_recomputed,
                sampling.temperature_mismatch,
                sampling.stale_sampler,
                sampling.weights_never_synced,
            ),
        ),
        source="importance ratio r = pi / pi_old, pi_old fixed over the step",
    )


def loss_weights(case: Case) -> Finding:
    """Symptom 10: tokens of an update weigh differently than the aggregation says."""
    rule = "loss-weights"
    judged, uneven = uneven_updates(case)
    if not judged:
        return skipped(case, rule, "weights of recorded rollouts")
    suspect = token_causes.micro_batch_mean(case)
    if suspect.score < LIKELY:
        return clear(case, rule, f"in {judged} updates all tokens weigh what {case.setup.aggregate} says")
    if not uneven:
        return _other_loss(case, suspect)
    worst = max(uneven, key=lambda one: one.spread)
    rows = sorted(worst.rows, key=lambda row: -(row.weight or 0.0) / max(1, row.trained_tokens or 1))
    return found(
        case,
        rule,
        Severity.WARNING,
        f"equal tokens of one update differ in weight, by up to {share(worst.spread)}",
        confidence=suspect.score,
        evidence=(
            Evidence(
                text=f"{len(uneven)} of {judged} updates do not follow {case.setup.aggregate}",
                key="weights",
                value=worst.spread,
                steps=(uneven[0].step, uneven[-1].step),
            ),
        ),
        exhibits=exhibits.whole(
            (*rows[:2], *rows[-2:]),
            lambda row: f"weight {(row.weight or 0) / max(1, row.trained_tokens or 1):.3g} a trained token",
        ),
        suspects=(suspect,),
        source="weights belong to the whole update; a mean of micro-batch means is another objective",
    )


def _other_loss(case: Case, suspect: Suspicion) -> Finding:
    gap = loss_gap(case)
    assert gap is not None, "the suspect has no other ground"
    shown = ", ".join(f"{one:+.2g}" for one in gap.gaps[:6])
    return found(
        case,
        "loss-weights",
        Severity.WARNING,
        f"the policy loss is not what the recorded weights and advantages make: off by {gap.own:.2g}",
        confidence=0.8,
        evidence=(
            Evidence(
                text=f"loss/policy + sum of weight * advantage, by step: {shown}",
                key="loss/policy",
                value=float(gap.gaps[-1]),
                steps=(gap.steps[0], gap.steps[-1]),
            ),
        ),
        suspects=(suspect,),
        source="at ratios near 1 a surrogate's value is its advantage",
    )
