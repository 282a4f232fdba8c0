"""Reading a JSON tree field by field; what is missing or of the wrong kind is named with its place."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from trimtab.errors import DataError, nearest

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Fields:
    """A JSON object and ``where`` it stands, for errors such as "FILE: case c-7: field objective.kl ..."."""

    tree: Mapping[str, Any]
    where: str
    prefix: str = ""

    @classmethod
    def of(cls, value: Any, where: str) -> Fields:
        if not isinstance(value, dict):
            raise DataError(f"{where}: expected an object, got {type(value).__name__}")
        return cls(cast(dict[str, Any], value), where)

    def __contains__(self, name: str) -> bool:
        return name in self.tree

    def called(self, where: str) -> Fields:
        return Fields(self.tree, where)

    def optional(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self.tree.get(name) is not None

    def table(self, name: str) -> Fields:
        value = self._get(name)
        if not isinstance(value, dict):
            raise self._wrong(name, "an object", value)
        return Fields(cast(dict[str, Any], value), self.where, f"{self.prefix}{name}.")

    def tables(self, name: str) -> list[Fields]:
        return [
            Fields(cast(dict[str, Any], value), self.where, f"{self.prefix}{name}[{index}].")
            if isinstance(value, dict)
            else self._raise(f"{name}[{index}]", "an object", value)
            for index, value in enumerate(self._list(name))
        ]

    def text(self, name: str) -> str:
        value = self._get(name)
        return value if isinstance(value, str) else self._raise(name, "a text", value)

    def one_of(self, name: str, known: Mapping[str, T]) -> T:
        value = self.text(name)
        if value not in known:
            raise DataError(f"{self.where}: field {self.prefix}{name} is {value!r}{nearest(value, known)}")
        return known[value]

    def number(self, name: str) -> float:
        return self._number(name, self._get(name))

    def whole(self, name: str) -> int:
        value = self._get(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._wrong(name, "a whole number", value)
        return value

    def numbers(self, name: str, length: int | None = None) -> list[float]:
        values = self._list(name, length)
        return [self._number(f"{name}[{index}]", value) for index, value in enumerate(values)]

    def rows(self, name: str, lengths: list[int]) -> list[list[float]]:
        """A list of lists of numbers with exactly these lengths."""
        rows = self._list(name, len(lengths))
        held = Fields({f"{name}[{index}]": row for index, row in enumerate(rows)}, self.where, self.prefix)
        return [held.numbers(f"{name}[{index}]", length) for index, length in enumerate(lengths)]

    def flags(self, name: str, length: int) -> list[bool]:
        return [
            value if isinstance(value, bool) else self._raise(f"{name}[{index}]", "true or false", value)
            for index, value in enumerate(self._list(name, length))
        ]

    def _get(self, name: str) -> Any:
        if name not in self.tree:
            raise DataError(f"{self.where}: field {self.prefix}{name} is missing")
        return self.tree[name]

    def _list(self, name: str, length: int | None = None) -> list[Any]:
        value = self._get(name)
        if not isinstance(value, list):
            raise self._wrong(name, "a list", value)
        values = cast(list[Any], value)
        if length is not None and len(values) != length:
            raise DataError(
                f"{self.where}: field {self.prefix}{name} has {len(values)} entries, expected {length}"
            )
        return values

    def _number(self, name: str, value: Any) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
            raise self._wrong(name, "a finite number", value)
        return float(value)

    def _wrong(self, name: str, wanted: str, value: Any) -> DataError:
        shown = repr(value)
        shown = shown if len(shown) <= 40 else f"{shown[:40]}..."
        return DataError(f"{self.where}: field {self.prefix}{name} must be {wanted}, got {shown}")

    def _raise(self, name: str, wanted: str, value: Any) -> Any:
        raise self._wrong(name, wanted, value)
