"""``python -m benchmarks.doctor``: make the runs that are not there yet, ask everybody, print the tables.

NAME ...                     only runs whose name begins so (``*`` and ``?`` allowed); all by default
--part scored|tuning|all     the runs to judge; the published ones are ``scored``
--jobs N                     runs made at a time, one thread each (1)
--runs-only, --no-runs       make runs and ask nobody; ask about what is there and make nothing
--no-peers                   ask our doctor alone
--list                       the plan: every run, its part, whether it is there
--docs                       put the tables into docs/doctor_benchmark.md and the figures beside it
--fixtures                   write the compact runs of tests/fixtures/doctor
--keep FOLDER                where ``runs/doctor-benchmark`` lies (the repository)

A run takes a quarter of a minute on a free core, all of them about forty; what is there is never made again.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.doctor import compact, report
from benchmarks.doctor.asking import ours, theirs
from benchmarks.doctor.faults import FAULTS, SCORED_ONLY
from benchmarks.doctor.making import make_all
from benchmarks.doctor.peers import installed
from benchmarks.doctor.plan import chosen
from benchmarks.doctor.runs import folder_of, made
from benchmarks.doctor.scene import FOLDER, ROOT, Scene
from benchmarks.doctor.score import Card, judge_ours, judge_theirs, score

DOCS = ROOT / "docs" / "doctor_benchmark.md"
FIGURES = DOCS.with_suffix(".json")
BEGIN, END = "<!-- tables: python -m benchmarks.doctor --docs -->\n", "<!-- end of tables -->"
ACCEPTED = {fault.cause: fault.accepted for fault in FAULTS}


def ask_all(scenes: Sequence[Scene], root: Path, *, peers: bool) -> list[Card]:
    """The cards of our doctor and of the packages that are installed, over these runs."""
    causes = [fault.cause for fault in FAULTS if any(scene.cause == fault.cause for scene in scenes)]
    own = [
        judge_ours(s.name, s.cause, ACCEPTED.get(s.cause or "", frozenset()), ours(folder_of(s, root)))
        for s in scenes
    ]
    cards = [score("trimtab", own, causes)]
    for tool, ask in installed().items() if peers else ():
        said = [judge_theirs(tool, s.name, s.cause, theirs(tool, ask, s, root)) for s in scenes]
        cards.append(score(tool, said, causes))
    return cards


def written(cards: Sequence[Card], scenes: Sequence[Scene], part: str) -> str:
    """The text that the command prints."""
    faulty = sum(scene.cause is not None for scene in scenes)
    return "\n".join(
        [
            f"Part `{part}`: {faulty} runs with one of {len(cards[0].rows)} faults, "
            f"{len(scenes) - faulty} healthy runs. Intervals are Wilson's, 95%.\n",
            report.totals(cards),
            "\nBy fault, three counts each: found, cause right, and how many of its alarms were right.",
            f"No run of {', '.join(sorted(SCORED_ONLY))} was ever looked at while rules were written.\n",
            report.by_fault(cards),
            "\nOur doctor, where it was wrong:\n",
            report.missed(cards[0]),
        ]
    )


def show_plan(scenes: Sequence[Scene], root: Path) -> None:
    """Every run with its part and what became of it."""
    for scene in scenes:
        done = made(scene, root)
        state = (
            "not made" if done is None else f"{done.seconds:.0f} s" + (", ended early" if done.fault else "")
        )
        print(f"{scene.part:7} {scene.name:60} {state}")
    print(f"{len(scenes)} runs, {sum(made(scene, root) is not None for scene in scenes)} made")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.doctor", description="Fault benchmark.")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--part", choices=("scored", "tuning", "all"), default="scored")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--keep", type=Path, default=ROOT)
    for flag in ("--runs-only", "--no-runs", "--no-peers", "--list", "--docs", "--fixtures"):
        parser.add_argument(flag, action="store_true")
    asked = parser.parse_args()
    root = asked.keep.resolve()
    scenes = chosen(asked.names, asked.part)
    if asked.list:
        show_plan(scenes, root)
        return
    if not asked.no_runs:
        make_all(scenes, root, asked.jobs)
    if asked.runs_only:
        return
    there = [scene for scene in scenes if made(scene, root) is not None]
    if asked.fixtures:
        compact.write(root)
        return
    cards = ask_all(there, root, peers=not asked.no_peers)
    text = written(cards, there, asked.part)
    print(text)
    figures = json.dumps(report.as_json(cards, asked.part), indent=1) + "\n"
    (root / FOLDER / f"figures-{asked.part}.json").write_text(figures, encoding="utf-8")
    if asked.docs:
        FIGURES.write_text(figures, encoding="utf-8")
        before, _, rest = DOCS.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        DOCS.write_text(f"{before}{BEGIN}\n{text}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
