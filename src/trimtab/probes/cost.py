"""Time, memory, and how sampling and training shared the time, as metrics."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping

from trimtab.metrics import Max, Mean, Metrics, Sum

GRADING = ("grade",)
"""Stages whose time goes into rewards."""


def time_metrics(
    stages: Mapping[str, float], *, step: float, tokens: Mapping[str, int] | None = None
) -> Metrics:
    """``seconds/*`` and ``tokens_per_second/*`` of one step.

    stages: stage -> seconds; step: seconds of the whole step; tokens: stage -> response tokens it worked on.
    """
    metrics: Metrics = {f"seconds/{stage}": Sum(seconds) for stage, seconds in stages.items()}
    metrics["seconds/step"] = Sum(step)
    grading = [stages[stage] for stage in GRADING if stage in stages]
    if grading:
        metrics["seconds/rewards_share"] = Mean(sum(grading), step)
    for stage, count in (tokens or {}).items():
        metrics[f"tokens_per_second/{stage}"] = Mean(float(count), stages.get(stage, 0.0))
    return metrics


def pace_metrics(
    *, queue: int, trainer_wait: float, sampler_wait: float, hidden: float, collection: float
) -> Metrics:
    """``async/*``: how sampling and training of a step went on beside each other.

    queue: collected steps that waited; trainer_wait, sampler_wait: seconds that either stood still; hidden:
    of the ``collection`` seconds of the step's collection those during which training did not wait.
    """
    return {
        "async/queue": Mean.of(queue),
        "async/trainer_wait": Sum(trainer_wait),
        "async/sampler_wait": Sum(sampler_wait),
        "async/overlap": Mean(min(hidden, collection), collection),
    }


def memory_metrics(*, resident: int | None, peak: int | None, device_peak: int | None = None) -> Metrics:
    """``memory/*`` in bytes; what could not be read (None) is left out."""
    sizes = {"resident_bytes": resident, "peak_bytes": peak, "device_peak_bytes": device_peak}
    return {f"memory/{name}": Max(float(size)) for name, size in sizes.items() if size is not None}
