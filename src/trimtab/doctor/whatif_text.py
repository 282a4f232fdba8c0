"""The comparison as lines for a terminal, and as a JSON tree."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.doctor.whatif import Reweighed, ReweighedRollout
from trimtab.doctor.whatif_recorded import Tally, tally
from trimtab.evaluation.useful import UsefulShare

RECORDED = "as it was"
MANY_TOKENS = 200


@dataclass(frozen=True, slots=True)
class Column:
    """One algorithm of the comparison: heading, its pieces in words, and what it makes of the tokens."""

    label: str
    pieces: Mapping[str, str]
    found: Reweighed


def summary_lines(columns: Sequence[Column]) -> Iterator[str]:
    """A row for each question, a column for each algorithm; the first column is the run itself."""
    recorded = columns[0].found
    tallies = [tally(column.found, recorded) for column in columns]
    rows = [["", *(column.label for column in columns)]]
    names = list(dict.fromkeys(name for column in columns for name in column.pieces))
    rows += [[name, *(column.pieces.get(name, "") for column in columns)] for name in names]
    rows.append(["advantages", *(column.found.advantages for column in columns)])
    rows += [[name, *cells] for name, cells in _counts(tallies)]
    yield from _aligned(rows)
    for column in columns[1:]:
        if column.found.unseen:
            yield (
                f"{column.label} gives an advantage to {column.found.unseen:,} tokens that had none in the "
                "run, which did not look at them; they are left out"
            )


def _counts(tallies: Sequence[Tally]) -> Iterator[tuple[str, list[str]]]:
    yield "tokens cut", [_of(t.cut, t.moved) for t in tallies]
    yield "tokens damped", [_of(t.damped, t.moved) for t in tallies]
    yield "answers touched", [_of(t.answers_touched, t.answers) for t in tallies]
    yield "answers cut whole", [_of(t.answers_cut, t.answers) for t in tallies]
    yield "gradient mass left", ["-" if t.mass is None else f"{t.mass:.3f}" for t in tallies]
    yield "gradient on A > 0", ["-" if t.positive is None else f"{t.positive:.1%}" for t in tallies]
    elsewhere = ["-" if t.elsewhere is None else f"{t.elsewhere:.1%}" for t in tallies[1:]]
    yield "gradient elsewhere", ["", *elsewhere]


def rollout_lines(columns: Sequence[Column], limit: int) -> Iterator[str]:
    """The rollouts whose share of the gradient changes most: tokens cut / damped, mean gate, share."""
    recorded = columns[0].found.rollouts

    def change(key: str) -> float:
        shares = [column.found.rollouts[key].share for column in columns if key in column.found.rollouts]
        return max(shares) - min(shares)

    keys = sorted(recorded, key=change, reverse=True)[:limit]
    rows = [["rollout", "update", "A", "tokens", *(f"{c.label}: cut/damped gate share" for c in columns)]]
    for key in keys:
        own = recorded[key]
        trained = own.advantages_T[own.trained_T]
        cells = [key, str(own.update), f"{trained.mean():+.2f}" if len(trained) else "-", str(len(trained))]
        rows.append([*cells, *(_cell(column.found.rollouts.get(key)) for column in columns)])
    yield from _aligned(rows)
    if len(recorded) > limit:
        yield f"... and {len(recorded) - limit} more; --limit N shows more, --rollout KEY every token of one"


def token_lines(columns: Sequence[Column], key: str, texts: Sequence[str]) -> Iterator[str]:
    """Every token of one rollout: advantage, and for each algorithm ratio, gate, share in per mille.

    Of an answer of more than ``MANY_TOKENS`` tokens only those that any algorithm cuts or damps.
    """
    parts = [column.found.rollouts[key] for column in columns]
    touched = np.any([part.cut_T | part.damped_T for part in parts], axis=0)
    shown = range(len(texts)) if len(texts) <= MANY_TOKENS else np.flatnonzero(touched).tolist()
    rows = [["token", "text", "A", *(f"{column.label}: ratio gate share" for column in columns)]]
    for at in shown:
        cells = [str(at), texts[at], f"{parts[0].advantages_T[at]:+.2f}"]
        rows.append([*cells, *(_token_cell(part, at) for part in parts)])
    yield from _aligned(rows)
    if len(texts) > MANY_TOKENS:
        yield f"{len(texts)} tokens, of which those are shown that any algorithm cuts or damps"


def group_lines(label: str, shares: Sequence[UsefulShare], sampled: int) -> Iterator[str]:
    """Useful share and its cost by group size."""
    rows = [["answers a prompt", "useful groups", "95% interval", "answers a useful group", "", ""]]
    for share in shares:
        cost = "-" if share.answers_each is None else f"{share.answers_each:.1f}"
        interval = f"[{share.low:.3f}, {share.high:.3f}]"
        note = "as sampled" if share.size == sampled else ""
        rows.append([str(share.size), f"{share.value:.3f}", interval, cost, share.method, note])
    yield f"{label}, {max(share.prompts for share in shares)} groups:"
    yield from _aligned(rows)


def as_tree(columns: Sequence[Column], rollout: str | None = None) -> list[dict[str, Any]]:
    """One object an algorithm: counts, and every array of every rollout (or of one). NaN becomes null."""
    recorded = columns[0].found
    return [
        {
            "label": column.label,
            "algorithm": column.found.algorithm,
            "advantages": column.found.advantages,
            **dataclasses.asdict(tally(column.found, recorded)),
            "unseen": column.found.unseen,
            "rollouts": {
                key: {name: _plain(getattr(part, name)) for name in _names(part)}
                for key, part in column.found.rollouts.items()
                if rollout in (None, key)
            },
        }
        for column in columns
    ]


def _names(part: ReweighedRollout) -> list[str]:
    return [field.name for field in dataclasses.fields(part) if field.name != "key"]


def _plain(value: NDArray[Any] | int) -> Any:
    if isinstance(value, int):
        return value
    items: list[Any] = value.tolist()
    return [None if isinstance(item, float) and not math.isfinite(item) else item for item in items]


def _cell(part: ReweighedRollout | None) -> str:
    if part is None:
        return "-"
    gate = "   - " if part.gate is None else f"{part.gate:5.3f}"
    return f"{int(part.cut_T.sum()):>4}/{int(part.damped_T.sum()):<4} {gate} {part.share:>6.1%}"


def _token_cell(part: ReweighedRollout, at: int) -> str:
    if not part.trained_T[at]:
        return "not trained"
    mark = "cut" if part.cut_T[at] else "~" if part.damped_T[at] else ""
    return f"{part.ratio_T[at]:7.3f} {part.gate_T[at]:6.4f} {part.gradient_share_T[at]:>7.3%} {mark:<3}"


def _of(count: int, total: int) -> str:
    return f"{count:,} of {total:,}" + (f" ({count / total:.0%})" if total else "")


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
