"""Predicted against measured step times: one process, one and two engines, synchronous and asynchronous.

    python benchmarks/plan.py                        every run that is missing, then the table
    python benchmarks/plan.py --list                 the runs and which of them are there
    python benchmarks/plan.py --run small-1          that run only; a run takes about a minute
    python benchmarks/plan.py --report --write       the table alone, also into docs/plan.md and plan.json

Costs are fitted on runs of other sizes than the checked ones, and none of them is asynchronous. Each checked
layout is run several times with different seeds; compared is the median of their median seconds from step to
step. The policy hardly moves (a learning rate of 1e-6), so that lengths and keep rates stay what they are.
Everything runs on this machine's cores with one thread a process.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from trimtab.planning.asked import Asked, question_of
from trimtab.planning.fitting import MeasuredCosts
from trimtab.planning.lengths import Recorded
from trimtab.planning.recording import Recording, read_recording
from trimtab.planning.simulation import Setup, simulate
from trimtab.planning.workload import Split, workload_of
from trimtab.record.layout import RunFolder

ROOT = Path(__file__).resolve().parents[1]
START, END = "<!-- benchmarks/plan.py writes from here -->", "<!-- to here -->"
STEPS, REPEATS, TARGET = 12, 3, 0.2
COMMON = (
    f"run.steps={STEPS}", "data.held_out=0", "trainer.learning_rate=1e-6", "record.checkpoint_every=1000",
    "sampling.max_new_tokens=56", "doctor.every=0",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One run: its layout, its size, whether costs are fitted on it, and its seed."""

    name: str
    engines: int
    prompts: int
    staleness: int = 0
    fitted: bool = False
    seed: int = 0

    def settings(self) -> list[str]:
        """What is laid over the recipe ``quickstart``."""
        return [
            *COMMON,
            f"run.seed={self.seed}",
            f"cluster.engines={self.engines}",
            f"cluster.staleness={self.staleness}",
            f"sampling.prompts_per_step={self.prompts}",
        ]


FITTED = (
    Case(name="small-0", engines=0, prompts=12, fitted=True, seed=100),
    Case(name="large-0", engines=0, prompts=40, fitted=True, seed=101),
    Case(name="small-1", engines=1, prompts=12, fitted=True, seed=102),
    Case(name="large-1", engines=1, prompts=40, fitted=True, seed=103),
    Case(name="small-2", engines=2, prompts=12, fitted=True, seed=104),
    Case(name="large-2", engines=2, prompts=40, fitted=True, seed=105),
)
LAYOUTS = ((0, 0), (1, 0), (2, 0), (1, 1), (2, 1))
CHECKED = tuple(
    Case(name=f"checked-{engines}-s{staleness}-{n}", engines=engines, staleness=staleness, prompts=24, seed=n)
    for n in range(REPEATS)
    for engines, staleness in LAYOUTS
)


