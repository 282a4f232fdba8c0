"""Does an answer fit a JSON schema that has passed ``json_schema.unusable``? Strict JSON, read once.

``schema_fault`` runs in a worker process, because a ``pattern`` of the schema meets text that a model wrote.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any
from urllib.parse import unquote


def schema_fault(payload: Mapping[str, Any]) -> str | None:
    """Why ``payload["text"]`` is not JSON of the form ``payload["schema"]``; None when it is.

    The schema must have passed ``unusable``, so that only the answer can be nested too deeply.
    """
    try:
        parsed = parse(payload["text"])
    except ValueError as fault:
        return f"not valid JSON: {fault}"
    except RecursionError:
        return "the JSON is nested too deeply"
    try:
        return _fault(parsed, payload["schema"], payload["schema"], "the JSON")
    except RecursionError:
        return "the JSON is nested too deeply"


def parse(text: str) -> Any:
    """Strict JSON: no NaN, no Infinity, also by size, no key twice. Raises ValueError, RecursionError."""
    return json.loads(text, parse_constant=_finite, parse_float=_finite, object_pairs_hook=_unique)


def _finite(number: str) -> float:
    if not math.isfinite(value := float(number)):
        raise ValueError(f"{number[:20]} is no number of JSON")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a key stands twice in one object")
    return made


def found(root: Any, reference: Any) -> list[Any]:
    """The part of ``root`` that a local reference names, in a list; empty when there is none."""
    if not isinstance(reference, str) or not re.match(r"#(?:/|\Z)", reference):
        return []
    part = root
    for raw in unquote(reference[1:]).split("/")[1:]:
        name = raw.replace("~1", "/").replace("~0", "~")
        if isinstance(part, Mapping) and name in part:
            part = part[name]
        elif isinstance(part, list) and name.isdecimal() and int(name) < len(part):
            part = part[int(name)]
        else:
            return []
    return [part]


def _fault(value: Any, schema: Any, root: Any, at: str) -> str | None:
    """The first reason why ``value``, which stands ``at`` a place, does not fit ``schema``."""
    if isinstance(schema, bool):
        return None if schema else f"{at} is not allowed"
    for check in (_combined, _plain, _number, _string, _array, _object):
        if (fault := check(value, schema, root, at)) is not None:
            return fault
    return None


def _combined(value: Any, schema: Mapping[str, Any], root: Any, at: str) -> str | None:
    def fits(part: Any) -> bool:
        return _fault(value, part, root, at) is None

    every = [*found(root, schema.get("$ref")), *schema.get("allOf", ())]
    if "if" in schema and (branch := "then" if fits(schema["if"]) else "else") in schema:
        every.append(schema[branch])
    for part in every:
        if (fault := _fault(value, part, root, at)) is not None:
            return fault
    if "anyOf" in schema and not any(map(fits, schema["anyOf"])):
        return f"{at} fits none of the {len(schema['anyOf'])} allowed forms"
    if "oneOf" in schema and (count := sum(map(fits, schema["oneOf"]))) != 1:
        return f"{at} fits {count} of the forms of which it must fit one"
    if "not" in schema and fits(schema["not"]):
        return f"{at} has a form that is not allowed"
    return None


def _plain(value: Any, schema: Mapping[str, Any], root: Any, at: str) -> str | None:
    del root
    types = schema.get("type", ())
    types = [types] if isinstance(types, str) else types
    if types and not any(IS[name](value) for name in types):
        return f"{at} is not of type {' or '.join(types)}"
    if "enum" in schema and all(_key(value) != _key(one) for one in schema["enum"]):
        return f"{at} is none of the {len(schema['enum'])} allowed values"
    if "const" in schema and _key(value) != _key(schema["const"]):
        return f"{at} is not {json.dumps(schema['const'])}"
    return None


def _number(value: Any, schema: Mapping[str, Any], root: Any, at: str) -> str | None:
    del root
    if not IS["number"](value):
        return None
    if value < schema.get("minimum", value) or value <= schema.get("exclusiveMinimum", -math.inf):
        return f"{at} is too small"
    if value > schema.get("maximum", value) or value >= schema.get("exclusiveMaximum", math.inf):
        return f"{at} is too large"
    step = schema.get("multipleOf")
    if step is not None and Fraction(str(value)) % Fraction(str(step)):
        return f"{at} is no multiple of {step}"
    return None


def _string(value: Any, schema: Mapping[str, Any], root: Any, at: str) -> str | None:
    del root
    if not isinstance(value, str):
        return None
    if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
        return f"{at} has {len(value)} characters"
    if "pattern" in schema and not _expression(schema["pattern"]).search(value):
        return f"{at} does not match {schema['pattern']!r}"
    return None


def _array(value: Any, schema: Mapping[str, Any], root: Any, at: str) -> str | None:
    if not isinstance(value, list):
        return None
    if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        return f"{at} has {len(value)} items"
    if schema.get("uniqueItems") and len({_key(item) for item in value}) < len(value):
        return f"{at} has an item twice"
    if "contains" in schema:
        count = sum(_fault(item, schema["contains"], root, at) is None for item in value)
        if not schema.get("minContains", 1) <= count <= schema.get("maxContains", count):
            return f"{at} contains {count} of the asked items"
    heads = schema.get("prefixItems", [])
    rest = schema.get("items", True)
    for index, item in enumerate(value):
        part = heads[index] if index < len(heads) else rest
        if (fault := _fault(item, part, root, f"{at}[{index}]")) is not None:
            return fault
    return None


def _object(value: Any, schema: Mapping[str, Any], root: Any, at: str) -> str | None:
    if not isinstance(value, dict):
        return None
    if not schema.get("minProperties", 0) <= len(value) <= schema.get("maxProperties", len(value)):
        return f"{at} has {len(value)} keys"
    depending = [name for key, names in schema.get("dependentRequired", {}).items() if key in value
                 for name in names]  # fmt: skip
    for name in (*schema.get("required", ()), *depending):
        if name not in value:
            return f"{at} has no key {name!r}"
    for name, part in schema.get("dependentSchemas", {}).items():
        if name in value and (fault := _fault(value, part, root, at)) is not None:
            return fault
    own, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for name, item in value.items():
        parts = [own[name]] if name in own else []
        parts += [part for expression, part in patterns.items() if _expression(expression).search(name)]
        parts = parts or [schema.get("additionalProperties", True)]
        if (fault := _fault(name, schema.get("propertyNames", True), root, f"the key {name!r}")) is not None:
            return fault
        for part in parts:
            if (fault := _fault(item, part, root, f"{at}.{name}")) is not None:
                return fault
    return None


IS: dict[str, Callable[[Any], bool]] = {
    "array": lambda value: isinstance(value, list),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: IS["number"](value) and value == value // 1,
    "null": lambda value: value is None,
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "object": lambda value: isinstance(value, dict),
    "string": lambda value: isinstance(value, str),
}


@lru_cache
def _expression(written: str) -> re.Pattern[str]:
    """As the standard's dialect means it: ``$`` is the very end, and ``\\d`` and ``\\w`` are ASCII."""
    at_end = _DOLLAR.sub(lambda found: found[1] or r"\Z", written)
    return re.compile(at_end, re.ASCII)


_DOLLAR = re.compile(r"(\\.|\[\^?\]?(?:\\.|[^\]\\])*\])|\$", re.DOTALL)
"""A dollar sign that is neither escaped nor in a set of characters; those are found first, as group 1."""


def _key(value: Any) -> Any:
    """Equal for equal JSON values: 1 and 1.0 are, 1 and true are not."""
    if isinstance(value, list):
        return ("array", *map(_key, value))
    if isinstance(value, dict):
        return ("object", frozenset((name, _key(item)) for name, item in value.items()))
    return (isinstance(value, bool), value)
