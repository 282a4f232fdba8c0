"""Cases for the doctor made by hand: metrics as lists or levels, rollouts as rows, a run's own tables."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.doctor.case import Case, Rollouts
from trimtab.doctor.setup import setup_of
from trimtab.record.findings import Finding, Outcome
from trimtab.record.history import History
from trimtab.record.rows import RolloutRow, TokenRow
from trimtab.types import Finish, GradeState, VersionSpan

HEALTHY = Path(__file__).parent / "histories" / "healthy.json"
"""Metrics of healthy runs of the quickstart, one for each algorithm, as the record has them, rounded."""

Values = Mapping[str, float | Sequence[float]]


def run_tables(algorithm: str | Mapping[str, Any] = "grpo", **sections: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of a run.json; ``sections`` are laid over them."""
    tree: dict[str, dict[str, Any]] = {
        "algorithm": {"name": algorithm} if isinstance(algorithm, str) else dict(algorithm),
        "sampling": {"samples_per_prompt": 8, "max_new_tokens": 56, "temperature": 1.0},
        "trainer": {"updates_per_step": 4, "epochs": 1, "learning_rate": 3e-4, "critic_learning_rate": 1e-3},
        "reward": {"timeout": 30.0},
    }
    for name, section in sections.items():
        tree[name] = {**tree.get(name, {}), **section}
    return tree


def history_of(values: Values, steps: int = 20) -> History:
    """A level stands in every step; a list is one value a step."""
    history = History()
    for step in range(steps):
        history.append(
            step,
            float(step),
            {k: float(v) if np.isscalar(v) else float(v[step]) for k, v in values.items()},
        )
    return history


def case_with(
    values: Values | None = None,
    *,
    steps: int = 20,
    run: Mapping[str, Any] | None = None,
    rows: Mapping[int, Sequence[RolloutRow]] | None = None,
    **given: Any,
) -> Case:
    rows = rows or {}
    return Case(
        history=history_of(values or {}, steps),
        setup=setup_of(run_tables() if run is None else run),
        rollouts=Rollouts(tuple(sorted(rows)), lambda step: rows[step]),
        **given,
    )


def ramp(start: float, end: float, steps: int = 20, noise: float = 0.0) -> list[float]:
    """A line with a fixed wiggle, so that nothing is exactly smooth."""
    wiggle = noise * np.sin(2.1 * np.arange(steps))
    return (np.linspace(start, end, steps) + wiggle).tolist()


def row(
    index: int = 0,
    *,
    group: str = "p-0#0",
    step: int = 0,
    text: str = "3+4=7\n#7",
    answer: Any = "7",
    value: float | None = 1.0,
    finish: Finish = Finish.STOP,
    length: int = 8,
    tokens: TokenRow | None = None,
    **changes: Any,
) -> RolloutRow:
    state = GradeState.GRADER_FAILED if value is None else GradeState.WRONG
    if value is not None and value > 0:
        state = GradeState.RIGHT if value >= 1 else GradeState.PARTIAL
    fields: dict[str, Any] = {
        "step": step, "group": group, "prompt_id": group.partition("#")[0], "draw": 0, "index": index,
        "task": "sums", "kept": True, "reason": "mixed", "carried": False, "flag": None,
        "prompt": f"{group}: 3+4=?", "answer": answer, "text": text, "finish": finish, "length": length,
        "seed": hash((group, index)) % 10**9, "versions": (VersionSpan(step, 0, length),), "grade": state,
        "value": value, "parts": {"answer": value or 0.0}, "detail": "", "reward": value, "shaping": 0.0,
        "update": 4 * step, "trained_tokens": length, "advantage": 0.5, "weight": 0.1, "tokens": tokens,
    }  # fmt: skip
    return RolloutRow(**{**fields, **changes})


def tokens_of(
    sampler: Sequence[float],
    *,
    new: Sequence[float] | None = None,
    old: Sequence[float] | None = None,
    trained: Sequence[bool] | None = None,
    prompt: Sequence[int] = (5, 6, 7),
    **columns: Sequence[float],
) -> TokenRow:
    n = len(sampler)
    sampled = np.asarray(sampler, dtype=np.float32)
    names = ("ref_logprobs", "ratios", "gates", "advantages", "weights", "entropies", "values", "returns")
    return TokenRow(
        prompt_token_ids=np.asarray(prompt),
        token_ids=np.arange(n),
        mask=np.ones(n, dtype=np.bool_),
        sampler_logprobs=sampled,
        trained=np.ones(n, dtype=np.bool_) if trained is None else np.asarray(trained),
        old_logprobs=sampled if old is None else np.asarray(old, dtype=np.float32),
        new_logprobs=sampled if new is None else np.asarray(new, dtype=np.float32),
        **{name: np.asarray(columns[name]) if name in columns else None for name in names},
    )


def healthy_cases() -> dict[str, Case]:
    """By algorithm, from ``HEALTHY``."""
    stored = json.loads(HEALTHY.read_text(encoding="utf-8"))
    return {
        name: case_with(entry["metrics"], steps=entry["steps"], run=entry["run"])
        for name, entry in stored.items()
    }


def first_cause(finding: Finding) -> str:
    return finding.causes[0].name


def is_found(finding: Finding) -> bool:
    return finding.outcome is Outcome.FOUND


def is_skipped(finding: Finding) -> bool:
    return finding.outcome is Outcome.SKIPPED
