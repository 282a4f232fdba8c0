"""The words of a command line: which are settings of the run, and how text is shown safely."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Sequence
from typing import Any, TextIO

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


def joined(tokens: Sequence[str], options: Sequence[str]) -> list[str]:
    """``--response -x`` as ``--response=-x``, so that a value may begin with a dash."""
    words: list[str] = []
    queue = list(tokens)
    while queue:
        token = queue.pop(0)
        words.append(f"{token}={queue.pop(0)}" if token in options and queue else token)
    return words


def option(token: str) -> tuple[str, Any]:
    """``key=value`` of a grader: its value as TOML has it, else text. Raises SettingError without ``=``."""
    key, equals, text = token.partition("=")
    if not (equals and key):
        raise SettingError(f"an option is written --option key=value, got {token!r}")
    try:
        return key, tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return key, text


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
