"""Prints the table of docs/fsdp2.md: how far weights over ranks are from those of one process.

PYTHONPATH=src:. python scripts/sharded_differences.py
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from tests.ranks import spawned
from tests.sharded_cases import CASES, alone, apart, other_micro_batches, over


def main() -> None:
    """Each case of tests/sharded_cases.py over 2 and 3 ranks, and in one process with other micro-batches."""
    print("| case | 2 ranks | 3 ranks | one process, other micro-batches |\n|---|---|---|---|")
    for name in CASES:
        differences = [apart(alone(name), over(name, spawned(size))) for size in (2, 3)]
        differences.append(other_micro_batches(name))
        print(f"| {name} | {' | '.join(f'{one:.1e}' for one in differences)} |", flush=True)


if __name__ == "__main__":
    main()
