"""Rewards: graders, the rubric that asks them, and the shaping that comes after.

``GRADERS`` names the built-in graders. Each is a frozen dataclass whose fields are its options in a
recipe: ``graders = [{name = "answer", options = {marker = "####"}}]``.
"""
# SPDX-License-Identifier: Apache-2.0

from typing import Any

from trimtab.rewards.answer import AnswerMatch
from trimtab.rewards.code import CodeTests
from trimtab.rewards.format import FormatMatch
from trimtab.rewards.mathematics import MathematicsMatch

GRADERS: dict[str, type[Any]] = {
    "answer": AnswerMatch,
    "code": CodeTests,
    "format": FormatMatch,
    "mathematics": MathematicsMatch,
}

__all__ = ["GRADERS"]
