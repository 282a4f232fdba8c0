"""From a ``Run`` to running machines and back to a summary; what the commands call."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from trimtab.launch.evaluating import evaluate
from trimtab.launch.folders import export
from trimtab.launch.plant import trainer_of
from trimtab.launch.prompts import prompts_of
from trimtab.launch.training import train

__all__ = ["evaluate", "export", "prompts_of", "train", "trainer_of"]
