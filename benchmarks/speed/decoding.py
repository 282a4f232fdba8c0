"""One decoding step looked into: time by kind of work and accuracy, plain path against packed weights.

    python -m benchmarks.speed.decoding models/smollm2-135m-instruct --dtype bfloat16 --prompts 8
    python -m benchmarks.speed.decoding runs/speed/tiny-model --prompts 32 --limit 96

Both paths take turns in one process. Prints milliseconds a step, what packing costs in seconds and memory,
where the time goes, and how far each path's log-probabilities are from plain passes of the model, which are
what a trainer sees.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from trimtab.models import LoadedModel, load_model
from trimtab.rollout.agreement import plain_logprobs
from trimtab.rollout.attention import use_grouped_attention
from trimtab.rollout.decoding import Decoder
from trimtab.rollout.engine import Sampling
from trimtab.rollout.packed import PackedModel
from trimtab.rollout.rows import Ended, Entry
from trimtab.types import IntArray

KINDS = {
    "products with weights": ("aten::mm", "aten::addmm", "mkldnn::_linear_pointwise"),
    "attention": ("aten::_scaled_dot_product_flash_attention_for_cpu", "aten::bmm", "aten::baddbmm"),
    "softmax, exponentials, sums": (
        "aten::_softmax",
        "aten::exp_",
        "aten::amax",
        "aten::sum",
        "aten::cumsum",
    ),
}
"""Operators by kind of work; all others are "element by element, copies, views"."""

REST = "element by element, copies, views"


def entries_of(model: LoadedModel, prompts: int, samples: int) -> list[Entry]:
    """Groups of sums in plain text."""
    rng = random.Random(11)
    found = []
    for number in range(prompts):
        a, b, c = (rng.randint(10, 99) for _ in range(3))
        ids: IntArray = np.asarray(model.tokenizer(f"Work out {a} + {b} - {c} step by step.\n")["input_ids"])
        seeds = tuple(range(1000 * number, 1000 * number + samples))
        found.append(Entry(number, str(number), ids, 0, seeds))
    return found


def decode(
    model: LoadedModel, entries: Sequence[Entry], limit: int, packed: PackedModel | None
) -> tuple[list[float], list[Ended]]:
    """Seconds of every step, and the answers, all of ``limit`` tokens."""
    decoder = Decoder(
        model,
        Sampling(max_new_tokens=limit),
        max_rows=sum(len(entry.seeds) for entry in entries),
        longest_prompt=max(len(entry.token_ids) for entry in entries),
        version=0,
        packed=packed,
    )
    decoder.admit(entries)
    seconds = []
    while decoder.live:
        began = time.perf_counter()
        decoder.step()
        seconds.append(time.perf_counter() - began)
    return seconds, decoder.drain()


def kinds(
    model: LoadedModel, entries: Sequence[Entry], limit: int, packed: PackedModel | None
) -> Counter[str]:
    """Milliseconds a step of each kind of work, as the profiler sees them; small operators look slower."""
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        decode(model, entries, limit, packed)
    kind_of = {name: kind for kind, names in KINDS.items() for name in names}
    found: Counter[str] = Counter()
    for event in seen.key_averages():
        found[kind_of.get(event.key, REST)] += event.self_cpu_time_total / 1000 / limit
    return found


def gap(model: LoadedModel, entries: Sequence[Entry], answers: Sequence[Ended]) -> float:
    """Mean |difference| between the log-probabilities of drawn tokens and those of plain passes."""
    return mean(
        float(np.abs(a.logprobs - plain_logprobs(model, entries[a.owner].token_ids, a)).mean())
        for a in answers
    )


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Both paths in turn, then each under the profiler."""
    model = load_model(args.model, device="cpu", dtype=args.dtype)
    model = dataclasses.replace(model, stop_ids=())
    use_grouped_attention(model.module)
    entries = entries_of(model, args.prompts, args.samples)
    packed = PackedModel(model.module, model.vocab_size)
    began = time.perf_counter()
    packed.refresh()
    packing = time.perf_counter() - began
    paths = {"plain path": None, "packed weights": packed}
    steps: dict[str, list[float]] = {name: [] for name in paths}
    answers: dict[str, list[Ended]] = {}
    for turn in range(1 + args.rounds):
        for name, path in paths.items():
            seconds, answers[name] = decode(model, entries, args.limit, path)
            steps[name] += seconds if turn else []
    weights = sum(p.numel() * p.element_size() for p in model.module.parameters())
    return {
        "packing_seconds": packing,
        "weights_bytes": weights,
        "step_seconds": {name: median(seconds) for name, seconds in steps.items()},
        "kinds": {name: dict(kinds(model, entries, args.limit, path)) for name, path in paths.items()},
        "gaps": {name: gap(model, entries, found) for name, found in answers.items()},
        "same": sum(
            np.array_equal(a.token_ids, b.token_ids)
            for a, b in zip(answers["plain path"], answers["packed weights"], strict=True)
        ),
        "rollouts": args.prompts * args.samples,
    }


def table(result: dict[str, Any]) -> Iterator[str]:
    """Milliseconds a step by kind of work, and the accuracy below."""
    paths = list(result["step_seconds"])
    yield f"| a step | {' | '.join(paths)} | ratio |"
    yield "|---|---|---|---|"
    plain, packed = (1000 * result["step_seconds"][name] for name in paths)
    yield f"| milliseconds, median | {plain:.2f} | {packed:.2f} | **{plain / packed:.2f}** |"
    for kind in (*KINDS, REST):
        cells = [result["kinds"][name].get(kind, 0.0) for name in paths]
        yield f"| {kind}, profiled | {cells[0]:.2f} | {cells[1]:.2f} | |"
    yield ""
    told = ", ".join(f"{name} {value:.2e}" for name, value in result["gaps"].items())
    yield f"Mean |log-probability - plain pass's|: {told}."
    yield f"The same tokens in {result['same']} of {result['rollouts']} rollouts."
    yield (
        f"Packing: {result['packing_seconds']:.3f} s a call of the engine, and about as much memory as the "
        f"weights ({result['weights_bytes'] / 1e6:.0f} MB) while it lasts."
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--limit", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    result = measure(args)
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")
    print("\n".join(table(result)))


if __name__ == "__main__":
    main()
