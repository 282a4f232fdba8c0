"""Metrics of updates, critic, time, memory and evaluation."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from trimtab.catalog.spec import MetricSpec, Section, others

LOSS = Section(
    "Loss",
    (
        "For the books. A policy loss near 0 is normal: at ratio 1 the advantages of a group cancel, exactly "
        "where every answer weighs the same. SAPO's and CISPO's need not be near 0; that is normal too."
    ),
    (
        MetricSpec(
            key="loss/total",
            unit="loss",
            formula="sum_T w sum_k coefficient_k term_k",
            mask="the batch of an update",
            reduction="mean over the step's updates",
            meaning=(
                "What the optimizer minimises. Near 0 is either normal or "
                "no signal: advantage/absolute says which."
            ),
            read_with=("advantage/absolute", "optimizer/grad_norm", "groups/uniform"),
        ),
        MetricSpec(
            key="loss/{term}",
            unit="loss",
            formula="sum_T w coefficient term",
            mask="the batch of an update",
            reduction="mean over the step's updates",
            meaning="One term's share of the loss, coefficient included; the shares add up to loss/total.",
            read_with=("loss/total", "coefficient/{term}"),
        ),
        MetricSpec(
            key="coefficient/{term}",
            unit="1",
            formula="the term's coefficient",
            mask="the step",
            reduction="mean",
            meaning=(
                "How much the term weighs in the loss; moves only where "
                "it is adapted, as an entropy bonus may be."
            ),
            read_with=("loss/{term}", "policy/entropy"),
        ),
    ),
)

OPTIMIZER = Section(
    "Optimizer",
    "One update is one optimizer step; a step of the loop may have several.",
    (
        MetricSpec(
            key="optimizer/updates",
            unit="updates",
            formula="number of updates applied",
            mask="the step",
            reduction="sum",
            meaning=(
                "Optimizer steps taken. With 1, on fresh rollouts, ratio is 1 and no clip or gate can act."
            ),
            read_with=("optimizer/skipped", "clip/removed", "gate/mass"),
        ),
        MetricSpec(
            key="optimizer/skipped",
            unit="updates",
            formula="number of updates not applied",
            mask="the step",
            reduction="sum",
            meaning=(
                "Updates skipped: nothing to train on, or something not finite. events.jsonl has the reasons."
            ),
            read_with=("optimizer/updates", "advantage/absolute"),
            healthy="0",
        ),
        MetricSpec(
            key="optimizer/grad_norm",
            unit="norm",
            formula="global L2 norm before clipping",
            mask="the policy's parameters",
            reduction="mean over the step's updates",
            meaning="Size of the gradient. Above 0 with a loss of 0 is normal; 0 is no signal.",
            read_with=("optimizer/grad_norm_max", "advantage/absolute"),
            healthy="steady, without spikes of ten times its median",
        ),
        MetricSpec(
            key="optimizer/grad_norm_max",
            unit="norm",
            formula="largest global L2 norm before clipping",
            mask="the policy's parameters",
            reduction="maximum over the step's updates",
            meaning="The largest gradient of the step.",
            read_with=("optimizer/grad_norm",),
        ),
        MetricSpec(
            key="optimizer/critic_grad_norm",
            unit="norm",
            formula="global L2 norm before clipping",
            mask="the critic's parameters; only with a critic",
            reduction="mean over the step's updates",
            meaning="Size of the critic's gradient.",
            read_with=("value/explained_variance",),
        ),
        MetricSpec(
            key="optimizer/learning_rate",
            unit="1",
            formula="the schedule's value",
            mask="the policy's parameters",
            reduction="mean over the step's updates",
            meaning="The learning rate used. The schedule counts updates, not draws or epochs.",
            read_with=("kl/old_k3", "optimizer/grad_norm"),
        ),
    ),
)


def _value(
    name: str, unit: str, formula: str, meaning: str, healthy: str = "", reduction: str = ""
) -> MetricSpec:
    return MetricSpec(
        key=f"value/{name}",
        unit=unit,
        formula=formula,
        mask="trained tokens, over all updates of the step; only with a critic",
        reduction=reduction or "sum and count",
        meaning=meaning,
        read_with=others(
            f"value/{name}", "value/explained_variance", "loss/{term}", "optimizer/critic_grad_norm"
        ),
        healthy=healthy,
    )


VALUE = Section(
    "Critic",
    "V is what the critic said before the step's updates, R the returns it was trained towards.",
    (
        _value(
            "explained_variance",
            "share",
            "1 - Var(R - V) / Var(R)",
            (
                "How much of the returns the critic foresaw: 1 all, 0 no "
                "more than a constant, below 0 worse than that."
            ),
            "rising above 0 within the first tens of steps",
            "count, mean, m2 of two columns",
        ),
        _value(
            "clipped",
            "share",
            "mean 1[value loss cut]",
            "Share of tokens whose value loss the clip cut.",
            "below 0.2",
        ),
        _value("mean", "reward", "mean V", "What the critic expects.", "near value/return"),
        _value("return", "reward", "mean R", "What came.", ""),
    ),
)

COST = Section(
    "Time and memory",
    "Wall-clock of this machine; never part of what two equal runs must agree on.",
    (
        MetricSpec(
            key="seconds/step",
            unit="seconds",
            formula="wall-clock",
            mask="the whole step",
            reduction="sum",
            meaning="Duration of the step, everything included.",
            read_with=("seconds/{stage}",),
        ),
        MetricSpec(
            key="seconds/{stage}",
            unit="seconds",
            formula="wall-clock",
            mask="one stage of the step",
            reduction="sum",
            meaning=(
                "Duration of a stage: sample, grade, annotate, advantages, update, sync, probe, record. "
                "Grading overlaps sampling: grade is its work here and the wait after the last answer."
            ),
            read_with=("seconds/step", "tokens_per_second/{stage}"),
        ),
        MetricSpec(
            key="seconds/update/{part}",
            unit="seconds",
            formula="wall-clock",
            mask="a part of the step's updates",
            reduction="sum",
            meaning="Where an update spends its time, as the trainer reports it.",
            read_with=("seconds/{stage}",),
        ),
        MetricSpec(
            key="seconds/rewards_share",
            unit="share",
            formula="seconds of grading / seconds of the step",
            mask="the step",
            reduction="two sums",
            meaning=(
                "Share of the time that goes into rewards; high with slow graders, which can run in parallel."
            ),
            read_with=("seconds/{stage}",),
            healthy="below 0.2",
        ),
        MetricSpec(
            key="tokens_per_second/{stage}",
            unit="tokens a second",
            formula="response tokens / seconds",
            mask="one stage of the step",
            reduction="two sums",
            meaning="Throughput of a stage, in response tokens.",
            read_with=("seconds/{stage}", "length/mean"),
        ),
        MetricSpec(
            key="memory/resident_bytes",
            unit="bytes",
            formula="resident set, at the end of the step",
            mask="this process",
            reduction="maximum",
            meaning="Main memory in use. Steady growth over many steps is a leak.",
            read_with=("memory/peak_bytes",),
            healthy="flat after the first steps",
        ),
        MetricSpec(
            key="memory/peak_bytes",
            unit="bytes",
            formula="largest resident set since the process began",
            mask="this process",
            reduction="maximum",
            meaning="The most main memory used so far.",
            read_with=("memory/resident_bytes",),
        ),
        MetricSpec(
            key="memory/device_peak_bytes",
            unit="bytes",
            formula="largest allocation on the accelerator since the run began",
            mask="this process; only with an accelerator",
            reduction="maximum",
            meaning="The most accelerator memory allocated so far.",
            read_with=("memory/peak_bytes",),
        ),
    ),
)


def _evaluation(name: str, unit: str, formula: str, meaning: str) -> MetricSpec:
    return MetricSpec(
        key=f"evaluation/{name}",
        unit=unit,
        formula=formula,
        mask="held-out prompts; read from the events of evaluations, not from metrics.jsonl",
        reduction="one value an evaluation",
        meaning=meaning,
        read_with=others(f"evaluation/{name}", "pass/at_1", "reward/outcome"),
        healthy=(
            "rising with the training curve; falling while training rises is overfitting or a hacked reward"
        ),
        source="arXiv 2107.03374, eq. 1" if "pass" in name else "",
    )


EVALUATION = Section(
    "Evaluation",
    "Held-out prompts with the sampler of evaluation; intervals are 95%, over prompts.",
    (
        _evaluation("pass@{k}", "share", "mean over prompts of 1 - C(n-c, k)/C(n, k)", "Unbiased pass@k."),
        _evaluation("pass@{k}_low", "share", "lower end of the interval", "Lower end of pass@k's interval."),
        _evaluation("pass@{k}_high", "share", "upper end of the interval", "Upper end of pass@k's interval."),
        _evaluation(
            "maj@{k}",
            "share",
            "mean over prompts of 1[the most voted answer is right]",
            "Majority of k answers.",
        ),
        _evaluation("maj@{k}_low", "share", "lower end of the interval", "Lower end of maj@k's interval."),
        _evaluation("maj@{k}_high", "share", "upper end of the interval", "Upper end of maj@k's interval."),
        _evaluation(
            "train_gap",
            "share",
            "pass/at_1 over the steps since the evaluation before - evaluation/pass@1",
            "How much better the policy does on the prompts of training than on held-out ones. Compare it "
            "with its first value: prompts may differ in difficulty, samplers in temperature.",
        ),
        _evaluation("mean_length", "tokens", "mean |y|", "Mean length of the held-out answers."),
        _evaluation("truncated", "share", "mean 1[finish != stop]", "Share of held-out answers cut off."),
        _evaluation(
            "ungraded",
            "share",
            "answers without a grade / answers",
            "Share of held-out answers without a grade.",
        ),
    ),
)

SECTIONS = (LOSS, OPTIMIZER, VALUE, COST, EVALUATION)
