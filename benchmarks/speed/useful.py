"""A grader that makes every group useful, so that nobody wins time by skipping: answers are right in turn."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Any


def every_other(prompt: Any, rollout: Any) -> float:
    """1 for the answers 0, 2, 4 ... of a group, 0 for the others."""
    return float(rollout.index % 2 == 0)
