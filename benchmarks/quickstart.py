"""The embedded default over several seeds, one run after another on all cores: before, after, and how long.

    python benchmarks/quickstart.py                               prints the table
    python benchmarks/quickstart.py --write README.md             puts it between the README's marks

Finished runs are not run again. Leave the machine alone meanwhile: the seconds are part of the table.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- quickstart:begin -->", "<!-- quickstart:end -->"
HEAD = (
    "| seed | start pass@1 | final pass@1 | start pass@8 | final pass@8 | steps | RL seconds | all in all |"
)


def summary_of(seed: int, out: Path) -> dict[str, Any]:
    """The summary of this seed's run, which is trained if it is not there yet."""
    folder = out / f"seed-{seed}"
    if not (folder / "summary.json").exists():
        command = [sys.executable, "-m", "trimtab", "train", "quickstart", f"run.seed={seed}"]
        subprocess.run([*command, "--out", str(folder), "--resume", "--plain"], check=True)
    return json.loads((folder / "summary.json").read_text(encoding="utf-8"))


def row(seed: int, summary: Mapping[str, Any]) -> str:
    """One seed: each pass@k with its 95% interval, and the seconds."""
    cells = [
        f"{found[k]:.3f} [{found[f'{k}_interval'][0]:.3f}, {found[f'{k}_interval'][1]:.3f}]"
        for k in ("pass@1", "pass@8")
        for found in (summary["evaluation"]["start"], summary["evaluation"]["final"])
    ]
    seconds = summary["seconds"]
    times = (str(summary["steps"]), f"{seconds['train']:.0f}", f"{seconds['total']:.0f}")
    return f"| {seed} | " + " | ".join((*cells, *times)) + " |"


def written(text: str, table: str) -> str:
    """The text with the table between the marks."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


def main() -> None:
    """Train what is missing, print the table, and write it where asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("runs/quickstart-seeds"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--write", type=Path, help="a file with the two marks")
    args = parser.parse_args()
    rows = [row(seed, summary_of(seed, args.out)) for seed in range(args.seeds)]
    table = "\n".join([HEAD, "|" + "---|" * 8, *rows])
    print(table)
    if args.write:
        args.write.write_text(written(args.write.read_text(encoding="utf-8"), table), encoding="utf-8")


if __name__ == "__main__":
    main()
