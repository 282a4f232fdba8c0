"""The last word of a run, summary.json, and its seconds by stage as a table."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trimtab.record.jsonl import plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a finished run comes to.

    start, final: evaluations, as ``Evaluation.summary`` gives them; None where there was none.
    steps: steps done; tokens: response tokens sampled in training.
    train_seconds: the loop without evaluations; stages: its seconds by stage, over the whole run, resumed
    parts included; total_seconds: everything, start-up included.
    """

    algorithm: str
    start: Mapping[str, Any] | None
    final: Mapping[str, Any] | None
    steps: int
    tokens: int
    train_seconds: float
    evaluation_seconds: float
    total_seconds: float
    stages: Mapping[str, float]
    peak_memory_bytes: int

    def to_json(self) -> dict[str, Any]:
        evaluations = {"start": self.start, "final": self.final}
        return plain(
            {
                "algorithm": self.algorithm,
                "evaluation": {name: found for name, found in evaluations.items() if found is not None},
                "steps": self.steps,
                "tokens": self.tokens,
                "seconds": {
                    "train": self.train_seconds,
                    "evaluation": self.evaluation_seconds,
                    "total": self.total_seconds,
                    "stages": self.stages,
                },
                "peak_memory_bytes": self.peak_memory_bytes,
            }
        )


EVALUATION_PARTS = ("mean_length", "truncated", "train_gap")


def evaluation_values(evaluation: Mapping[str, Any]) -> dict[str, float]:
    """``evaluation/*`` of the catalogue from what events.jsonl and summary.json keep of an evaluation.

    ``NAME_interval = [low, high]`` becomes ``NAME_low`` and ``NAME_high``.
    """
    found: dict[str, float] = {}
    for name, value in evaluation.items():
        if name.startswith(("pass@", "maj@")) and name.endswith("_interval"):
            stem = name.removesuffix("_interval")
            found[f"{stem}_low"], found[f"{stem}_high"] = value
        elif name.startswith(("pass@", "maj@")) or name in EVALUATION_PARTS:
            found[name] = value
    if "ungraded" in evaluation and evaluation.get("answers"):
        found["ungraded"] = evaluation["ungraded"] / evaluation["answers"]
    return {f"evaluation/{name}": float(value) for name, value in found.items()}


def stage_table(stages: Mapping[str, float], total: float) -> str:
    """Seconds and share of each stage, largest first; what no stage accounts for is the last line.

    sample      41.20 s   52.1%
    """
    rows = sorted(stages.items(), key=lambda row: -row[1])
    rest = total - sum(stages.values())
    rows += [("(other)", rest)] if abs(rest) > 5e-3 else []
    width = max((len(stage) for stage, _ in rows), default=0)
    share = 100.0 / total if total > 0 else 0.0
    return "\n".join(f"{stage:<{width}} {s:>10.2f} s {s * share:>6.1f}%" for stage, s in rows)
