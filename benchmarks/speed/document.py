"""Puts tables between their marks in a Markdown page, and leaves everything else as it is."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

END = "<!-- end of table -->"


def begin(name: str, command: str | None = None) -> str:
    """The mark before the table of that name, which says how to make it."""
    command = command or f"benchmarks.speed {name.partition(' ')[0]} --write docs/speed.md"
    return f"<!-- table {name}: python -m {command} -->"


def filled(page: str, name: str, lines: Iterable[str], command: str | None = None) -> str:
    """``page`` with ``lines`` as the table ``name``. Raises ValueError where its marks are not there once."""
    mark = begin(name, command)
    pattern = re.compile(f"{re.escape(mark)}\n.*?{re.escape(END)}", re.S)
    text = "\n".join([mark, *lines, END])
    page, count = pattern.subn(lambda _: text, page)
    if count != 1:
        raise ValueError(f"the page has {count} places for the table {name!r}; it needs one: {mark}")
    return page


def write(path: Path, name: str, lines: Iterable[str], command: str | None = None) -> None:
    """Fill one table of the page at ``path``."""
    path.write_text(filled(path.read_text(encoding="utf-8"), name, lines, command), encoding="utf-8")
