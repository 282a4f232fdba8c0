"""The trust region, as each algorithm has it: what a clip removes, what a gate shuts, what never acts."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from trimtab.doctor.case import Case
from trimtab.doctor.causes import region as token_causes
from trimtab.doctor.causes import sampling, updates
from trimtab.doctor.evidence import exhibits
from trimtab.doctor.evidence.training import outside_box
from trimtab.doctor.suspicion import SHOWN, Suspicion, blame, plain, share, suspicion
from trimtab.doctor.verdicts import FEW, absent, clear, fact, facts, followed, found, skipped, too_short
from trimtab.record.findings import Finding, Severity

CLIPPED_SEQUENCES = 0.75
"""Share of answers cut from which a GSPO run loses too much; 0.1 to 0.3 is usual, short answers clip more."""

CLIPPED_TOKENS = 0.15
SHUT = 0.8
STEP_KL, WILD_KL = 0.05, 0.5
"""Nats a token that one step may move the policy by: from the first on much, from the second on wild."""

READ_WITH = ("clip/removed", "clip/sequences", "gate/mass", "ratio/token_p99", "ratio/token_max", "kl/old_k3")


def gspo_clip(case: Case) -> Finding:
    """Symptom 5: GSPO cuts whole answers; 15% is normal, three quarters is not."""
    rule, key = "gspo-clip", "clip/sequences"
    if case.setup.parts is not None and not case.setup.sequence_ratio:
        return absent(case, rule, "no sequence ratio")
    if case.setup.parts is None:
        return skipped(case, rule, "algorithm")
    course = followed(case, rule, key)
    if isinstance(course, Finding):
        return course
    if course.now < CLIPPED_SEQUENCES:
        title = f"{share(course.now)} of the answers are cut, which is normal for GSPO (its paper: 15%)"
        return clear(case, rule, title, fact(case, key))
    return found(
        case,
        rule,
        Severity.WARNING,
        f"{share(course.now)} of the answers lose their whole gradient",
        confidence=0.7,
        evidence=facts(case, *READ_WITH),
        exhibits=exhibits.far_tokens(case),
        suspects=blame(case, (updates.learning_rate_too_high, range_too_narrow)),
        source="GSPO, arXiv 2507.18071, section 5",
    )


def range_too_narrow(case: Case) -> Suspicion:
    """Short answers move further in the mean than long ones; the paper's range is for long ones."""
    box = case.setup.box or (3e-4, 4e-4)
    return suspicion(
        0.3,
        "gspo-range-too-narrow",
        "short answers have noisier sequence ratios than the long ones the range was made for",
        test="the share cut falls with the answer's length",
        change=f"algorithm.clip_low = {plain(3 * box[0])}, algorithm.clip_high = {plain(3 * box[1])}",
    )


def never_clipped(case: Case) -> Finding:
    """Symptom 5: the trust region never acts, though several updates a step would need it."""
    rule, key = "trust-region-idle", "clip/removed"
    setup = case.setup
    if setup.parts is None:
        return skipped(case, rule, "algorithm")
    if setup.gate is not None:
        return absent(case, rule, "a soft gate cuts nothing; see sapo-gates")
    if missing := case.missing(key, "optimizer/updates"):
        return skipped(case, rule, *missing)
    values = case.series(key).values
    if len(values) < FEW:
        return too_short(case, rule)
    if case.median("optimizer/updates") <= 1:
        return clear(case, rule, "one update a step: the ratio is 1 and nothing can be cut, which is normal")
    wide = token_causes.gspo_clip_too_wide(case)
    if wide.score > 0 and values.max() <= 0.01:
        return found(
            case,
            rule,
            Severity.WARNING,
            f"GSPO's sequence ratios never reach the bounds: {share(float(values.max()))} removed at most",
            confidence=0.95,
            evidence=facts(case, *READ_WITH, "ratio/sequence_std"),
            exhibits=exhibits.far_tokens(case),
            suspects=blame(case, (token_causes.gspo_clip_too_wide,)),
            source="GSPO, arXiv 2507.18071, section 5: 3e-4 / 4e-4",
        )
    return clear(case, rule, f"{share(case.now(key))} of the tokens lose their gradient", fact(case, key))


