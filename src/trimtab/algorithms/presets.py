"""All presets by name."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable

from trimtab.algorithms.algorithm import Algorithm
from trimtab.algorithms.cispo import cispo
from trimtab.algorithms.dapo import dapo
from trimtab.algorithms.dr_grpo import dr_grpo
from trimtab.algorithms.grpo import grpo
from trimtab.algorithms.gspo import gspo
from trimtab.algorithms.gspo_token import gspo_token
from trimtab.algorithms.ppo import ppo
from trimtab.algorithms.rloo import rloo
from trimtab.algorithms.sapo import sapo
from trimtab.algorithms.sign_decoupled import sign_decoupled

ALGORITHMS: dict[str, Callable[..., Algorithm]] = {
    "ppo": ppo,
    "grpo": grpo,
    "dr_grpo": dr_grpo,
    "dapo": dapo,
    "gspo": gspo,
    "gspo_token": gspo_token,
    "sapo": sapo,
    "sign_decoupled": sign_decoupled,
    "cispo": cispo,
    "rloo": rloo,
}
"""Every preset by its name in a recipe: ``[algorithm] name = "dapo"``."""
