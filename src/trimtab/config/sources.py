"""Where settings come from: recipes by name or path, laid over one another, then single overrides."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from trimtab.config.validation import dotted, shown
from trimtab.errors import SettingError, nearest

COMMAND_LINE = "the command line"
UNSET = object()
"""The value of an override with nothing after the ``=``: the key is taken out, its default counts."""

_KEY = re.compile(r"[A-Za-z_]\w*(\.[\w-]+)+")


@dataclass(frozen=True, slots=True)
class Setting:
    """One value at one path, and who set it."""

    path: tuple[str, ...]
    value: Any
    origin: str


@dataclass(frozen=True, slots=True)
class Shadowed:
    """A setting that has no effect because a later source set the same key, or took it out."""

    path: str
    value: Any
    origin: str
    by: str

    def __str__(self) -> str:
        return f"{self.path} = {shown(self.value)} of {self.origin} has no effect: {self.by} replaces it"


def recipe_names() -> list[str]:
    """The recipes inside the package, by name."""
    folder = resources.files("trimtab") / "recipes"
    return sorted(
        entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml")
    )


def read_recipe(recipe: str | Path) -> tuple[str, dict[str, Any]]:
    """(name, table) of a recipe of the package or of a TOML file.

    Raises SettingError when there is none, or when it is not TOML (with line and column).
    """
    name = str(recipe)
    if re.fullmatch(r"[\w.-]+", name) and not name.endswith(".toml") and name in recipe_names():
        text = (resources.files("trimtab") / "recipes" / f"{name}.toml").read_text(encoding="utf-8")
    else:
        try:
            text = Path(name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            raise SettingError(
                f"there is no recipe {name!r} in the package and no such file{nearest(name, recipe_names())}"
            ) from None
    try:
        return Path(name).name, tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise SettingError(f"{name} is not valid TOML: {problem}") from None


def parse_override(token: str) -> Setting:
    """``a.b=c`` as a setting; c is a TOML value, any other text stands for itself."""
    key, equals, text = token.partition("=")
    if not equals or not _KEY.fullmatch(key):
        raise SettingError(f"an override is written table.key=value, got {token!r}")
    return Setting(tuple(key.split(".")), _toml_value(text.strip()), COMMAND_LINE)


def _toml_value(text: str) -> Any:
    if not text:
        return UNSET
    try:
        table = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return table["value"] if list(table) == ["value"] else text


class Layers:
    """Tables laid over one another from first to last; remembers who set what and what was lost."""

    def __init__(self) -> None:
        self.tree: dict[str, Any] = {}
        self.origins: dict[str, str] = {}
        self.shadowed: list[Shadowed] = []

    def lay(self, origin: str, table: Mapping[str, Any]) -> None:
        """Lay one recipe over what is there: tables merge, everything else replaces."""
        self.apply([Setting(path, value, origin) for path, value in _leaves(table)])

    def apply(self, settings: Sequence[Setting]) -> None:
        """Set single values; a new algorithm name first, since it drops the old one's arguments."""
        for setting in sorted(settings, key=lambda setting: setting.path != ("algorithm", "name")):
            if setting.path == ("algorithm", "name"):
                self._drop_other_algorithm(setting)
            self._set(setting)

    def _drop_other_algorithm(self, setting: Setting) -> None:
        """Arguments of one preset mean nothing to another, so they go with its name."""
        table = self.tree.get("algorithm")
        if isinstance(table, dict) and table.get("name") not in (None, setting.value):
            for name in [name for name in table if name != "name"]:
                self._lose(("algorithm", name), table.pop(name), setting.origin)

    def _set(self, setting: Setting) -> None:
        node: Any = self.tree
        for depth, name in enumerate(setting.path[:-1]):
            node = self._enter(node, name, setting.path[: depth + 1])
        name = setting.path[-1]
        if isinstance(node, list):
            place: Any = self._index(node, name, setting.path)
            old = node[place] if place < len(node) else UNSET
        else:
            place, old = name, node.get(name, UNSET)
        if isinstance(setting.value, dict) and isinstance(old, dict):
            return
        if old is not UNSET and old != setting.value:
            self._lose(setting.path, old, setting.origin)
        if old is not UNSET:
            del node[place]
        if setting.value is not UNSET:
            value = copy.deepcopy(setting.value)
            node.insert(place, value) if isinstance(node, list) else node.update({place: value})
        self.origins[dotted(setting.path)] = setting.origin

    def _enter(self, node: Any, name: str, path: tuple[str, ...]) -> Any:
        """The table or list at ``name``, made where there is none."""
        if isinstance(node, list):
            index = self._index(node, name, path)
            if index == len(node):
                node.append({})
            inner = node[index]
        else:
            inner = node.setdefault(name, {})
        if not isinstance(inner, dict | list):
            raise SettingError(f"{dotted(path)} is the value {shown(inner)} and has no settings below it")
        return inner

    def _index(self, items: list[Any], name: str, path: tuple[str, ...]) -> int:
        if not name.isdigit() or int(name) > len(items):
            raise SettingError(
                f"{dotted(path)}: {dotted(path[:-1])} is a list of {len(items)}, so {name!r} must be "
                f"a number from 0 to {len(items)} ({len(items)} adds one)"
            )
        return int(name)

    def _lose(self, path: tuple[str, ...], value: Any, by: str) -> None:
        """Note a value that no longer counts, with the origin of the nearest key that set it."""
        ends = range(len(path), 0, -1)
        origin = next((o for end in ends if (o := self.origins.get(dotted(path[:end])))), by)
        for known in [known for known in self.origins if known.startswith(f"{dotted(path)}.")]:
            del self.origins[known]
        self.origins.pop(dotted(path), None)
        self.shadowed.append(Shadowed(dotted(path), value, origin, by))


def _leaves(table: Mapping[str, Any], prefix: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """(path, value) of a nested table; an empty table is a leaf, so that it exists at all."""
    for name, value in table.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, (*prefix, name))
        else:
            yield (*prefix, name), value