def clip_missing(case: Case) -> Finding:
    """Symptom 5: tokens leave the box and keep their gradient, or there is no box at all."""
    rule = "clip-not-acting"
    setup = case.setup
    if setup.parts is None:
        return skipped(case, rule, "algorithm")
    if setup.gate is not None or (setup.box is None and setup.bounded):
        return absent(case, rule, "no hard clip")
    if setup.updates_per_step == 1:
        return clear(case, rule, "one update a step: nothing leaves the box")
    removed = token_causes.clip_removed(case)
    if removed.score >= 0.8:
        free = [one for one in outside_box(case) if one.gate != 0.0]
        return found(
            case,
            rule,
            Severity.WARNING,
            "tokens outside the clip's box keep their gradient",
            confidence=removed.score,
            evidence=facts(case, *READ_WITH, "ratio/token_min"),
            exhibits=exhibits.outside(free) or exhibits.far_tokens(case),
            suspects=(removed,),
            source="PPO, arXiv 1707.06347, eq. 7",
        )
    wild = case.course("ratio/token_max")
    if setup.bounded is False and wild is not None and wild.count >= FEW:
        far = max(case.now("ratio/token_p99", 1.0) - 1.0, 1.0 - case.now("ratio/token_p1", 1.0))
        if far > 0.1 or wild.now > 2.0 or case.now("kl/old_k3") > updates.CALM_KL:
            return found(
                case,
                rule,
                Severity.WARNING,
                f"nothing bounds the ratios, and they reach {wild.now:.2g}",
                confidence=0.8,
                evidence=facts(case, *READ_WITH, "ratio/token_min"),
                exhibits=exhibits.far_tokens(case),
                suspects=blame(case, (token_causes.clip_removed, updates.learning_rate_too_high)),
                source="PPO, arXiv 1707.06347, section 3",
            )
    return clear(case, rule, "no recorded token outside the box keeps its gradient")


def sapo_gates(case: Case) -> Finding:
    """Symptom 8: SAPO's gates nearly shut. Gates that hardly act are normal near ratio 1."""
    rule, key = "sapo-gates", "gate/mass"
    if case.setup.parts is None:
        return skipped(case, rule, "algorithm")
    if case.setup.gate is None:
        return absent(case, rule, "no soft gate")
    mass = followed(case, rule, key)
    if isinstance(mass, Finding):
        return mass
    below = max(case.median("gate/positive_below_half"), case.median("gate/negative_below_half"))
    sharp = token_causes.sapo_temperature_too_large(case)
    shut = mass.now < SHUT or below > 0.2
    if not shut and not (sharp.score >= SHOWN and (mass.low < 0.985 or below > 0.005)):
        title = f"the gates let {share(mass.now)} of the gradient through"
        title += "; at ratios near 1 they have nothing to do, which is normal" if mass.now > 0.995 else ""
        return clear(case, rule, title, fact(case, key))
    return found(
        case,
        rule,
        Severity.WARNING,
        f"the gates let only {share(mass.now)} of the gradient through"
        if shut
        else f"the gates are so sharp that {share(1 - mass.low)} of the gradient is lost on ratios near 1",
        confidence=0.85,
        evidence=facts(
            case,
            key,
            "gate/positive",
            "gate/negative",
            "gate/positive_below_half",
            "gate/negative_below_half",
            "ratio/token_p1",
            "ratio/token_p99",
            "kl/old_k3",
        ),
        exhibits=exhibits.far_tokens(case),
        suspects=blame(case, (token_causes.sapo_temperature_too_large, updates.learning_rate_too_high)),
        source="SAPO, arXiv 2511.20347, eq. 5 to 8: w = 4 p (1 - p)",
    )


def large_updates(case: Case) -> Finding:
    """Symptoms 5, 8 and 12: the updates of one step carry the policy away from its own answers."""
    rule, key = "updates-too-large", "kl/old_k3"
    course = followed(case, rule, key)
    if isinstance(course, Finding):
        return course
    removed = 0.0 if case.setup.sequence_ratio else case.median("clip/removed")
    level = max(case.median(key), course.now)
    if level < STEP_KL and removed < CLIPPED_TOKENS:
        return clear(case, rule, f"a step moves the policy by {course.now:.2g} nats a token", fact(case, key))
    passed = case.course("pass/at_1") or case.course("reward/outcome")
    worse = passed is None or passed.now < passed.peak - 0.1 or not passed.rises
    return found(
        case,
        rule,
        Severity.CRITICAL if level > WILD_KL and worse else Severity.WARNING,
        f"the updates of one step move the policy by {level:.2g} nats a token"
        + (f", and {share(removed)} of the tokens are cut" if removed >= CLIPPED_TOKENS else ""),
        confidence=0.9 if level > WILD_KL else 0.75,
        evidence=facts(case, key, *READ_WITH, "optimizer/grad_norm", "optimizer/learning_rate"),
        exhibits=exhibits.far_tokens(case),
        suspects=blame(
            case,
            (
                token_causes.clip_removed,
                updates.wrong_kl_sign,
                updates.learning_rate_too_high,
                token_causes.old_logprobs_recomputed,
                token_causes.micro_batch_mean,
                *STRANGERS,
            ),
        ),
        source="KL(old || new) = mean(r - 1 - log r), small where a trust region holds",
    )


STRANGERS = (
    sampling.temperature_mismatch,
    sampling.retokenized,
    sampling.double_bos,
    sampling.stale_sampler,
    sampling.weights_never_synced,
)
"""Causes that make the ratio leave 1 before anything is trained."""
