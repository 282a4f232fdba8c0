"""The program in a response: its last fenced block."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re

from trimtab.rewards.answer import conclusion
from trimtab.types import Prompt

PYTHON = ("", "python", "python3", "py")
"""What may stand behind the three backticks of a program."""


def last_program(response: str) -> tuple[str | None, str]:
    """The last fenced block after the thinking, or None and why there is none."""
    program: str | None = None
    fault = "there is no code block after the thinking"
    opened: str | None = None
    language = ""
    body: list[str] = []
    for line in conclusion(response).split("\n"):
        fence = re.fullmatch(r" {0,3}(`{3,})[ \t]*([^\s`]*)[^`]*", line)
        if opened is None and fence:
            opened, language, body = fence[1], fence[2].lower(), []
        elif opened is not None and fence and not fence[2] and len(fence[1]) >= len(opened):
            if language in PYTHON:
                program = "\n".join(body) + "\n"
            opened = None
        elif opened is not None:
            body.append(line)
    if opened is not None and language in PYTHON:
        return None, "the last code block is not closed"
    return program, fault


def prefilled(prompt: Prompt) -> str:
    """What the prompt itself ends with, ``<think>`` or an opened fence: the response goes on from there."""
    text = prompt.text.rstrip()
    if text.endswith("<think>"):
        return "<think>"
    fence = re.search(r"(?:\A|\n)```(?:python|python3|py)\Z", text)
    return "```python\n" if fence else ""
