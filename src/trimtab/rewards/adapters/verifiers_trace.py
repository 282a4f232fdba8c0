"""What stands for a trace and for task data of verifiers v1: one prompt and one answer to it.

Each answers to the names that a reward of one turn reads. Anything else raises AttributeError, which says so.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from trimtab.rewards.adapters.arguments import columns_of, completion_as, prompt_as
from trimtab.types import Prompt, Rollout


@dataclass(frozen=True, slots=True)
class Message:
    """A message whose parts are attributes."""

    role: str
    content: str


class TaskData:
    """The columns of the prompt's row as attributes, its text as ``prompt``, its gold as ``answer``."""

    def __init__(self, prompt: Prompt) -> None:
        self._columns = {**columns_of(prompt), "prompt": prompt.text, "prompt_text": prompt.text}

    def __getattr__(self, name: str) -> Any:
        columns = self.__dict__.get("_columns", {})
        if name not in columns:
            raise AttributeError(f"the rows have no column {name!r} (columns there: {', '.join(columns)})")
        return columns[name]


@dataclass(frozen=True, slots=True)
class TraceTask:
    """``trace.task``: what holds the data of the task."""

    data: TaskData


class Trace:
    """One answer as the one sampled turn of a trace."""

    def __init__(self, prompt: Prompt, rollout: Rollout) -> None:
        written = [*prompt_as(prompt, messages=True), *completion_as(rollout, messages=True)]
        self.messages = [Message(m["role"], m["content"]) for m in written if isinstance(m, dict)]
        self.assistant_messages = self.messages[-1:]
        self.last_message = self.messages[-1]
        self.tool_messages: list[Message] = []
        self.last_reply = rollout.text.strip()
        self.transcript = "\n\n".join(f"[{m.role}]\n{m.content}" for m in self.messages)
        self.num_turns = 1
        self.num_branches = 1
        self.num_output_tokens = rollout.length
        self.is_truncated = rollout.truncated
        self.has_error = False
        self.last_error = None
        self.task = TraceTask(TaskData(prompt))

    def __getattr__(self, name: str) -> NoReturn:
        known = ", ".join(sorted(self.__dict__))
        raise AttributeError(f"trace.{name} needs a running verifiers environment; trimtab offers {known}")
