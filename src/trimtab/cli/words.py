"""The words of a command line: which are settings of the run, and how text is shown safely."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import TextIO

from trimtab.errors import SettingError

SETTING = re.compile(r"[A-Za-z_]\w*(\.[\w-]+)+")
HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})


def split_settings(tokens: Sequence[str]) -> tuple[list[str], list[str]]:
    """(other words, settings as ``a.b=c``); ``--a.b c`` and ``--a.b=c`` are settings too.

    Raises SettingError for an ``--a.b`` without a value.
    """
    words: list[str] = []
    settings: list[str] = []
    queue = list(tokens)
    while queue:
        token = queue.pop(0)
        dashed = token.startswith("--")
        key, equals, value = token.removeprefix("--").partition("=")
        if not SETTING.fullmatch(key) or not (equals or dashed):
            words.append(token)
        elif equals:
            settings.append(f"{key}={value}")
        elif queue:
            settings.append(f"{key}={queue.pop(0)}")
        else:
            raise SettingError(f"--{key} needs a value: --{key} VALUE or {key}=VALUE")
    return words, settings


def safe(text: str) -> str:
    """Text of a model, a data set or a file name with everything that could steer a terminal made visible."""
    return "".join(_visible(character) for character in text)


def say(text: str, out: TextIO | None = None) -> None:
    """Print, line by line, with nothing in it that could steer a terminal."""
    for line in text.splitlines():
        print(safe(line), file=out, flush=True)


def _visible(character: str) -> str:
    if unicodedata.category(character) in HIDDEN:
        return character.encode("unicode_escape").decode("ascii")
    return character
