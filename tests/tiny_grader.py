"""A rule that a random model meets now and then: the answer starts with a digit."""
# SPDX-License-Identifier: Apache-2.0

from typing import Any


def starts_with_digit(prompt: Any, rollout: Any) -> float:
    return float(rollout.text[:1].isdigit())


def always_half(prompt: Any, rollout: Any) -> float:
    """The same for every answer."""
    del prompt, rollout
    return 0.5
