"""Trimtab's side: the product's own loop, record and probes included, which waits for its turns."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import resource
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from benchmarks.speed.scenes import Scene, questions
from benchmarks.speed.turns import answer, wait_for_turn

from trimtab import launch
from trimtab.config import run_from_dict

GRADER = f"{Path(__file__).with_name('useful.py')}:every_other"


class Turns:
    """A view that gives a step's numbers back and waits before the next one."""

    def start(self, run_name: str, steps: int, lines: Sequence[str]) -> None:
        wait_for_turn()

    def step(self, step: int, values: Mapping[str, float]) -> None:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        stages = {k.removeprefix("seconds/"): v for k, v in values.items() if k.startswith("seconds/")}
        tokens = values["length/mean"] * values["flow/rollouts"]
        answer({"seconds": values["seconds/step"], "tokens": tokens, "peak_bytes": peak, "stages": stages})
        wait_for_turn()

    def evaluation(self, label: str, result: Mapping[str, Any]) -> None: ...

    def message(self, text: str) -> None:
        print(text, file=sys.stderr)

    def verdict(self, text: str, found: Sequence[object]) -> None: ...

    def finish(self, summary: Mapping[str, Any]) -> None: ...


def main() -> None:
    """Train until no turn comes any more."""
    scene, options = Scene(**json.loads(sys.argv[1])), json.loads(sys.argv[2])
    torch.set_num_threads(int(options.pop("threads")))
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.jsonl"
        rows.write_text(
            "".join(json.dumps({"prompt": q, "answer": "0"}) + "\n" for q in questions(40 * scene.prompts))
        )
        tree = {
            "run": {"steps": 1000},
            "model": {"path": scene.model},
            "data": {"files": [str(rows)], "held_out": 0},
            "reward": {"graders": [{"name": GRADER}], "truncated": "grade"},
            "algorithm": {"name": "grpo", "kl_coef": 0.0, "aggregate": "token-mean"},
            "sampling": {
                "prompts_per_step": scene.prompts,
                "samples_per_prompt": scene.samples,
                "max_new_tokens": scene.limit,
            },
            "record": {"checkpoint_every": 1000},
        }
        for name, value in options.items():
            table, _, key = name.partition(".")
            tree.setdefault(table, {})[key] = value
        launch.train(run_from_dict(tree), folder=Path(folder) / "run", view=Turns())


if __name__ == "__main__":
    main()