def main() -> None:
    """Run what is missing and tell how far predictions are off."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=Path, default=Path("runs/plan"), help="where the runs lie (runs/plan)")
    parser.add_argument("--run", metavar="NAME", help="make this run only")
    parser.add_argument("--list", action="store_true", help="name the runs")
    parser.add_argument("--report", action="store_true", help="run nothing")
    parser.add_argument(
        "--write", action="store_true", help="put the table into docs/plan.md and docs/plan.json"
    )
    args = parser.parse_args()
    cases = [*FITTED, *CHECKED]
    if args.list:
        for case in cases:
            print(f"{case.name:<18} {'done' if _done(args.runs / case.name) else 'missing'}")
        return
    for case in cases if not args.report else []:
        if args.run in (None, case.name) and not _done(args.runs / case.name):
            print(f"running {case.name}", file=sys.stderr)
            make(case, args.runs / case.name)
    if args.run is not None:
        return
    found = compare(args.runs)
    lines = list(report(found))
    print("\n".join(lines))
    if args.write:
        (ROOT / "docs" / "plan.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        write_between(ROOT / "docs" / "plan.md", lines)


def _done(folder: Path) -> bool:
    return RunFolder(folder).summary.exists()


def make(case: Case, folder: Path) -> None:
    """Train in a process of its own, on one thread."""
    command = [sys.executable, "-m", "trimtab", "train", "quickstart", "--plain", "--out", str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*command, *case.settings()], env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{case.name} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")


def costs_of(folders: list[Path]) -> MeasuredCosts:
    """Costs fitted on these runs, for the cores they ran on."""
    source = question_of(Asked(runs=tuple(folders))).source
    assert isinstance(source, MeasuredCosts)
    return source


def compare(runs: Path) -> dict[str, Any]:
    """Fit, predict, and set it against the median of the repeats."""
    seen = {case: read_recording(runs / case.name) for case in (*FITTED, *CHECKED) if _done(runs / case.name)}
    fitted = [case for case in seen if case.fitted]
    alone = costs_of([runs / case.name for case in fitted if case.engines == 0])
    apart = costs_of([runs / case.name for case in fitted if case.engines > 0])
    known = [seen[case].lengths for case in fitted]
    rows = [
        _row(engines, staleness, seen, alone if engines == 0 else apart, known)
        for engines, staleness in LAYOUTS
        if any((case.engines, case.staleness) == (engines, staleness) for case in seen if not case.fitted)
    ]
    return {
        "machine": {"cores": len(os.sched_getaffinity(0)), "python": platform.python_version()},
        "steps": STEPS,
        "fitted_on": [case.name for case in fitted],
        "slowdown": apart.device.slowdown,
        "inputs": [figure.to_json() for figure in apart.figures()],
        "rows": rows,
    }


def _row(
    engines: int, staleness: int, seen: dict[Case, Recording], costs: MeasuredCosts, known: list[Recorded]
) -> dict[str, Any]:
    """One layout: what was measured, what is predicted, stage by stage."""
    import numpy as np

    own = [
        recording
        for case, recording in seen.items()
        if not case.fitted and (case.engines, case.staleness) == (engines, staleness)
    ]
    lengths = Recorded(
        groups=[group for one in known for group in one.groups],
        kept=np.concatenate([one.kept for one in known]),
        how="the fitted runs",
    )
    split = Split(engines=engines, staleness=staleness, engine="local")
    workload = workload_of(own[0].run, own[0].prompt, float32=True, engine="local")
    got = simulate(
        Setup(
            workload=workload,
            lengths=lengths,
            split=split,
            costs=costs.costs(split),
            cores=costs.cores,
            steps=60,
        )
    )
    repeats = [median(recording.wall) for recording in own]
    measured = median(repeats)
    stages = {
        stage: median([s.seconds.get(stage, 0.0) for r in own for s in r.settled])
        for stage in ("sample", "grade", "annotate", "update", "sync")
    }
    return {
        "engines": engines,
        "staleness": staleness,
        "measured": measured,
        "repeats": repeats,
        "predicted": got.step,
        "error": got.step / measured - 1.0,
        "measured_stages": stages,
        "simulated": asdict(got),
    }


def report(found: dict[str, Any]) -> Iterator[str]:
    """The table of docs/plan.md."""
    yield "| layout | S | measured, median of repeats | predicted | off by |"
    yield "|---|---|---|---|---|"
    for row in found["rows"]:
        layout = "one process" if not row["engines"] else f"{row['engines']} engine(s) + 1 trainer"
        spread = f"{min(row['repeats']):.2f} to {max(row['repeats']):.2f}, {len(row['repeats'])} runs"
        yield (
            f"| {layout} | {row['staleness']} | {row['measured']:.2f} s ({spread}) "
            f"| {row['predicted']:.2f} s | {row['error']:+.0%} |"
        )
    worst = max((abs(row["error"]) for row in found["rows"]), default=0.0)
    yield ""
    yield (
        f"Furthest off: {worst:.0%} (target: {TARGET:.0%}). Costs fitted on {', '.join(found['fitted_on'])}; "
        f"two busy cores slow each other {found['slowdown']:.2f} times; {found['machine']['cores']} cores."
    )
    yield ""
    yield "| layout | S | sampling m / p | updates m / p | delivery m / p |"
    yield "|---|---|---|---|---|"
    for row in found["rows"]:
        m, p = row["measured_stages"], row["simulated"]
        layout = "one process" if not row["engines"] else f"{row['engines']} engine(s) + 1 trainer"
        pairs = [f"{m[a]:.3f} / {p[a]:.3f} s" for a in ("sample", "update", "sync")]
        yield f"| {layout} | {row['staleness']} | {' | '.join(pairs)} |"


def write_between(page: Path, lines: list[str]) -> None:
    """Put the lines between the two marks of the page."""
    before, _, rest = page.read_text(encoding="utf-8").partition(START)
    after = rest.partition(END)[2]
    page.write_text("\n".join([before + START, *lines, END + after.rstrip("\n")]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
