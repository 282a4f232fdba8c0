"""Tries every escape and every cheat in each tier of this machine, and times calls.

    python -m benchmarks.sandbox.escapes                          prints the tables as Markdown
    python -m benchmarks.sandbox.escapes --write docs/sandbox.md  puts them into the page, between its marks
    python -m benchmarks.sandbox.escapes --only time              only the times (or: escapes)

The exit code is 1 when anything escaped. One process, a minute or two.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Literal

from benchmarks.sandbox.cheats import CHEATS
from benchmarks.sandbox.programs import ESCAPES

from trimtab.rewards.sandbox import (
    Limits,
    Place,
    Tier,
    open_place,
    probe,
    read_assert,
    run_asserts,
    run_program,
)
from trimtab.rewards.sandbox.interpreter import this_interpreter
from trimtab.types import GradeState

TIERS: tuple[Literal["bubblewrap", "landlock"], ...] = ("bubblewrap", "landlock")
BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"
CALLS = 30
ADDING = "def add(a, b):\n    return a + b\n"

Row = tuple[str, ...]


def escape_rows() -> tuple[list[Row], bool]:
    """A row for each escape, then for each kind of cheat; and whether all were contained.

    The last column shows the harmless ones without a sandbox: that they do get out when nothing holds them.
    """
    rows: dict[str, dict[str, list[bool]]] = {}
    for tier in TIERS:
        if not probe(Tier(tier)).usable:
            continue
        place = open_place(tier=tier)
        for escape in ESCAPES:
            held, told = escape.contained(place)
            rows.setdefault(escape.name, {}).setdefault(tier, []).append(held)
            if not held:
                sys.stderr.write(f"{tier}: {escape.name}: {told}\n")
        for cheat in CHEATS:
            grade = cheat.grade(tier)
            held = grade.state is GradeState.WRONG
            rows.setdefault(cheat.kind, {}).setdefault(tier, []).append(held)
            if not held:
                sys.stderr.write(f"{tier}: {cheat.name}: {grade}\n")
    all_held = all(held for found in rows.values() for tries in found.values() for held in tries)
    bare = Place(Tier.UNSAFE, this_interpreter(), Limits())
    for escape in ESCAPES:
        if escape.harmless:
            rows.setdefault(escape.name, {})[Tier.UNSAFE] = [escape.contained(bare)[0]]
    table = [
        (name, *(_outcome(found, tier) for tier in (*TIERS, Tier.UNSAFE))) for name, found in rows.items()
    ]
    return table, all_held


def _outcome(found: dict[str, list[bool]], tier: str) -> str:
    tries = found.get(tier)
    if tries is None:
        return "not tried" if tier == Tier.UNSAFE else "not on this machine"
    if all(tries):
        return "contained" if len(tries) == 1 else f"contained, {len(tries)} of {len(tries)}"
    return "escaped" if tier == Tier.UNSAFE else f"**ESCAPED**, {tries.count(False)} of {len(tries)}"


def time_rows() -> list[Row]:
    """Milliseconds from the call to the result, the median and the fastest of ``CALLS``, by tier."""
    bare = _milliseconds(
        lambda: subprocess.run([sys.executable, "-S", "-c", "print(5)"], capture_output=True)
    )
    rows: list[Row] = [("plain subprocess, for comparison", bare, "")]
    tests = [read_assert(f"assert add({k}, 3) == {k + 3}") for k in range(3)]
    for tier in Tier:
        if not probe(tier).usable:
            rows.append((tier, "not on this machine", "not on this machine"))
            continue
        place = Place(tier, this_interpreter(), Limits())
        printing = _milliseconds(lambda place=place: run_program(place, "print(int(input()) + 3)", b"2\n"))
        asserting = _milliseconds(lambda place=place: run_asserts(place, ADDING, tests))
        rows.append((tier, printing, asserting))
    return rows


def _milliseconds(call: Callable[[], object]) -> str:
    call()
    times = []
    for _ in range(CALLS):
        begun = time.perf_counter()
        call()
        times.append(1000 * (time.perf_counter() - begun))
    return f"{median(times):.0f} (fastest {min(times):.0f})"


def table(head: Row, rows: list[Row]) -> str:
    """A Markdown table."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> int:
    """The command; 0 when everything was contained."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=("escapes", "time"))
    parser.add_argument("--write", type=Path, metavar="PAGE")
    options = parser.parse_args()
    version = subprocess.run(["bwrap", "--version"], capture_output=True, text=True).stdout.split()
    user = "root" if os.geteuid() == 0 else "an ordinary user"
    parts = [
        f"Linux {platform.release()}, {platform.machine()}, Python {platform.python_version()}, "
        f"bubblewrap {version[-1] if version else 'not installed'}, as {user}."
    ]
    held = True
    if options.only != "time":
        rows, held = escape_rows()
        parts.append(table(("what the program tries", *TIERS, Tier.UNSAFE), rows))
    if options.only != "escapes":
        head = ("milliseconds a call", "one input test", "three assert tests")
        load = f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} at the start"
        parts.append(f"{CALLS} calls, one at a time, median; {load}.\n\n{table(head, time_rows())}")
    text = "\n\n".join(parts)
    if options.write is None:
        sys.stdout.write(text + "\n")
    else:
        page = options.write.read_text(encoding="utf-8")
        before, _, rest = page.partition(BEGIN)
        options.write.write_text(
            f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8"
        )
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
