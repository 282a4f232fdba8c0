"""An update alone, the fast path and the plain one in turn: seconds by stage, and the share of the limit.

    python -m benchmarks.speed.update smollm2            SmolLM2-135M in bfloat16, 4 x 8 answers, 64 tokens
    python -m benchmarks.speed.update tiny --rounds 7    the character model in float32, 32 x 8, up to 96
    python -m benchmarks.speed.update tiny --small       one group of short answers

Answers are random ids, every group useful. Operations are the least there is (``work.update_operations``):
each prompt once, no padding, nothing twice; the limit is the best product of the same run. The table goes to
standard output, and with ``--write docs/speed_update.md`` into the page.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
import asyncio
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import torch
from benchmarks.speed import document
from benchmarks.speed.limits import limits, speed
from benchmarks.speed.scenes import Scene, scene_of
from benchmarks.speed.work import Shape, update_operations

from trimtab.models import load_model
from trimtab.objectives.aggregate import token_mean
from trimtab.objectives.objective import Objective
from trimtab.objectives.policy import PolicyGradient
from trimtab.objectives.ratio import token_ratio
from trimtab.objectives.surrogate import Clip
from trimtab.trainer import TrainerConfig
from trimtab.trainer.local import LocalTrainer
from trimtab.types import Batch

POLICY = Objective(((1.0, PolicyGradient(token_ratio, Clip(0.2, 0.2))),), token_mean)
PATHS = ("always", "never")
PROMPT = 32
"""Tokens of a prompt."""

DTYPES = {"smollm2": "bfloat16", "tiny": "float32"}
SMALL = {"smollm2": 20, "tiny": 30}
"""Response tokens of an answer where an update is small: one group."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scene", choices=sorted(DTYPES))
    parser.add_argument("--dtype", choices=("bfloat16", "float32"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--limit", type=int, help="response tokens, instead of the scene's")
    parser.add_argument("--prompts", type=int, help="groups, instead of the scene's")
    parser.add_argument("--small", action="store_true", help="one group of short answers")
    parser.add_argument("--smollm2", type=Path, default=Path("models/smollm2-135m-instruct"))
    parser.add_argument("--work", type=Path, default=Path("runs/speed"))
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the table into this page")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    args.work.mkdir(parents=True, exist_ok=True)
    changed = {"limit": args.limit, "prompts": args.prompts}
    if args.small:
        changed = {"limit": SMALL[args.scene], "prompts": 1}
    scene = scene_of(args.scene, args.work, args.smollm2.resolve(), **changed)
    lines = list(measured(scene, args.dtype or DTYPES[args.scene], args.rounds, args.threads))
    print("\n".join(lines))
    if args.write:
        name, command = place(args.scene, small=args.small)
        document.write(args.write, name, lines, command)


def place(scene: str, *, small: bool) -> tuple[str, str]:
    """Name of the table in docs/speed_update.md, and the command that makes it."""
    name, option = (f"{scene} small", "--small ") if small else (scene, "")
    return name, f"benchmarks.speed.update {scene} {option}--write docs/speed_update.md"


def measured(scene: Scene, dtype: str, rounds: int, threads: int) -> Iterator[str]:
    """The table's lines: medians of the rounds after one that warms up."""
    trainers = {
        path: LocalTrainer(
            load_model(scene.model, device="cpu", dtype=dtype),
            temperature=1.0,
            config=TrainerConfig(fast=path),
        )
        for path in PATHS
    }
    batch = batch_of(scene, trainers["always"].model.vocab_size)
    seconds: dict[str, list[dict[str, float]]] = {path: [] for path in PATHS}
    for turn in range(rounds + 1):
        for path in PATHS if turn % 2 else reversed(PATHS):
            began = time.perf_counter()
            report = asyncio.run(trainers[path].update(batch, POLICY))
            whole = time.perf_counter() - began
            if turn:
                seconds[path].append({"whole": whole, **report.seconds})
    limit = speed(limits(threads), dtype).operations
    prompts = [len(prompt) for prompt in batch.prompts_P]
    work = update_operations(Shape.of(scene.model), prompts, batch.lengths_S.tolist())
    yield f"{scene.name}, {dtype}: {batch.num_tokens} response tokens, {work / 1e12:.2f} TFLOP at least;"
    yield f"limit {limit / 1e9:.0f} GFLOP/s, {threads} threads."
    yield ""
    yield "| path | seconds | forward | backward | optimizer | GFLOP/s | share of the limit |"
    yield "|---|---|---|---|---|---|---|"
    for path in PATHS:
        of = {stage: median(turn.get(stage, 0.0) for turn in seconds[path]) for stage in seconds[path][0]}
        told = " | ".join(f"{of.get(stage, 0.0):.2f}" for stage in ("forward", "backward", "optimizer"))
        rate = work / of["whole"]
        yield f"| {path} | {of['whole']:.2f} | {told} | {rate / 1e9:.0f} | {rate / limit:.0%} |"
    pairs = zip(seconds["never"], seconds["always"], strict=True)
    ratios = sorted(plain["whole"] / fast["whole"] for plain, fast in pairs)
    yield ""
    yield f"never / always, pair by pair: median {median(ratios):.2f}, {ratios[0]:.2f} to {ratios[-1]:.2f}."


def batch_of(scene: Scene, vocab_size: int, seed: int = 0) -> Batch:
    """Random ids; advantages +1 and -1 in turn; ragged answers for the tiny scene, full ones for SmolLM2."""
    rng, size = random.Random(seed), scene.prompts * scene.samples
    shortest = scene.limit if scene.name == "smollm2" else scene.limit // 3
    lengths_S = torch.tensor([rng.randint(shortest, scene.limit) for _ in range(size)])
    tokens = int(lengths_S.sum())
    ids = torch.randint(
        2, vocab_size, (tokens + PROMPT * scene.prompts,), generator=torch.Generator().manual_seed(seed)
    )
    seq_T = torch.repeat_interleave(torch.arange(size), lengths_S)
    group_S = torch.arange(size) // scene.samples
    signs_S = 1.0 - 2.0 * (torch.arange(size) % 2).double()
    return Batch(
        prompts_P=tuple(ids[tokens:].split(PROMPT)),
        token_ids_T=ids[:tokens],
        seq_T=seq_T,
        mask_T=torch.ones(tokens, dtype=torch.bool),
        rollout_logprobs_T=torch.zeros(tokens),
        group_S=group_S,
        rewards_S=signs_S,
        outcomes_S=signs_S,
        truncated_S=torch.zeros(size, dtype=torch.bool),
        version_S=torch.zeros(size, dtype=torch.int64),
        keys_S=tuple(f"p{s // scene.samples}#0/{s % scene.samples}" for s in range(size)),
        columns={"advantages_T": signs_S[seq_T]},
    )


if __name__ == "__main__":
    main()
