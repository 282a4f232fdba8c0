"""The trust region of a run's algorithm as a page draws it: its bounds, and the gate over ratios."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
from typing import Any

import torch

from trimtab.algorithms import build_algorithm
from trimtab.algorithms.algorithm import Algorithm
from trimtab.errors import TrimtabError
from trimtab.objectives.policy import PolicyGradient
from trimtab.objectives.surrogate import Clip, ClippedWeight, DualClip, SignDecoupledClip, Surrogate
from trimtab.record.reader import RunReader

GATE_POINTS = 120
"""Points of the gate on each side of ratio 1."""

NEAREST, FARTHEST = 1e-6, math.log(10.0)
"""The smallest and the largest |log ratio| drawn: the bounds of a sequence ratio lie near 1e-4."""

WIDEST = 3.0
"""How far from 1 the gate is worth drawing where nothing else says it."""

Bound = tuple[float, str]


def recorded_algorithm(reader: RunReader) -> Algorithm | None:
    """The run's algorithm, rebuilt from its settings; None where they do not say (an imported run)."""
    settings = reader.run.get("run") or {}
    table, sampling = dict(settings.get("algorithm") or {}), settings.get("sampling") or {}
    try:
        return build_algorithm(
            {key: value for key, value in table.items() if key != "allow"},
            max_new_tokens=int(sampling["max_new_tokens"]),
            samples_per_prompt=int(sampling["samples_per_prompt"]),
            allow=tuple(table.get("allow", ())),
        )
    except (KeyError, TypeError, ValueError, TrimtabError):
        return None


def region(reader: RunReader) -> dict[str, Any] | None:
    """``algorithm``, ``told`` in words, ``cuts``: whether gates can be 0, ``sequence``: whether one ratio is
    shared by an answer, ``bounds`` [ratio, label], ``span`` [from, to] and ``gate``; None where unknown.
    """
    algorithm = recorded_algorithm(reader)
    if algorithm is None:
        return None
    policy = next((t for _, t in algorithm.objective.terms if isinstance(t, PolicyGradient)), None)
    if policy is None:
        return None
    found = bounds(policy.surrogate)
    return {
        "algorithm": algorithm.name,
        "told": str(policy.surrogate),
        "cuts": isinstance(policy.surrogate, Clip | DualClip | SignDecoupledClip),
        "sequence": getattr(policy.ratio, "__name__", "").startswith("sequence"),
        "needs": sorted(algorithm.needs),
        "bounds": found,
        "span": span(found),
        "gate": gate_curve(policy.surrogate),
    }


def bounds(surrogate: Surrogate) -> list[Bound]:
    """Ratios at which the gate breaks, each with the side that it cuts. A soft gate has none."""
    match surrogate:
        case Clip(low, high):
            return [(1 - low, f"1 - {low:g}: A < 0 cut below"), (1 + high, f"1 + {high:g}: A > 0 cut above")]
        case DualClip(low, high, cap):
            return [*bounds(Clip(low, high)), (cap, f"{cap:g}: A < 0 cut above")]
        case SignDecoupledClip(pos, neg, _, bound):
            above = (1 + pos, f"1 + {pos:g}: A > 0 cut above")
            if bound == "min":
                return [(1 - neg, f"1 - {neg:g}: A < 0 cut below"), above]
            return [above, (1 + neg, f"1 + {neg:g}: A < 0 cut above")]
        case ClippedWeight(low, high):
            below = [(1 - low, f"weight at least {1 - low:g}")] if low < 1.0 else []
            return [*below, (1 + high, f"weight at most {1 + high:g}")]
        case _:
            return []


def span(found: list[Bound]) -> tuple[float, float]:
    """The ratios that a drawing of the gate covers: three times as far from 1 as the bounds."""
    reach = min(3.0 * max((abs(at - 1.0) for at, _ in found), default=WIDEST), 2.0 * WIDEST)
    return max(0.0, 1.0 - reach), 1.0 + reach


def gate_curve(surrogate: Surrogate) -> dict[str, list[float]]:
    """The gate for a positive and for a negative advantage, over ratios that lie closer near 1."""
    far = torch.logspace(math.log10(NEAREST), math.log10(FARTHEST), GATE_POINTS, dtype=torch.float64)
    edges = torch.tensor([at for at, _ in bounds(surrogate) if at > 0], dtype=torch.float64)
    both = torch.cat([torch.exp(-far), torch.ones(1, dtype=torch.float64), torch.exp(far)])
    ratio = torch.sort(torch.cat([both, edges * (1 - 1e-9), edges * (1 + 1e-9)])).values
    one = torch.ones_like(ratio)
    return {
        "ratio": [float(f"{value:.12g}") for value in ratio.tolist()],
        "positive": _short(surrogate.gate(ratio, one).tolist()),
        "negative": _short(surrogate.gate(ratio, -one).tolist()),
    }


def _short(values: list[float]) -> list[float]:
    return [float(f"{value:.5g}") for value in values]
