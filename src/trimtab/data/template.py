"""From an item's prompt to what the model reads: instructions, worked examples, chat template."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Message = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A worked example that stands before every prompt."""

    prompt: str
    response: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """How prompts are written.

    form: ``auto`` gives lists of messages to the chat template and leaves text as it is; ``chat`` makes
        a text prompt the user's message, which the chat template then frames.
    system: a system message; in plain text the first paragraph.
    prefix, suffix: text directly before and after each question, those of the examples included.
    examples: earlier turns; in plain text paragraphs of question and response.
    """

    form: Literal["auto", "chat"] = "auto"
    system: str = ""
    prefix: str = ""
    suffix: str = ""
    examples: tuple[Example, ...] = ()

    def uses_chat(self, prompt: str | Sequence[Message]) -> bool:
        """Whether this prompt goes through the model's chat template."""
        return self.form == "chat" or not isinstance(prompt, str)

    def apply(self, prompt: str | Sequence[Message]) -> str | tuple[Message, ...]:
        """Text, or the messages for the chat template.

        Messages keep a system message of their own; prefix and suffix go around the last user message.
        """
        if not self.uses_chat(prompt):
            assert isinstance(prompt, str)
            worked = [f"{self._ask(e.prompt)}{e.response}\n\n" for e in self.examples]
            return "".join([f"{self.system}\n\n" if self.system else "", *worked, self._ask(prompt)])
        turns = (
            [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [dict(m) for m in prompt]
        )
        last = max((i for i, turn in enumerate(turns) if turn["role"] == "user"), default=None)
        if last is not None:
            turns[last]["content"] = self._ask(turns[last]["content"])
        own = turns[:1] if turns[0]["role"] == "system" else []
        system = own or ([{"role": "system", "content": self.system}] if self.system else [])
        worked_turns = [
            turn
            for example in self.examples
            for turn in (
                {"role": "user", "content": self._ask(example.prompt)},
                {"role": "assistant", "content": example.response},
            )
        ]
        return (*system, *worked_turns, *turns[len(own) :])

    def _ask(self, question: str) -> str:
        return f"{self.prefix}{question}{self.suffix}"
