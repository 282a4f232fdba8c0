"""Trimtab's side: the product's own loop, record and probes included, which waits for its turns."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import functools
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from benchmarks.speed import process
from benchmarks.speed.scenes import Scene, questions
from benchmarks.speed.turns import answer, wait_for_turn

from trimtab import launch
from trimtab.config import run_from_dict
from trimtab.rollout.local import LocalEngine
from trimtab.trainer.local import LocalTrainer
from trimtab.types import Group

GRADERS = Path(__file__).with_name("useful.py")


class Turns:
    """A view that gives a step's numbers back and waits before the next one."""

    def __init__(self) -> None:
        self.seen: dict[str, Any] = {"lengths": [], "prompt_lengths": []}
        self.processor = 0.0

    def start(self, run_name: str, steps: int, lines: Sequence[str]) -> None:
        self._wait()

    def _wait(self) -> None:
        self.seen = {"lengths": [], "prompt_lengths": []}
        wait_for_turn()
        self.processor = process.processor_seconds()

    def step(self, step: int, values: Mapping[str, float]) -> None:
        stages = {k.removeprefix("seconds/"): v for k, v in values.items() if k.startswith("seconds/")}
        seconds = stages.pop("step")
        stages.pop("rewards_share", None)
        answer(
            {
                "seconds": seconds,
                "tokens": sum(self.seen["lengths"]),
                "stages": stages,
                "uniform_groups": values.get("groups/uniform"),
                "peak_bytes": process.peak_bytes(),
                "processor_seconds": process.processor_seconds() - self.processor,
                **self.seen,
            }
        )
        self._wait()

    def evaluation(self, label: str, result: Mapping[str, Any]) -> None: ...

    def message(self, text: str) -> None:
        print(text, file=sys.stderr)

    def verdict(self, text: str, found: Sequence[object]) -> None: ...

    def finish(self, summary: Mapping[str, Any]) -> None: ...


def watch(turns: Turns, *, memory: bool, together: bool) -> None:
    """Note lengths of what is sampled; measure the memory of an update; ``together`` gives the groups of a
    step to the grader only once all are sampled, which is how a loop without overlap would do it.
    """
    generate, update = LocalEngine.generate, LocalTrainer.update

    @functools.wraps(generate)
    async def noted(*args: Any, **kwargs: Any) -> AsyncIterator[Group]:
        held: list[Group] = []
        async for group in generate(*args, **kwargs):
            turns.seen["prompt_lengths"].append(len(group.draw.prompt.token_ids))
            turns.seen["lengths"] += [rollout.length for rollout in group.rollouts]
            if together:
                held.append(group)
            else:
                yield group
        for group in held:
            yield group

    @functools.wraps(update)
    async def measured(*args: Any, **kwargs: Any) -> Any:
        turns.seen["update_start_bytes"] = process.forget_peak()
        try:
            return await update(*args, **kwargs)
        finally:
            turns.seen["update_peak_bytes"] = process.peak_bytes()

    LocalEngine.generate = noted
    if memory:
        LocalTrainer.update = measured


def run_of(scene: Scene, rows: Path, options: Mapping[str, Any], *, slow: bool) -> dict[str, Any]:
    """The recipe of a scene as tables; ``options`` are settings such as ``trainer.autocast``."""
    rule = ("slow_" if slow else "") + ("every_other" if scene.forced else "right_sum")
    grader = f"{GRADERS}:{rule}"
    tree: dict[str, Any] = {
        "run": {"steps": 1000},
        "model": {"path": scene.model},
        "data": {"files": [str(rows)], "held_out": 0},
        "reward": {"graders": [{"name": grader}], "truncated": "grade"},
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
    return tree


def main() -> None:
    """Train until no turn comes any more."""
    scene, options = Scene(**json.loads(sys.argv[1])), json.loads(sys.argv[2])
    torch.set_num_threads(int(options.pop("threads")))
    turns, slow = Turns(), options.pop("slow", False)
    watch(turns, memory=options.pop("memory", False), together=options.pop("together", False))
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.jsonl"
        rows.write_text(
            "".join(json.dumps(row._asdict()) + "\n" for row in questions(scene, 40 * scene.prompts))
        )
        run = run_from_dict(run_of(scene, rows, options, slow=slow))
        launch.train(run, folder=Path(folder) / "run", view=turns)


if __name__ == "__main__":
    main()
