"""What a run should say of its algorithm before it starts."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from trimtab.algorithms.algorithm import Algorithm
from trimtab.algorithms.parts import Parts
from trimtab.objectives.surrogate import ClippedWeight, SignDecoupledClip, SoftGate, Surrogate, Unclipped


def activity(algorithm: Algorithm, updates_per_step: int, epochs: int) -> str:
    """Whether clip bounds, gates or weights can act at all in this run, in one sentence.

    The first update of a step is taken by the policy that sampled, so every ratio is 1 there. Groups
    carried over from an earlier step are an exception: an older policy sampled them. Under a rollout
    correction the ratio is 1 there too, because it is taken to the policy as it is before the first update.
    """
    surrogate = Parts.of(algorithm).surrogate
    updates, what = updates_per_step * epochs, _called(surrogate)
    carries = algorithm.selection is not None and algorithm.selection.carry and algorithm.correction is None
    but = " (in carried groups, sampled by an older policy, it may not be)" if carries else ""
    if isinstance(surrogate, Unclipped):
        if updates == 1:
            return (
                f"1 update a step, no trust region: every ratio is 1{but}, this is the plain policy gradient."
            )
        return f"{updates} updates a step without a trust region: nothing bounds the ratios after the first."
    if updates == 1:
        return (
            f"1 update a step: every ratio is 1{but}, so {what} is inactive and the gradient is the plain "
            "policy gradient (trainer.updates_per_step or trainer.epochs above 1 make it act)."
        )
    return (
        f"{updates} updates a step: the ratio is 1 in the first{but}, {what} can act in the other "
        f"{updates - 1}."
    )


def notes(
    algorithm: Algorithm, *, max_new_tokens: int, updates_per_step: int, epochs: int
) -> tuple[str, ...]:
    """Sentences for the start of a run: activity first, then what is easily misread."""
    parts = Parts.of(algorithm)
    lines = [activity(algorithm, updates_per_step, epochs)]
    if algorithm.shaping is not None:
        points = ", ".join(
            f"{point.penalty:g} at {point.length}" for point in algorithm.shaping.breakpoints(max_new_tokens)
        )
        lines.append(f"Length penalty added to the reward, by response tokens: {points}.")
    if algorithm.correction is not None:
        lines.append(
            f"Rollout correction: {algorithm.correction} of pi_old / pi_rollout multiply the policy term; "
            "the old log-probabilities are computed anew before the first update of each step."
        )
    if algorithm.overlong_filter:
        lines.append("Truncated answers have no loss tokens; they still count in their group's baseline.")
    match parts.surrogate:
        case SoftGate(tau_pos, tau_neg):
            lines.append(
                "The loss is not near 0 on policy (the gate's value at ratio 1 is 2 / tau); it says nothing."
            )
            if tau_neg < tau_pos:
                lines.append(
                    "tau_neg is below tau_pos: negative tokens decay more slowly than positive ones."
                )
        case SignDecoupledClip(bound="max"):
            lines.append(
                'bound = "max": below 1 - neg bad tokens are pushed down for ever, above 1 + neg not at all.'
            )
        case ClippedWeight():
            lines.append("The loss is a weighted log-likelihood, not near 0 on policy; it says nothing.")
        case _:
            pass
    return tuple(lines)


def _called(surrogate: Surrogate | None) -> str:
    match surrogate:
        case SoftGate():
            return f"the {surrogate}"
        case ClippedWeight():
            return f"the bound on the importance weight ({surrogate})"
        case _:
            return f"the trust region ({surrogate})"
