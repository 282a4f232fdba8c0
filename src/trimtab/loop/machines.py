"""What the loops drive."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import dataclass

from trimtab.loop.view import View
from trimtab.record.writer import RunRecord
from trimtab.rewards.rubric import Rubric
from trimtab.rollout.engine import RolloutEngine
from trimtab.trainer.trainer import Trainer
from trimtab.types import Prompt


@dataclass(frozen=True, slots=True, eq=False)
class Machines:
    """Any engine and trainer behind the same protocols will do."""

    engine: RolloutEngine
    trainer: Trainer
    rubric: Rubric
    record: RunRecord
    view: View
    held_out: tuple[Prompt, ...]
