"""The process that draws questions of reasoning-gym: one request on stdin, one entry a line on stdout.

A process of its own, because some datasets (polynomial_multiplication, word_ladder, ...) ask other questions
for another seed of Python's hashes, and a resumed run must see the questions that it had.

    {"path": [...], "dataset": "countdown", "settings": {...}, "seed": 0, "size": 1000}
    {"question": "...", "answer": "..." or null, "metadata": {...}}
    {"unknown": [names there are]} or {"refused": "why"}      instead, where it cannot be drawn
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any


def main() -> None:
    """Answers the request until the reader has seen enough."""
    request = json.loads(sys.stdin.readline())
    sys.path += [entry for entry in request["path"] if entry not in sys.path]
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)  # what a dataset prints is no entry
        for line in lines(request):
            out.write(json.dumps(line) + "\n")


def lines(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The entries, or the one line that says why there are none."""
    import reasoning_gym  # pyright: ignore[reportMissingImports]  (optional)
    from reasoning_gym.factory import DATASETS  # pyright: ignore[reportMissingImports]  (optional)

    name, settings = request["dataset"], request["settings"]
    if name not in DATASETS or name == "composite":
        yield {"unknown": sorted(set(DATASETS) - {"composite"})}
        return
    try:
        made = reasoning_gym.create_dataset(name, seed=request["seed"], size=request["size"], **settings)
    except (TypeError, ValueError, AssertionError) as fault:
        yield {"refused": str(fault)}
        return
    for index in range(request["size"]):
        entry = made[index]
        yield {key: entry[key] for key in ("question", "answer", "metadata")}


if __name__ == "__main__":
    main()
