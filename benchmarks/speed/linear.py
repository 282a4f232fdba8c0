"""A step's seconds and memory from 1k to 64k response tokens: is the cost linear?"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

from benchmarks.speed.compare import GIB, stage
from benchmarks.speed.scenes import scene_of
from benchmarks.speed.sides import our_side
from benchmarks.speed.turns import alternate

GROUPS = (2, 4, 8, 16, 32, 64, 128)
LARGE = 4
"""Steps at the upper end whose growth is told by itself."""

WIDTH, HEIGHT, MARGIN = 640, 360, 56


def measure(args: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Iterator[str]]]:
    """The tiny scene with more and more groups; one process after the other."""
    points = []
    for groups in GROUPS:
        scene = scene_of("tiny", args.work, args.smollm2.resolve(), prompts=groups, limit=args.limit)
        side = our_side("trimtab", scene, args.numerics[0], args)
        alternate([side], rounds=min(args.rounds, 3), warm_up=1, folder=args.work)
        points.append(
            {
                "groups": groups,
                "tokens": median(step["tokens"] for step in side.steps),
                "seconds": median(step["seconds"] for step in side.steps),
                "sample": median(stage(step, "sample") for step in side.steps),
                "update": median(stage(step, "update") for step in side.steps),
                "peak_bytes": max(step["peak_bytes"] for step in side.steps),
            }
        )
    if args.write:
        picture = args.write.parent / "images" / "speed-linear.svg"
        picture.write_text(plot(points), encoding="utf-8")
    result = {"numerics": args.numerics[0], "points": points}
    return result, {"linear": table(points)}


def slope(points: Sequence[dict[str, Any]], key: str = "seconds") -> float:
    """b of log(seconds) = a + b log(tokens), by least squares: 1 is linear, 2 quadratic."""
    x = [math.log(point["tokens"]) for point in points]
    y = [math.log(point[key]) for point in points]
    mid_x, mid_y = sum(x) / len(x), sum(y) / len(y)
    over = sum((a - mid_x) * (b - mid_y) for a, b in zip(x, y, strict=True))
    return over / sum((a - mid_x) ** 2 for a in x)


def table(points: Sequence[dict[str, Any]]) -> Iterator[str]:
    """One row a size, and the slope of the whole."""
    yield (
        "| groups of 8 | response tokens a step | seconds a step | ms per 1,000 tokens | sampling | update "
        "| peak memory |"
    )
    yield "|---|---|---|---|---|---|---|"
    for point in points:
        yield (
            f"| {point['groups']} | {point['tokens']:.0f} | {point['seconds']:.2f} "
            f"| {1e6 * point['seconds'] / point['tokens']:.0f} | {point['sample']:.2f} "
            f"| {point['update']:.2f} | {point['peak_bytes'] / GIB:.2f} GiB |"
        )
    yield ""
    upper = points[-LARGE:]
    yield (
        f"Seconds grow with the power {slope(points):.2f} of the tokens, over the {len(upper)} largest steps "
        f"with {slope(upper):.2f} (1 is linear; small steps pay fixed costs); memory over these with "
        f"{slope(upper, 'peak_bytes'):.2f}."
    )


def plot(points: Sequence[dict[str, Any]]) -> str:
    """Seconds over tokens as an SVG picture, with the straight line through the largest step."""
    top_x, top_y = points[-1]["tokens"], max(point["seconds"] for point in points)

    def place(tokens: float, seconds: float) -> tuple[float, float]:
        x = MARGIN + tokens / top_x * (WIDTH - 2 * MARGIN)
        return x, HEIGHT - MARGIN - seconds / top_y * (HEIGHT - 2 * MARGIN)

    dots = [place(point["tokens"], point["seconds"]) for point in points]
    (x0, y0), (x1, y1) = place(0, 0), place(top_x, points[-1]["seconds"])
    text = 'font-family="sans-serif" font-size="12" fill="#333"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" role="img">',
        "<title>Seconds of a step over its response tokens</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        f'<path d="M{MARGIN} {MARGIN}V{y0:.1f}H{WIDTH - MARGIN}" fill="none" stroke="#333"/>',
        f'<path d="M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}" stroke="#999" stroke-dasharray="4 4"/>',
        *(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="#0b6"/>' for x, y in dots),
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 12}" text-anchor="middle" {text}>response tokens a step, up to '
        f"{top_x:.0f}</text>",
        f'<text x="{MARGIN}" y="{MARGIN - 16}" {text}>seconds a step, up to {top_y:.1f}</text>',
        "</svg>",
    ]
    return "\n".join(lines) + "\n"
