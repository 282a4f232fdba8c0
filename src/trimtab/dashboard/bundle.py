"""The pages' modules as one script, so that a report needs a single script whose hash its policy names.

Only the forms of import and export that the pages use are understood; anything else is an error here, never a
broken report.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

IMPORT = re.compile(r'^import (?:\{([^}]*)\}|(\w+)) from "(\./[^"]+)";\n', re.MULTILINE)
DECLARED = re.compile(r"^export (?=(?:async function\*?|function\*?|class|const) (\w+))", re.MULTILINE)
NAMED = re.compile(r"^export \{([^}]*)\};?\s*$", re.MULTILINE)
REMARK = re.compile(r"^/\*\n.*?^\*/\n", re.MULTILINE | re.DOTALL)
"""A block comment on lines of its own; one may hold code that exports."""

LEFT = re.compile(r"^(?:import|export)\b.*$", re.MULTILINE)


def bundle(folder: Path, main: str) -> str:
    """The module ``main`` of a folder and all that it imports, each in a scope of its own, in order of need.

    Raises ValueError for imports in a circle and for a form of import or export that is not understood.
    """
    return "".join(
        f"const {_scope(path, folder)} = (() => {{\n{_body(path, folder)}}})();\n"
        for path in _in_order(folder / main, ())
    )


def _in_order(path: Path, above: tuple[Path, ...]) -> list[Path]:
    if path in above:
        raise ValueError(f"modules import each other: {' -> '.join(one.name for one in (*above, path))}")
    found: dict[Path, None] = {}
    for _, _, address in IMPORT.findall(path.read_text(encoding="utf-8")):
        found |= dict.fromkeys(_in_order((path.parent / address).resolve(), (*above, path)))
    return [*found, path]


def _body(path: Path, folder: Path) -> str:
    """A module's text with its imports as constants and its exports as what the scope returns."""
    exported: list[str] = []

    def constants(found: re.Match[str]) -> str:
        scope = _scope((path.parent / found[3]).resolve(), folder)
        if found[2]:
            return f"const {found[2]} = {scope}.default;\n"
        return f"const {{ {', '.join(_renamed(found[1], ': '))} }} = {scope};\n"

    def declared(found: re.Match[str]) -> str:
        exported.append(found[1])
        return ""

    def named(found: re.Match[str]) -> str:
        exported.extend(": ".join(reversed(part.split(": "))) for part in _renamed(found[1], ": "))
        return ""

    text = IMPORT.sub(constants, REMARK.sub("", path.read_text(encoding="utf-8")))
    text = NAMED.sub(named, DECLARED.sub(declared, text))
    if left := LEFT.search(text):
        raise ValueError(f"{path.name}: this import or export is not understood: {left[0]}")
    return f"{text}return {{ {', '.join(exported)} }};\n"


def _renamed(names: str, mark: str) -> Iterator[str]:
    """``a, b as c`` -> ``a``, ``b: c``."""
    for name in names.split(","):
        if name.strip():
            yield re.sub(r"\s+as\s+", mark, name.strip())


def _scope(path: Path, folder: Path) -> str:
    return "module_" + re.sub(r"\W", "_", path.relative_to(folder.resolve()).with_suffix("").as_posix())
