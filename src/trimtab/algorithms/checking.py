"""Calling a piece's constructor with a recipe's words: names and types checked, errors that help."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

from trimtab.errors import SettingError, nearest

T = TypeVar("T")

NONE = "none"
"""TOML has no null: this word stands for a piece or a value left out."""

KINDS = {float: "a number", int: "a whole number", bool: "true or false", str: "a text"}


def called(make: Callable[..., T], given: Mapping[str, Any], where: str, **filled: Any) -> T:
    """``make(**given)`` with every name and type checked first; ``filled`` are the house's own arguments.

    Raises SettingError: unknown or missing name, wrong type, or a value that ``make`` itself refuses.
    """
    parameters = inspect.signature(make).parameters
    known = [name for name in parameters if name not in filled]
    hints = typing.get_type_hints(make.__init__ if isinstance(make, type) else make)
    for name in given:
        if name not in known:
            raise SettingError(
                f"unknown key {where}.{name}{nearest(name, known) if known else ' (it takes none)'}"
            )
    missing = [n for n in known if n not in given and parameters[n].default is inspect.Parameter.empty]
    if missing:
        raise SettingError(f"{where} needs {' and '.join(missing)}")
    values = {name: typed(value, hints[name], f"{where}.{name}") for name, value in given.items()}
    try:
        return make(**values, **filled)
    except SettingError as problem:
        raise SettingError(f"{where}: {problem}") from None


def changed(piece: T, given: Mapping[str, Any], where: str) -> T:
    """The same piece with some of its fields replaced."""
    kept = {field.name: getattr(piece, field.name) for field in dataclasses.fields(typing.cast(Any, piece))}
    hints = typing.get_type_hints(type(piece))
    for name, value in given.items():
        if name not in kept:
            raise SettingError(f"unknown key {where}.{name}{nearest(name, kept)}")
        kept[name] = typed(value, hints[name], f"{where}.{name}")
    try:
        return type(piece)(**kept)
    except SettingError as problem:
        raise SettingError(f"{where}: {problem}") from None


def typed(value: Any, hint: Any, where: str) -> Any:
    """``value`` as the type of ``hint``; whole numbers may stand for floats, nothing else is converted."""
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        options = [option for option in typing.get_args(hint) if option is not types.NoneType]
        optional = len(options) < len(typing.get_args(hint))
        return None if optional and value in (None, NONE) else typed(value, options[0], where)
    if origin is Literal:
        options = [str(option) for option in typing.get_args(hint)]
        if value not in options:
            raise SettingError(f"{where} must be one of {', '.join(options)}, got {value!r}")
        return value
    wanted: tuple[type, ...] = (int, float) if hint is float else (hint,)
    if not isinstance(value, wanted) or (isinstance(value, bool) and hint is not bool):
        raise SettingError(f"{where} must be {KINDS.get(hint, hint.__name__)}, got {value!r}")
    return float(value) if hint is float else value


def table_of(value: Any, where: str) -> dict[str, Any]:
    """``value`` as a table with text keys."""
    if not isinstance(value, Mapping):
        raise SettingError(f"{where} must be a table, got {value!r}")
    return {str(key): inner for key, inner in typing.cast(Mapping[Any, Any], value).items()}
