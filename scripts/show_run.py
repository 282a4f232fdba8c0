"""Print a run as Markdown: its evaluations as a table, its cost, and one metric as a curve of text.

    python scripts/show_run.py runs/smollm2-sums
    python scripts/show_run.py runs/smollm2-sums --metric length/mean --window 10

What the docs quote of a run is what this prints. A run that is not finished is shown as far as it is.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trimtab.errors import SettingError, TrimtabError, nearest
from trimtab.record.events import Event
from trimtab.record.history import Series
from trimtab.record.reader import RunReader

HEADLINE = "reward/outcome"
INSTEAD = "reward/mean"
"""Of an imported run whose rewards are no grades."""

BAR = 40
"""Characters of the longest bar."""


def main() -> int:
    """Print the run; 1 and one sentence where there is none."""
    parser = argparse.ArgumentParser(description="Print a run as Markdown.")
    parser.add_argument("run", type=Path, help="the run's folder")
    parser.add_argument("--metric", help=f"of the curve; {HEADLINE}, or {INSTEAD} where there is none")
    parser.add_argument("--window", type=int, default=5, help="steps that one bar averages; %(default)s")
    args = parser.parse_args()
    try:
        run = RunReader(args.run)
        for line in shown(run, args.metric or headline(run), args.window):
            print(line)
    except TrimtabError as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


def headline(run: RunReader) -> str:
    """The metric that is shown unless another one is asked for."""
    return INSTEAD if INSTEAD in run.history.keys and HEADLINE not in run.history.keys else HEADLINE


def shown(run: RunReader, metric: str, window: int) -> Iterator[str]:
    """All lines. Raises SettingError for a metric that the run does not have, or a window below 1."""
    if window < 1:
        raise SettingError(f"a window has at least one step, got {window}")
    if run.history.keys and metric not in run.history.keys:
        raise SettingError(f"{run.folder.path} has no metric {metric!r}{nearest(metric, run.history.keys)}")
    evaluations = [event for event in run.events if event["event"] == Event.EVALUATED]
    yield from evaluation_table(evaluations)
    if evaluations and (change := evaluations[-1].get("against_start")) is not None:
        low, high = change["interval"]
        yield ""
        yield (
            f"{evaluations[-1]['label']} against start, paired over the prompts: "
            f"{change['difference']:+.3f} [{low:+.3f}, {high:+.3f}] pass@1 ({change['verdict']})."
        )
    summary = run.summary()
    if summary is not None:
        yield ""
        yield from cost(summary)
    yield ""
    yield from ["```text", *curve(metric, run.history.series(metric), window), "```"]


def evaluation_table(evaluations: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A row for each evaluation in order; pass@k and maj@k with their 95% intervals."""
    if not evaluations:
        yield "(not evaluated)"
        return
    names = [name for name in evaluations[0] if name.startswith(("pass@", "maj@")) and "_" not in name]
    yield f"| | {' | '.join(names)} | answer tokens | truncated |"
    yield f"|---|{'---|' * (len(names) + 2)}"
    for found in evaluations:
        cells = [_with_interval(found, name) for name in names]
        cells += [f"{found['mean_length']:.1f}", f"{found['truncated']:.1%}"]
        yield f"| {found['label']} | {' | '.join(cells)} |"
    last = evaluations[-1]
    yield ""
    yield (
        f"{last['prompts']} held-out prompts, {last['answers']} answers at temperature "
        f"{last['temperature']:g}; in brackets the 95% interval."
    )


def cost(summary: Mapping[str, Any]) -> Iterator[str]:
    """Steps, tokens, time and memory of a finished run, from summary.json."""
    seconds, steps = summary["seconds"], summary["steps"]
    stages = sorted(seconds["stages"].items(), key=lambda stage: -stage[1])
    yield (
        f"{summary['algorithm']}, {steps} steps, {summary['tokens']:,} response tokens: "
        f"{seconds['train'] / 60:.1f} min of training ({seconds['train'] / steps:.1f} s a step), "
        f"{seconds['evaluation'] / 60:.1f} min of evaluation, {seconds['total'] / 60:.1f} min in all, "
        f"{summary['peak_memory_bytes'] / 2**30:.1f} GiB at most."
    )
    shares = ", ".join(f"{name} {spent / seconds['train']:.0%}" for name, spent in stages if spent > 0.0)
    yield f"Where the training time went: {shares}."


def curve(metric: str, series: Series, window: int) -> Iterator[str]:
    """One bar for each window of steps, as long as the window's mean; the scale starts at 0 or below."""
    if not len(series.steps):
        yield f"{metric}: no step yet"
        return
    starts = range(0, len(series.steps), window)
    means = [float(series.values[i : i + window].mean()) for i in starts]
    low, high = min(0.0, *means), max(means)
    yield f"{metric}, mean of {window} steps a bar"
    for start, mean in zip(starts, means, strict=True):
        first, last = series.steps[start], series.steps[min(start + window, len(series.steps)) - 1]
        length = round((mean - low) / (high - low) * BAR) if high > low else 0
        yield f"steps {first:>4} to {last:>4}  {mean:>8.3f}  {'#' * length}"


def _with_interval(found: Mapping[str, Any], name: str) -> str:
    low, high = found[f"{name}_interval"]
    return f"{found[name]:.3f} [{low:.3f}, {high:.3f}]"


if __name__ == "__main__":
    raise SystemExit(main())
