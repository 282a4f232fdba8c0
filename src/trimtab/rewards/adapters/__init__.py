"""Reward functions written for TRL, verl, OpenRLHF and verifiers, run unchanged (docs/adapters.md).

adapted = Adapted(function, "accuracy", AdapterOptions(range=(-1.0, 1.0)))
grades = await adapted.grades(prompt, rollouts)
"""
# SPDX-License-Identifier: Apache-2.0

from trimtab.rewards.adapters.adapted import Adapted, AdapterOptions
from trimtab.rewards.adapters.recognition import AUTO, FORMS, recognise
from trimtab.rewards.adapters.returned import Graded

__all__ = ["AUTO", "FORMS", "Adapted", "AdapterOptions", "Graded", "recognise"]
