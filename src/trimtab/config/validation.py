"""A plain table becomes a frozen dataclass, or a SettingError that names the key, the value and the remedy.

pydantic checks the types against the dataclasses themselves, so nothing is declared twice. It would
swallow unknown keys of a plain dataclass without a word; those are looked for here, first.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
import difflib
import json
import typing
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from trimtab.errors import SettingError, nearest

T = TypeVar("T")
Path = tuple[str | int, ...]

MISSING = ("missing", "missing_argument")
EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "a text in quotes",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a table",
    "mapping_type": "a table",
    "dataclass_type": "a table",
}


def dotted(path: Sequence[str | int]) -> str:
    """The path as it is written on the command line: ``reward.graders.0.weight``."""
    return ".".join(str(part) for part in path)


def validated(kind: type[T], tree: Mapping[str, Any], origins: Mapping[str, str] | None = None) -> T:
    """The value of type ``kind`` that ``tree`` describes.

    origins: where a dotted path was set (a recipe, the command line), for the messages.
    Raises SettingError for unknown keys, missing keys, wrong types and impossible values.
    """
    origins = origins or {}
    unknown = [_unknown_sentence(kind, path, origins) for path in _unknown_paths(kind, tree, ())]
    if unknown:
        raise SettingError("; ".join(unknown))
    try:
        text = json.dumps(tree)
    except TypeError:
        raise SettingError(
            f"{_first_odd_path(tree)}: a date or time has no use here; put it in quotes"
        ) from None
    try:
        return _adapter(kind).validate_json(text, strict=True)
    except ValidationError as problem:
        raise SettingError("; ".join(_sentences(problem.errors(), tree, origins))) from None


@cache
def _adapter(kind: type[T]) -> TypeAdapter[T]:
    return TypeAdapter(kind)


def fields_of(kind: Any) -> dict[str, Any]:
    """The fields of a dataclass with their resolved types; empty for any other type."""
    if not dataclasses.is_dataclass(kind):
        return {}
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind) if field.init}


def known_paths(kind: Any, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every settable path below ``kind``, lists and free tables as leaves."""
    for name, hint in fields_of(kind).items():
        tables = [option for option in _options(hint) if dataclasses.is_dataclass(option)]
        if not tables:
            yield (*prefix, name)
        for table in tables:
            yield from known_paths(table, (*prefix, name))


def _options(hint: Any) -> tuple[Any, ...]:
    """The alternatives of a union; the type itself where it is none."""
    arguments = typing.get_args(hint)
    is_union = bool(arguments) and typing.get_origin(hint) not in (tuple, list, dict, Mapping, Sequence)
    return tuple(arguments) if is_union else (hint,)


def _unknown_paths(hint: Any, value: Any, path: Path) -> Iterator[Path]:
    """Paths in ``value`` that no alternative of ``hint`` has a place for."""
    tables = [option for option in _options(hint) if dataclasses.is_dataclass(option)]
    if isinstance(value, Mapping) and tables:
        for name, inner in value.items():
            hints = [fields_of(table)[name] for table in tables if name in fields_of(table)]
            if hints:
                yield from _unknown_paths(hints[0], inner, (*path, name))
            else:
                yield (*path, name)
    elif isinstance(value, list):
        items = [typing.get_args(o)[0] for o in _options(hint) if typing.get_origin(o) in (tuple, list)]
        for index, inner in enumerate(value):
            if items:
                yield from _unknown_paths(items[0], inner, (*path, index))


def _unknown_sentence(kind: Any, path: Path, origins: Mapping[str, str]) -> str:
    """What an unknown key probably meant: the same name elsewhere, or a close name in its own table."""
    names = [part for part in path if isinstance(part, str)]
    siblings = _siblings(kind, names[:-1])
    close = difflib.get_close_matches(names[-1], siblings, n=1, cutoff=0.6)
    elsewhere = [dotted(known) for known in known_paths(kind) if known[-1] == names[-1]]
    if elsewhere:
        hint = f" (did you mean {' or '.join(elsewhere)}?)"
    elif close:
        hint = f" (did you mean {dotted((*path[:-1], close[0]))}?)"
    else:
        hint = nearest(names[-1], siblings)
    thing = "table" if len(path) == 1 else "setting"
    return f"unknown {thing} {dotted(path)}{_where(path, origins)}{hint}"


def _siblings(kind: Any, names: Sequence[str]) -> set[str]:
    """The field names of the table that ``names`` leads to."""
    kinds = [kind]
    for name in names:
        inner = [option for k in kinds if name in fields_of(k) for option in _options(fields_of(k)[name])]
        kinds = [item for o in inner for item in (typing.get_args(o)[:1] if not fields_of(o) else (o,))]
    return {field for k in kinds for field in fields_of(k)}


def _sentences(errors: Sequence[ErrorDetails], tree: Any, origins: Mapping[str, str]) -> Iterator[str]:
    """One sentence for each path; the alternatives of a union are told together."""
    by_path: dict[Path, list[ErrorDetails]] = {}
    for error in errors:
        by_path.setdefault(_plain(error, tree), []).append(error)
    for path, group in by_path.items():
        first = group[0]
        where = _where(path, origins)
        if first["type"] in MISSING:
            yield f"{dotted(path)} needs a value and has none"
        elif first["type"] == "value_error":
            yield _own_words(str(first.get("ctx", {}).get("error", first["msg"])), path)
        else:
            expected = " or ".join(dict.fromkeys(_expected(error) for error in group))
            yield f"{dotted(path)}{where} must be {expected}, got {shown(first['input'])}{_quotes(first)}"


def _plain(error: ErrorDetails, tree: Any) -> Path:
    """The error's path as far as the tree has it: pydantic adds the names of union alternatives."""
    path: Path = ()
    for part in error["loc"]:
        if _has(tree, part):
            path, tree = (*path, part), tree[part]
    return (*path, error["loc"][-1]) if error["type"] in MISSING else path


def _has(tree: Any, part: str | int) -> bool:
    return part in tree if isinstance(tree, Mapping) else isinstance(tree, list) and isinstance(part, int)


def _expected(error: ErrorDetails) -> str:
    if error["type"] in ("literal_error", "enum"):
        return f"one of {error.get('ctx', {}).get('expected', '')}"
    return EXPECTED.get(error["type"], error["msg"][:1].lower() + error["msg"][1:])


def _own_words(message: str, path: Path) -> str:
    """A dataclass's own complaint, with the path in front where it does not name its table itself."""
    return message if not path or str(path[0]) in message else f"{dotted(path)}: {message}"


def _quotes(error: ErrorDetails) -> str:
    value = error["input"]
    plain = isinstance(value, bool | int | float)
    if error["type"] == "string_type" and plain:
        return f"; write it in quotes: '\"{shown(value)}\"'"
    return ""


def shown(value: Any) -> str:
    """A value as TOML shows it, cut to 60 characters."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _where(path: Path, origins: Mapping[str, str]) -> str:
    """`` (set by NAME)`` for the nearest path whose origin is known."""
    for end in range(len(path), 0, -1):
        origin = origins.get(dotted(path[:end]))
        if origin:
            return f" (set by {origin})"
    return ""


def _first_odd_path(tree: Any, path: Path = ()) -> str:
    """The dotted path of the first value that JSON does not know."""
    pairs = tree.items() if isinstance(tree, Mapping) else enumerate(tree)
    for name, value in pairs:
        if isinstance(value, Mapping | list):
            inner = _first_odd_path(value, (*path, name))
            if inner:
                return inner
        elif not isinstance(value, str | bool | int | float | None):
            return dotted((*path, name))
    return ""
