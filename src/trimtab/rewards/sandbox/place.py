"""Where programs run: a tier, an interpreter, and limits."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import dataclass

from trimtab.rewards.sandbox.interpreter import Interpreter
from trimtab.rewards.sandbox.limits import Limits
from trimtab.rewards.sandbox.report import Tier


@dataclass(frozen=True, slots=True)
class Place:
    """All that decides how a program is confined, apart from the user id lent for each call."""

    tier: Tier
    interpreter: Interpreter
    limits: Limits
