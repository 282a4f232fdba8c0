"""The tasks that ship with trimtab: ``TASKS["sums"].rows("train", 4096, seed=0)``."""
# SPDX-License-Identifier: Apache-2.0

from trimtab.data.tasks.letters import LETTERS
from trimtab.data.tasks.programs import PROGRAMS
from trimtab.data.tasks.sums import SUMS
from trimtab.data.tasks.task import Demonstration, Question, Task

TASKS: dict[str, Task] = {task.name: task for task in (SUMS, LETTERS, PROGRAMS)}

__all__ = ["TASKS", "Demonstration", "Question", "Task"]
