"""What a reward model or a judge is shown of a rollout: one place, so that training and grading agree."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from trimtab.rewards.answer import conclusion
from trimtab.types import Prompt, Rollout

Message = Mapping[str, str]

Form = Literal["auto", "chat", "text", "pair"]
FORMS = ("auto", "chat", "text", "pair")
"""How a checkpoint reads prompt and response; see ``classifier.Classifier``."""

Reads = Literal["conclusion", "all"]
READS = ("conclusion", "all")
"""``conclusion``: what follows the thinking; ``all``: the whole response."""

THINK = "<think>"


def concluded(prompt: str, response: str) -> str:
    """What follows the thinking, also where the prompt has opened it; empty where it never ends."""
    return conclusion((THINK if prompt.rstrip().endswith(THINK) else "") + response)


def shown(prompt: Prompt, rollout: Rollout, reads: Reads) -> str:
    """The part of a rollout that is looked at; empty where it stops thinking before it says anything."""
    return rollout.text if reads == "all" else concluded(prompt.text, rollout.text).strip()


def spoken(messages: Sequence[Message]) -> str:
    """Messages as plain text: the words of a single one, else ``role: words``, a paragraph each."""
    if len(messages) == 1:
        return messages[0]["content"]
    return "\n\n".join(f"{message['role']}: {message['content']}" for message in messages)
