"""Graders with a fault, as users write them: ``benchmarks/doctor/graders.py:NAME`` in a recipe."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio

from trimtab.types import Prompt, Rollout

LONGEST = 112
"""Characters at which the length reward is full."""


def always_half(prompt: Prompt, rollout: Rollout) -> float:
    """A constant."""
    del prompt, rollout
    return 0.5


def always_right(prompt: Prompt, rollout: Rollout) -> float:
    """Another constant, as a comparison of a thing with itself gives it."""
    return float(rollout.text == rollout.text)


def answered(prompt: Prompt, rollout: Rollout) -> float:
    """Nearly a constant: whether anything was answered at all."""
    del prompt
    return float(len(rollout.text.strip()) > 0)


def long_is_good(prompt: Prompt, rollout: Rollout) -> float:
    """Pays for characters alone."""
    del prompt
    return min(1.0, len(rollout.text) / LONGEST)


def right_and_long(prompt: Prompt, rollout: Rollout) -> float:
    """Pays a little for being right and much for being long."""
    right = rollout.text.rpartition("#")[2].strip() == str(prompt.answer)
    return 0.25 * right + 0.75 * long_is_good(prompt, rollout)


def counts_lines(prompt: Prompt, rollout: Rollout) -> float:
    """Meant to pay for worked steps; pays for every line."""
    right = rollout.text.rpartition("#")[2].strip() == str(prompt.answer)
    return 0.3 * right + 0.7 * min(1.0, rollout.text.count("\n") / 16)


def fails_without_marker(prompt: Prompt, rollout: Rollout) -> float:
    """Raises IndexError where the marker is missing and ValueError where no number follows."""
    return float(int(rollout.text.split("#")[1]) == int(prompt.answer))


def fails_on_negative(prompt: Prompt, rollout: Rollout) -> float:
    """Reads the digits only, and raises where a sign stands before them."""
    given = rollout.text.rpartition("#")[2].strip()
    if given.startswith("-"):
        raise ValueError(f"not a number: {given!r}")
    return float(given == str(prompt.answer))


async def slow_on_long(prompt: Prompt, rollout: Rollout) -> float:
    """Waits for something that does not answer where the answer has many lines."""
    if rollout.text.count("\n") >= 4:
        await asyncio.sleep(60)
    return float(rollout.text.rpartition("#")[2].strip() == str(prompt.answer))
