"""``torch.compile`` beside what there is: seconds of an update, its start-up, and when it would have paid.

The layers are compiled one kind for all (``dynamic=True``: answers have other lengths each time), the output
layer and the loss are not. Three trainers take turns in one process, each with the same ragged batch. The
first updates of each are its start-up: what they took beyond as many later ones. Inductor's cache is empty at
first; at the end the compiler forgets what it made and finds it again there, as a second run would.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from benchmarks.speed.scenes import Scene, scene_of
from benchmarks.speed.update import POLICY, batch_of

from trimtab.models import load_model
from trimtab.trainer import TrainerConfig
from trimtab.trainer.local import LocalTrainer
from trimtab.types import Batch

CASES = (("tiny", "float32"), ("smollm2", "bfloat16"))
FAST, EAGER, COMPILED = "trimtab's own passes", "transformers' modules", "transformers' modules, compiled"
SIDES = (FAST, EAGER, COMPILED)
WARM = 2
"""First updates, whose surplus is start-up."""

ROUNDS = 5
"""At most so many counted updates: one of SmolLM2 takes seconds."""


def measure(args: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Iterator[str]]]:
    """Each case by itself."""
    torch.set_num_threads(args.threads)
    cases = []
    for name, dtype in CASES:
        scene = scene_of(name, args.work, args.smollm2.resolve(), limit=args.limit, prompts=args.prompts)
        cases.append(
            {
                "scene": json.loads(scene.to_json()),
                "dtype": dtype,
                **spent(scene, dtype, min(args.rounds, ROUNDS), args.work),
            }
        )
    result = {"threads": args.threads, "warm": WARM, "cases": cases}
    return result, {"compile": table(result)}


def spent(scene: Scene, dtype: str, rounds: int, work: Path) -> dict[str, Any]:
    """``seconds``: of every update, by side. ``again``: of the first ones from a full cache."""
    trainers = {
        FAST: _trainer(scene, dtype, "always"),
        EAGER: _trainer(scene, dtype, "never"),
        COMPILED: _trainer(scene, dtype, "never"),
    }
    inner: Any = trainers[COMPILED].model.module.base_model
    for layer in inner.layers:
        layer.compile(dynamic=True)
    batches = [batch_of(scene, trainers[FAST].model.vocab_size, seed) for seed in range(WARM + rounds)]
    seconds: dict[str, list[float]] = {side: [] for side in SIDES}
    before = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    with tempfile.TemporaryDirectory(dir=work) as cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        try:
            for turn, batch in enumerate(batches):
                for side in SIDES if turn % 2 else reversed(SIDES):
                    seconds[side].append(_seconds(trainers[side], batch))
            torch._dynamo.reset()
            again = [_seconds(trainers[COMPILED], batch) for batch in batches[:WARM]]
        finally:
            os.environ.pop("TORCHINDUCTOR_CACHE_DIR")
            if before is not None:
                os.environ["TORCHINDUCTOR_CACHE_DIR"] = before
    tokens = round(median(batch.num_tokens for batch in batches))
    return {"tokens": tokens, "seconds": seconds, "again": again}


def _trainer(scene: Scene, dtype: str, fast: Any) -> LocalTrainer:
    model = load_model(scene.model, device="cpu", dtype=dtype)
    return LocalTrainer(model, temperature=1.0, config=TrainerConfig(fast=fast))


def _seconds(trainer: LocalTrainer, batch: Batch) -> float:
    began = time.perf_counter()
    asyncio.run(trainer.update(batch, POLICY))
    return time.perf_counter() - began


def start_up(first: Sequence[float], later: Sequence[float]) -> float:
    """Seconds that the first updates took beyond as many later ones."""
    return sum(first) - len(first) * median(later)


def pays_after(cost: float, without: float, compiled: float) -> int | None:
    """Updates until ``cost`` seconds of start-up are earned; None where each update loses."""
    if compiled >= without:
        return None
    return max(1, math.ceil(cost / (without - compiled)))


def table(result: dict[str, Any]) -> Iterator[str]:
    """One row a case and side, and what follows."""
    warm = result["warm"]
    yield (
        "| model | update | seconds | start-up, seconds | from a full cache | pays beside transformers' "
        "modules | pays beside trimtab's own |"
    )
    yield "|---|---|---|---|---|---|---|"
    paying = []
    for case in result["cases"]:
        name = f"{case['scene']['name']}, {case['dtype']}, {case['tokens']} tokens"
        later = {side: case["seconds"][side][warm:] for side in SIDES}
        usual = {side: median(later[side]) for side in SIDES}
        cost = {side: start_up(case["seconds"][side][:warm], later[side]) for side in SIDES}
        for side in (FAST, EAGER):
            yield f"| {name} | {side} | {usual[side]:.3f} | {cost[side]:.1f} | | | |"
        told = []
        for other in (EAGER, FAST):
            after = pays_after(cost[COMPILED] - cost[other], usual[other], usual[COMPILED])
            told.append("never" if after is None else f"after {after} updates")
        if usual[COMPILED] < usual[FAST]:
            paying.append(case["scene"]["name"])
        again = start_up(case["again"], later[COMPILED])
        yield (
            f"| {name} | {COMPILED} | {usual[COMPILED]:.3f} | {cost[COMPILED]:.1f} | {again:.1f} "
            f"| {told[0]} | {told[1]} |"
        )
    yield ""
    yield (
        f"Compiled layers are faster than trimtab's own passes on: {', '.join(paying)}."
        if paying
        else "Compiled layers are slower than trimtab's own passes, which need no start-up, in every case."
    )
