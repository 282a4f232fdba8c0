"""Peak memory of whole processes and of their updates, SmolLM2 with answers of up to 512 tokens."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

from benchmarks.speed.compare import FAST, GIB, PEER, WORDS
from benchmarks.speed.configurations import PEERS, Configuration
from benchmarks.speed.scenes import scene_of
from benchmarks.speed.sides import our_side, peer_side
from benchmarks.speed.turns import Side, SideFailedError

PEER_BATCHES = (8, 4, 1)
"""TRL's micro-batches: all answers of the step, about as many tokens as trimtab's default, and the least."""


def measure(args: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Iterator[str]]]:
    """The second step of each side: in the first the optimizer has no state yet."""
    scene = scene_of("memory", args.work, args.smollm2.resolve(), limit=args.limit, prompts=args.prompts)
    rows: list[dict[str, Any]] = []
    for numerics in args.numerics:
        sides = {"default": our_side(FAST, scene, numerics, args, memory=True)}
        for size in PEER_BATCHES:
            options = {**PEERS[numerics], "per_device_train_batch_size": size}
            sides[f"micro-batches of {size}"] = peer_side(
                scene, Configuration("", numerics, options), args, memory=True
            )
        for label, side in sides.items():
            rows.append({"numerics": numerics, "side": side.name, "label": label, **_second_step(side, args)})
    result = {"scene": json.loads(scene.to_json()), "size": scene.size, "rows": rows}
    return result, {"memory": table(result)}


def _second_step(side: Side, args: argparse.Namespace) -> dict[str, Any]:
    side.start(args.work)
    try:
        side.turn(keep=False)
        return side.turn(keep=True)
    except SideFailedError as fault:
        return {"fault": str(fault).strip().splitlines()[-1][:160]}
    finally:
        side.stop()


def table(result: dict[str, Any]) -> Iterator[str]:
    """One row a side; the ratio is to trimtab's update in the same numerics."""
    yield f"{result['size']}; the second step."
    yield ""
    yield (
        "| numerics | side | longest answer | before the update | peak in the update | the update's own "
        "| peak / trimtab's | own / trimtab's |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    ours: dict[str, dict[str, Any]] = {}
    for row in result["rows"]:
        label = f"{row['side']}: {row['label']}" if row["side"] == PEER else row["side"]
        if "fault" in row:
            yield f"| {WORDS[row['numerics']]} | {label} | fails: {row['fault']} | | | | | |"
            continue
        first = ours.setdefault(row["numerics"], row)
        peak, own = row["update_peak_bytes"], _own(row)
        yield (
            f"| {WORDS[row['numerics']]} | {label} | {max(row['lengths'])} "
            f"| {row['update_start_bytes'] / GIB:.2f} GiB | {peak / GIB:.2f} GiB | {own / GIB:.2f} GiB "
            f"| {peak / first['update_peak_bytes']:.2f} | {own / _own(first):.2f} |"
        )


def _own(row: dict[str, Any]) -> int:
    return row["update_peak_bytes"] - row["update_start_bytes"]
