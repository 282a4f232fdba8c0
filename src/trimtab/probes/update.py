"""What one update did: from its batch and report to metrics.

Everything is taken over trained tokens, in float64, on unclamped log-ratios. A step with several
updates joins theirs with ``trimtab.metrics.merge``.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from trimtab.metrics import (
    Bins,
    EffectiveShare,
    ExplainedVariance,
    Histogram,
    Max,
    Mean,
    Metrics,
    Sum,
)
from trimtab.probes.correction import correction_metrics
from trimtab.probes.region import clip_metrics, gate_metrics, ratio_metrics
from trimtab.probes.tokens import Column, TrainedTokens
from trimtab.types import Batch, StepReport

ADVANTAGE_BINS = Bins("linear", -5.0, 5.0, 100)
ENTROPY_BINS = Bins("log", 1e-4, 16.0, 64)


def update_metrics(batch: Batch, report: StepReport) -> Metrics:
    """Everything an update can be asked: signal, ratio, gate, clip, KL, critic, loss, optimizer.

    batch: the whole update's, with its columns; without ``weights_T`` only ``gate/mass`` is missing.
    The keys of ``trimtab.catalog.DISTRIBUTIONS`` hold a Histogram, whose value is the mean. An update
    that was skipped before its forward pass has no trace: then only the optimizer's part is there.
    """
    tokens = TrainedTokens.of(batch, report.trace)
    if not len(tokens.seq_N):
        return signal_metrics(tokens) | optimizer_metrics(report)
    return {
        **signal_metrics(tokens),
        **ratio_metrics(tokens),
        **gate_metrics(tokens),
        **clip_metrics(tokens),
        **kl_metrics(tokens),
        **value_metrics(tokens),
        **routing_metrics(tokens),
        **correction_metrics(batch),
        **loss_metrics(report),
        **optimizer_metrics(report),
    }


def signal_metrics(tokens: TrainedTokens) -> Metrics:
    """``advantage/*`` and ``policy/entropy``."""
    metrics: Metrics = {}
    trained = tokens.silent + len(tokens.seq_N)
    if tokens.new_N is not None:
        metrics["advantage/silent"] = Mean(float(tokens.silent), float(trained))
    if tokens.entropy_N is not None:
        metrics["policy/entropy"] = Histogram.of(tokens.entropy_N, ENTROPY_BINS)
    if tokens.advantage_M is not None:
        sizes = np.abs(tokens.advantage_M)
        metrics["advantage/token"] = Histogram.of(tokens.advantage_M, ADVANTAGE_BINS)
        metrics["advantage/absolute"] = Mean.of(sizes)
        metrics["advantage/max"] = Max.of(sizes)
        metrics["advantage/positive"] = Mean.of(tokens.advantage_M > 0)
        metrics["advantage/negative"] = Mean.of(tokens.advantage_M < 0)
    return metrics


def kl_metrics(tokens: TrainedTokens) -> Metrics:
    """``kl/old_*`` and ``kl/reference_*``, always per token."""
    metrics: Metrics = {}
    if tokens.log_ratio_N is not None:
        metrics["kl/old_k1"] = Mean.of(-tokens.log_ratio_N)
        metrics["kl/old_k3"] = Mean.of(k3(tokens.log_ratio_N))
    if tokens.new_N is not None and tokens.ref_N is not None:
        metrics["kl/reference_k1"] = Mean.of(tokens.new_N - tokens.ref_N)
        metrics["kl/reference_k3"] = Mean.of(k3(tokens.ref_N - tokens.new_N))
    return metrics


def value_metrics(tokens: TrainedTokens) -> Metrics:
    """``value/*``, where there is a critic."""
    metrics: Metrics = {}
    if tokens.value_N is not None and tokens.return_N is not None:
        metrics["value/explained_variance"] = ExplainedVariance.of(tokens.value_N, tokens.return_N)
        metrics["value/mean"] = Mean.of(tokens.value_N)
        metrics["value/return"] = Mean.of(tokens.return_N)
    if tokens.value_clipped_N is not None:
        metrics["value/clipped"] = Mean.of(tokens.value_clipped_N)
    return metrics


def routing_metrics(tokens: TrainedTokens) -> Metrics:
    """``routing/*`` of a mixture of experts, over the tokens whose old experts are known (not NaN)."""
    if tokens.routing_N is None:
        return {}
    shares = tokens.routing_N[~np.isnan(tokens.routing_N)]
    return {"routing/agreement": Mean.of(shares), "routing/tokens_changed": Mean.of(shares < 1.0)}


def loss_metrics(report: StepReport) -> Metrics:
    """``loss/total`` and each term's share; nothing where no loss was computed."""
    shares = {f"loss/{term}": Mean.of(loss) for term, loss in report.losses.items()}
    return {"loss/total": Mean.of(report.loss), **shares} if shares else {}


def optimizer_metrics(report: StepReport) -> Metrics:
    """``optimizer/*`` and ``seconds/update/*`` of one update."""
    metrics: Metrics = {
        "optimizer/updates": Sum(float(report.applied)),
        "optimizer/skipped": Sum(float(not report.applied)),
    }
    if report.applied:
        metrics["optimizer/learning_rate"] = Mean.of(report.learning_rate)
    if report.grad_norm is not None:
        metrics["optimizer/grad_norm"] = Mean.of(report.grad_norm)
        metrics["optimizer/grad_norm_max"] = Max.of(report.grad_norm)
    if report.critic_grad_norm is not None:
        metrics["optimizer/critic_grad_norm"] = Mean.of(report.critic_grad_norm)
    for part, seconds in report.seconds.items():
        metrics[f"seconds/update/{part}"] = Sum(seconds)
    return metrics


def coefficient_metrics(coefficients: Mapping[str, float]) -> Metrics:
    """``coefficient/*``: what each term of the objective weighs, by the term's name."""
    return {f"coefficient/{term}": Mean.of(coefficient) for term, coefficient in coefficients.items()}


def mismatch_metrics(batch: Batch, version: int | None = None) -> Metrics:
    """``mismatch/*``: the sampler's log-probabilities against the trainer's (``old_logprobs_T``).

    version: policy version that annotated the batch. Answers that hold tokens of an older version are
    left out, because there the weights differ and not the machines. None compares all.
    """
    tokens = TrainedTokens.of(batch)
    if tokens.old_N is None:
        return {}
    trainer_N, sampler_N = tokens.old_N, tokens.sampler_N
    if version is not None:
        fresh_N = (batch.version_S.cpu().numpy() == version)[tokens.seq_N]
        trainer_N, sampler_N = trainer_N[fresh_N], sampler_N[fresh_N]
    log_ratio = trainer_N - sampler_N
    with np.errstate(over="ignore", invalid="ignore"):
        gaps = np.abs(np.exp(trainer_N) - np.exp(sampler_N))
        weights = np.exp(log_ratio)
    return {
        "mismatch/probability": Mean.of(gaps),
        "mismatch/probability_max": Max.of(gaps),
        "mismatch/logprob": Mean.of(np.abs(log_ratio)),
        "mismatch/logprob_max": Max.of(np.abs(log_ratio)),
        "mismatch/k1": Mean.of(-log_ratio),
        "mismatch/k3": Mean.of(k3(log_ratio)),
        "mismatch/ess": EffectiveShare.of(weights),
    }


def k3(log_ratio: Column) -> Column:
    """exp(d) - 1 - d, never negative, exact for small d; not clamped."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.expm1(log_ratio) - log_ratio
