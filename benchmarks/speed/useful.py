"""Rewards that both sides share: alternating ones, which make every group useful, and the right answer."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import time
from typing import Any

SLEEP = 0.02
"""Seconds that the slow grader takes for an answer, without using a processor, as one that asks a server."""


def every_other(prompt: Any, rollout: Any) -> float:
    """1 for the answers 0, 2, 4 ... of a group, 0 for the others."""
    return alternating(rollout.index)


def slow_every_other(prompt: Any, rollout: Any) -> float:
    """``every_other`` after ``SLEEP`` seconds."""
    time.sleep(SLEEP)
    return alternating(rollout.index)


def right_sum(prompt: Any, rollout: Any) -> float:
    """1 where the answer's text ends in the right number."""
    return ends_in(rollout.text, prompt.answer)


def alternating(index: int) -> float:
    """No group of two or more has equal rewards, so nobody can win time by skipping one."""
    return float(index % 2 == 0)


def ends_in(text: str, answer: str) -> float:
    """1 where the last marker of ``text`` is followed by ``answer`` and nothing else."""
    return float(text.rpartition("#")[2].strip() == answer and "#" in text)
