"""Puts tables between their marks in a Markdown page, and leaves everything else as it is."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

END = "<!-- end of table -->"


def begin(name: str) -> str:
    """The mark before the table of that name, which says how to make it."""
    return f"<!-- table {name}: python -m benchmarks.speed {name.partition(' ')[0]} --write docs/speed.md -->"


def filled(page: str, name: str, lines: Iterable[str]) -> str:
    """``page`` with ``lines`` as the table ``name``. Raises ValueError where its marks are not there once."""
    pattern = re.compile(f"{re.escape(begin(name))}\n.*?{re.escape(END)}", re.S)
    text = "\n".join([begin(name), *lines, END])
    page, count = pattern.subn(lambda _: text, page)
    if count != 1:
        raise ValueError(f"the page has {count} places for the table {name!r}; it needs one: {begin(name)}")
    return page


def write(path: Path, name: str, lines: Iterable[str]) -> None:
    """Fill one table of the page at ``path``."""
    path.write_text(filled(path.read_text(encoding="utf-8"), name, lines), encoding="utf-8")
