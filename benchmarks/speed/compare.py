"""Whole steps of trimtab and TRL in turn, by numerics: seconds, ratios, shares of the machine's limits."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.speed.limits import speed
from benchmarks.speed.turns import Numbers
from benchmarks.speed.work import Shape, sampling_seconds, update_operations

GIB = 1 << 30
FAST, PLAIN, PEER = "trimtab", "trimtab, plain path", "TRL"
WORDS = {
    "float32": "float32",
    "autocast": "bfloat16 products, float32 weights",
    "bfloat16": "bfloat16 weights",
}
UPDATING = ("annotate", "advantages", "update")
"""Trimtab's stages that TRL makes in its one call after sampling and grading."""

Result = Mapping[str, Any]


def per_step(steps: Sequence[Numbers], key: str) -> list[float]:
    """One number of every step."""
    return [step[key] for step in steps]


def rate(steps: Sequence[Numbers]) -> float:
    """Response tokens a second, the median step's."""
    return median(step["tokens"] / step["seconds"] for step in steps)


def stage(step: Numbers, name: str) -> float:
    """Seconds of "sample", "grade" or "update" (with all that prepares it); "rest" is what is left."""
    stages = step["stages"]
    if name == "update":
        return sum(stages.get(part, 0.0) for part in UPDATING)
    if name == "rest":
        return step["seconds"] - sum(stage(step, part) for part in ("sample", "grade", "update"))
    return stages.get(name, 0.0)


def ratios(sides: Mapping[str, Sequence[Numbers]]) -> list[float]:
    """TRL's seconds over trimtab's, round by round, sorted."""
    return sorted(
        peer["seconds"] / ours["seconds"] for peer, ours in zip(sides[PEER], sides[FAST], strict=True)
    )


def step_table(result: Result) -> Iterator[str]:
    """Seconds, tokens a second and ratios of every side and numerics; then best against best."""
    yield f"{result['scene']['name']}: {result['size']}, {len(result['pairs'][0]['sides'][FAST])} rounds."
    yield ""
    yield (
        "| numerics | side | seconds a step | sampling | update | tokens a second | peak memory "
        "| TRL / trimtab |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for pair in result["pairs"]:
        for name, steps in pair["sides"].items():
            seconds = per_step(steps, "seconds")
            parts = [median(stage(step, part) for step in steps) for part in ("sample", "update")]
            peak = max(per_step(steps, "peak_bytes")) / GIB
            found = ratios(pair["sides"])
            ratio = f"**{median(found):.2f}** ({found[0]:.2f} to {found[-1]:.2f})" if name == FAST else ""
            label = f"TRL: {pair['peer']}" if name == PEER else name
            yield (
                f"| {WORDS[pair['numerics']]} | {label} | {median(seconds):.2f} ({min(seconds):.2f} to "
                f"{max(seconds):.2f}) | {parts[0]:.2f} | {parts[1]:.2f} | {rate(steps):.0f} | {peak:.2f} GiB "
                f"| {ratio} |"
            )
    yield ""
    yield _best_against_best(result)


def _best_against_best(result: Result) -> str:
    best = {
        name: min(result["pairs"], key=lambda pair: median(per_step(pair["sides"][name], "seconds")))
        for name in (FAST, PEER)
    }
    seconds = {name: median(per_step(pair["sides"][name], "seconds")) for name, pair in best.items()}
    rates = {name: rate(pair["sides"][name]) for name, pair in best.items()}
    return (
        f"Best against best: trimtab ({WORDS[best[FAST]['numerics']]}) {seconds[FAST]:.2f} s, TRL "
        f"({best[PEER]['peer']}) {seconds[PEER]:.2f} s: **{seconds[PEER] / seconds[FAST]:.2f} times** as "
        f"fast a step, {rates[FAST] / rates[PEER]:.2f} times the tokens a second."
    )


def silence(result: Result) -> Iterator[str]:
    """How many groups had equal rewards, where that was possible."""
    for pair in result["pairs"]:
        shares = [
            step["uniform_groups"] for step in pair["sides"][FAST] if step.get("uniform_groups") is not None
        ]
        if shares and not result["scene"]["forced"]:
            yield ""
            yield (
                f"{WORDS[pair['numerics']]}: {median(shares):.0%} of the groups had equal rewards, so that "
                "no answer of theirs has a gradient. Trimtab skips them in its update "
                "(`trainer.skip_silent`); TRL and trimtab's plain path compute them."
            )


def shares(step: Numbers, shape: Shape, numerics: str, found: Result) -> dict[str, float]:
    """Of one step: the least work of sampling and update, and how near the machine's limit they came."""
    machine = speed(dict(found), numerics)
    lengths, prompts = step["lengths"], step["prompt_lengths"]
    least = sampling_seconds(shape, prompts, lengths, machine, 2 if numerics == "bfloat16" else 4)
    operations = update_operations(shape, prompts, lengths)
    return {
        "sampling_least": least,
        "sampling": least / stage(step, "sample"),
        "update_gflop": operations * 1e-9,
        "update": operations / machine.operations / stage(step, "update"),
    }


def share_table(result: Result) -> Iterator[str]:
    """Each side's sampling and update as a share of what this machine allows."""
    shape = Shape.of(result["scene"]["model"])
    yield (
        "| numerics | side | sampling, tokens a second | least seconds | share of the limit "
        "| update, GFLOP | GFLOP/s | share of the limit |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for pair in result["pairs"]:
        for name, steps in pair["sides"].items():
            each = [shares(step, shape, pair["numerics"], result["limits"]) for step in steps]
            mid = {key: median(one[key] for one in each) for key in each[0]}
            sampled = median(step["tokens"] / stage(step, "sample") for step in steps)
            pace = median(
                one["update_gflop"] / stage(step, "update") for one, step in zip(each, steps, strict=True)
            )
            yield (
                f"| {WORDS[pair['numerics']]} | {name} | {sampled:.0f} | {mid['sampling_least']:.2f} "
                f"| {mid['sampling']:.0%} | {mid['update_gflop']:.0f} | {pace:.0f} | {mid['update']:.0%} |"
            )


def profile_table(result: Result) -> Iterator[str]:
    """Trimtab's seconds by stage, plain path and fast path, for each numerics."""
    yield (
        "| stage | "
        + " | ".join(f"{WORDS[p['numerics']]}, {word}" for p in result["pairs"] for word in ("plain", "fast"))
        + " |"
    )
    yield "|---|" + "---|---|" * len(result["pairs"])
    sides = [pair["sides"][name] for pair in result["pairs"] for name in (PLAIN, FAST)]
    names = list(dict.fromkeys(name for steps in sides for step in steps for name in step["stages"]))
    whole_first = {name: (names.index(name.partition("/")[0]), "/" in name) for name in names}
    names.sort(key=lambda name: whole_first[name])
    for name in names:
        middle = [median(step["stages"].get(name, 0.0) for step in steps) for steps in sides]
        if max(middle) >= 0.005:
            yield f"| {name} | " + " | ".join(f"{seconds:.2f}" for seconds in middle) + " |"
    whole = [median(per_step(steps, "seconds")) for steps in sides]
    yield "| whole step | " + " | ".join(f"{seconds:.2f}" for seconds in whole) + " |"
