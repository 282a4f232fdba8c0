"""JSON Schema (2020-12) for answers: the vocabulary that describes shapes and values.

A keyword that ``json_validation`` does not check is refused before the run, so that no schema passes half
read; ``$ref`` reaches schemas inside the same one only, nothing is ever fetched. ``format`` is a note, as the
standard has it.

Source: https://json-schema.org/draft/2020-12
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from trimtab.errors import nearest
from trimtab.rewards.expression import not_valid
from trimtab.rewards.json_validation import IS, found

_ONE = ("additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then")
_IN_PLACE = ("else", "if", "not", "then")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_TABLES = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")
_COUNTS = (
    "maxContains", "maxItems", "maxLength", "maxProperties",
    "minContains", "minItems", "minLength", "minProperties",
)  # fmt: skip
_BOUNDS = ("exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "multipleOf")
_NOTES = (
    "$comment", "$id", "$schema", "default", "deprecated", "description",
    "examples", "format", "readOnly", "title", "writeOnly",
)  # fmt: skip
_OTHER = ("$ref", "const", "dependentRequired", "enum", "pattern", "required", "type", "uniqueItems")
KEYWORDS = frozenset((*_ONE, *_LISTS, *_TABLES, *_COUNTS, *_BOUNDS, *_NOTES, *_OTHER))
TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")


Seen = dict[int, tuple[Mapping[str, Any], str]]
"""Every object that was read as a schema, and its place, by its ``id``."""


def unusable(schema: Any) -> str | None:
    """Why this schema cannot be used, in one clause; None when it can."""
    seen: Seen = {}
    try:
        json.dumps(schema, allow_nan=False)
        fault = _unusable(schema, schema, "the schema", seen)
        return fault or next((told for one in seen.values() if (told := _endless(*one, schema))), None)
    except (TypeError, ValueError) as fault:
        return f"it holds what JSON cannot: {fault}"
    except RecursionError:
        return "it is nested too deeply"


def _unusable(schema: Any, root: Any, place: str, seen: Seen) -> str | None:
    if isinstance(schema, bool) or id(schema) in seen:
        return None
    if not isinstance(schema, Mapping):
        return f"{place} must be an object, true or false, got {schema!r}"
    seen[id(schema)] = schema, place
    for key, given in schema.items():
        if key not in KEYWORDS:
            return f"{place} has the keyword {key!r}, which is not known here{nearest(str(key), KEYWORDS)}"
        fault = _value_fault(key, given, root, f"{place}.{key}")
        if fault is not None:
            return fault
        for where, part in _inside(key, given, root, f"{place}.{key}"):
            if (fault := _unusable(part, root, where, seen)) is not None:
                return fault
    return None


def _inside(key: str, given: Any, root: Any, place: str) -> list[tuple[str, Any]]:
    """The schemas inside the value of a keyword, or that it names, with their places."""
    if key in _LISTS:
        return [(f"{place}[{index}]", part) for index, part in enumerate(given)]
    if key in _TABLES:
        return [(f"{place}.{name}", part) for name, part in given.items()]
    if key == "$ref":
        return [(f"{place} {given}", part) for part in found(root, given)]
    return [(place, given)] if key in _ONE else []


def _endless(schema: Mapping[str, Any], place: str, root: Any) -> str | None:
    """Why checking a value against this schema would come back to it without going into the value."""
    waiting, met = [schema], set[int]()
    while waiting:
        one = waiting.pop()
        parts = [*found(root, one.get("$ref")), *one.get("dependentSchemas", {}).values()]
        parts += [part for key in ("allOf", "anyOf", "oneOf") for part in one.get(key, ())]
        parts += [one[key] for key in _IN_PLACE if key in one]
        if any(part is schema for part in parts):
            return f"{place} leads back to itself, so that no answer could ever be checked"
        waiting += [part for part in parts if isinstance(part, Mapping) and id(part) not in met]
        met.update(map(id, parts))
    return None


def _value_fault(key: str, given: Any, root: Any, place: str) -> str | None:
    if not _VALUES.get(key, _anything)(given):
        known = nearest(str(given), TYPES) if key == "type" else ""
        wanted = "a list of schemas" if key in _LISTS else "an object of schemas" if key in _TABLES else ""
        return f"{place} must be {wanted}, got {given!r}" if wanted else f"{place} cannot be {given!r}{known}"
    if key == "$ref" and not found(root, given):
        return f"{place} must name a part of the same schema, such as #/$defs/item, got {given!r}"
    expressions: list[str] = (
        list(given) if key == "patternProperties" else [given] if key == "pattern" else []
    )
    for expression in expressions:
        if (fault := not_valid(expression)) is not None:
            return f"{place}: the expression {expression!r} is not valid: {fault}"
    return None


def _anything(given: Any) -> bool:
    del given
    return True


def _count(given: Any) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and given >= 0


def _names(given: Any) -> bool:
    return isinstance(given, list) and all(isinstance(name, str) for name in given)


def _types(given: Any) -> bool:
    return given in TYPES or (_names(given) and bool(given) and all(name in TYPES for name in given))


_VALUES: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(_LISTS, lambda given: isinstance(given, list) and bool(given)),
    **dict.fromkeys(_TABLES, lambda given: isinstance(given, Mapping)),
    **dict.fromkeys(_COUNTS, _count),
    **dict.fromkeys(_BOUNDS, lambda given: IS["number"](given)),
    "dependentRequired": lambda given: isinstance(given, dict) and all(map(_names, given.values())),
    "enum": lambda given: isinstance(given, list),
    "multipleOf": lambda given: IS["number"](given) and given > 0,
    "pattern": lambda given: isinstance(given, str),
    "required": _names,
    "type": _types,
    "uniqueItems": lambda given: isinstance(given, bool),
}
"""What the value of a keyword must be, where it is no schema."""
