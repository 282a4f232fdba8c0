"""The rollouts of a step, group by group, and every token of one of them."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from trimtab.algorithms import build_algorithm
from trimtab.algorithms.algorithm import Algorithm
from trimtab.dashboard.pieces import pieces
from trimtab.dashboard.region import recorded_algorithm
from trimtab.dashboard.store import OpenRun
from trimtab.doctor.whatif import reweigh
from trimtab.errors import DataError
from trimtab.record.rows import RolloutRow
from trimtab.record.schema import SAMPLED_COLUMNS, TRAINED_COLUMNS

CUT = 1e-6
"""A gate at or below this lets no gradient through."""

COLUMNS = tuple(
    column.name for column in (*SAMPLED_COLUMNS, *TRAINED_COLUMNS) if not column.name.endswith("ids")
)

MOST_TEXT = 8_000_000
LEAST_TEXT, MOST_OF_ONE = 2000, 20_000
"""Characters that the list of a step's rollouts carries: in all, and of one answer at least and at most."""


def groups(run: OpenRun, step: int) -> dict[str, Any]:
    """The groups of a step with their rollouts, without values per token. Raises DataError where none are."""
    found: dict[str, dict[str, Any]] = {}
    rows = run.rollouts(step)
    shown = max(LEAST_TEXT, min(MOST_OF_ONE, MOST_TEXT // max(1, len(rows))))
    for row in rows:
        if row.group not in found:
            found[row.group] = {
                "key": row.group,
                "prompt_id": row.prompt_id,
                "draw": row.draw,
                "task": row.task,
                "prompt": row.prompt,
                "answer": row.answer,
                "kept": row.kept,
                "reason": row.reason,
                "carried": row.carried,
                "flag": row.flag,
                "rollouts": [],
            }
        found[row.group]["rollouts"].append(_listed(row, shown))
    return {"step": step, "groups": list(found.values())}


def _listed(row: RolloutRow, shown: int) -> dict[str, Any]:
    """``characters`` is the whole length of a text that is cut."""
    return {
        "key": row.key,
        "index": row.index,
        "text": row.text[:shown],
        "characters": len(row.text),
        "finish": None if row.finish is None else row.finish.value,
        "length": row.length,
        "grade": None if row.grade is None else row.grade.value,
        "value": row.value,
        "parts": dict(row.parts),
        "detail": row.detail,
        "reward": row.reward,
        "shaping": row.shaping,
        "advantage": row.advantage,
        "weight": row.weight,
        "update": row.update,
        "trained_tokens": row.trained_tokens,
        "versions": [list(span) for span in row.versions],
        **_gates(row),
    }


def _gates(row: RolloutRow) -> dict[str, Any]:
    """Of the trained tokens with an advantage: mean gate and the share whose gradient is gone."""
    tokens = row.tokens
    if tokens is None or tokens.gates is None or tokens.trained is None or tokens.advantages is None:
        return {"has_tokens": tokens is not None}
    seen = tokens.gates[tokens.trained & (tokens.advantages != 0.0) & ~np.isnan(tokens.gates)]
    if not len(seen):
        return {"has_tokens": True}
    return {"has_tokens": True, "gate": float(seen.mean()), "clipped": float((seen <= CUT).mean())}


def tokens(run: OpenRun, step: int, key: str, as_algorithm: str | None) -> dict[str, Any]:
    """Every token of a rollout: pieces of text and one list a column; ``other`` under another algorithm.

    Raises DataError where the step has no such rollout or its tokens were not recorded.
    """
    rows = run.rollouts(step)
    row = next((row for row in rows if row.key == key), None)
    if row is None:
        raise DataError(f"step {step} of {run.id} has no recorded rollout {key!r}")
    if row.tokens is None:
        raise DataError(
            f"the tokens of {key} were not recorded: record.tokens keeps them for a part of the groups and "
            'for flagged ones; set record.tokens = "all" to keep all'
        )
    ids = row.tokens.token_ids.tolist()
    return {
        **_listed(row, len(row.text)),
        "group": row.group,
        "prompt": row.prompt,
        "answer": row.answer,
        "flag": row.flag,
        "ids": ids,
        "pieces": [list(piece) for piece in pieces(ids, decoder(run))],
        "columns": columns(row),
        "other": _other(run, rows, key, as_algorithm) if as_algorithm else None,
    }


def columns(row: RolloutRow) -> dict[str, list[Any]]:
    """Values per token by name; a number that is not finite is null. ``change`` is new minus old."""
    held = row.tokens
    assert held is not None, "asked for rows with tokens only"
    found = {name: _plain(getattr(held, name)) for name in COLUMNS if getattr(held, name) is not None}
    if held.new_logprobs is not None and held.old_logprobs is not None:
        found["change"] = _plain(held.new_logprobs - held.old_logprobs)
    return found


def _other(run: OpenRun, rows: list[RolloutRow], key: str, name: str) -> dict[str, Any]:
    own = recorded_algorithm(run.reader)
    seen = reweigh(rows, other_algorithm(run, name), own=own)
    found = seen.rollouts.get(key)
    if found is None:
        raise DataError(f"{key} was not trained on in this step, so no algorithm gave its tokens a gate")
    return {
        "algorithm": seen.algorithm,
        "advantages": seen.advantages,
        "columns": {
            "ratios": _plain(found.ratio_T),
            "gates": _plain(found.gate_T),
            "advantages": _plain(found.advantages_T),
            "weights": _plain(found.weight_T),
            "shares": _plain(found.gradient_share_T),
        },
    }


def other_algorithm(run: OpenRun, name: str) -> Algorithm:
    """A preset by its name, with the run's own limits and its own defaults."""
    sampling: Mapping[str, Any] = (run.reader.run.get("run") or {}).get("sampling") or {}
    return build_algorithm(
        {"name": name},
        max_new_tokens=int(sampling.get("max_new_tokens", 1 << 20)),
        samples_per_prompt=int(sampling.get("samples_per_prompt", 8)),
    )


def decoder(run: OpenRun) -> Callable[[list[int]], str]:
    """Decodes with the run's own tokenizer; where the record has none, each id stands for itself."""
    if "decoder" not in run.kept:
        run.kept["decoder"] = _decoder(run)
    return run.kept["decoder"]


def _decoder(run: OpenRun) -> Callable[[list[int]], str]:
    folder = run.reader.folder.tokenizer
    file = folder / "tokenizer.json"
    if not file.exists():
        return lambda ids: "".join(f"⟨{token}⟩" for token in ids)
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(file))
    return lambda ids: tokenizer.decode(ids, skip_special_tokens=False)


def _plain(values: Any) -> list[Any]:
    array = np.asarray(values)
    if array.dtype == bool:
        return array.tolist()
    finite = np.isfinite(array)
    return [
        float(f"{x:.6g}") if good else None for x, good in zip(array.tolist(), finite.tolist(), strict=True)
    ]
