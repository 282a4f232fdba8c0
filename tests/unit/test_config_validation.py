"""From a plain table to a dataclass: unknown keys, wrong types, missing and impossible values."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from trimtab.config.validation import known_paths, validated
from trimtab.errors import SettingError


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    name: str
    weight: float = 1.0
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    temperature: float = 1.0
    size: int = 2
    on: bool = False
    mode: Literal["fast", "slow"] = "fast"
    limit: int | None = None
    held: int | tuple[str, ...] | None = None
    parts: tuple[Part, ...] = ()

    def __post_init__(self) -> None:
        if self.size < 1:
            raise SettingError(f"size must be >= 1, got {self.size}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    rate: float = 1e-3
    maybe: Inner | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    inner: Inner = Inner()
    other: Other = Other()
    table: Mapping[str, Any]


def whole(**sections: Any) -> Whole:
    return validated(Whole, {"table": {}, **sections})


def told(origins: Mapping[str, str] | None = None, **sections: Any) -> str:
    with pytest.raises(SettingError) as caught:
        validated(Whole, {"table": {}, **sections}, origins)
    return str(caught.value)


def test_good_values_arrive_with_their_types():
    built = whole(
        inner={"temperature": 2, "held": ["a", "b"], "parts": [{"name": "x", "options": {"any": [1, {}]}}]},
        other={"rate": math.inf, "maybe": {"size": 3}},
    )
    assert built.inner.temperature == 2.0
    assert built.inner.held == ("a", "b")
    assert built.inner.parts == (Part(name="x", options={"any": [1, {}]}),)
    assert built.other == Other(rate=math.inf, maybe=Inner(size=3))


def test_an_integer_is_kept_where_integers_and_lists_are_both_possible():
    assert whole(inner={"held": 3}).inner.held == 3


@pytest.mark.parametrize(
    ("inner", "sentence"),
    [
        ({"size": "3"}, 'inner.size must be a whole number, got "3"'),
        ({"size": 1.5}, "inner.size must be a whole number, got 1.5"),
        ({"size": True}, "inner.size must be a whole number, got true"),
        ({"temperature": "hot"}, 'inner.temperature must be a number, got "hot"'),
        ({"temperature": True}, "inner.temperature must be a number, got true"),
        ({"on": 1}, "inner.on must be true or false, got 1"),
        ({"mode": "quick"}, "inner.mode must be one of 'fast' or 'slow', got \"quick\""),
        ({"limit": "x"}, 'inner.limit must be a whole number, got "x"'),
        ({"held": 1.5}, "inner.held must be a whole number or a list, got 1.5"),
        ({"held": [1]}, "inner.held.0 must be a text in quotes, got 1; write it in quotes: '\"1\"'"),
        (
            {"parts": [{"name": 1}]},
            "inner.parts.0.name must be a text in quotes, got 1; write it in quotes: '\"1\"'",
        ),
        ({"parts": [{}]}, "inner.parts.0.name needs a value and has none"),
        ({"parts": {"name": "x"}}, 'inner.parts must be a list, got {"name": "x"}'),
        ({"size": 0}, "inner: size must be >= 1, got 0"),
    ],
)
def test_wrong_values_name_path_value_and_expectation(inner: dict, sentence: str):
    message = told(inner=inner)
    assert sentence in message
    assert "\n" not in message


def test_a_section_must_be_a_table():
    assert told(inner=3) == "inner must be a table, got 3"


def test_a_missing_section_is_named():
    with pytest.raises(SettingError, match="^table needs a value and has none$"):
        validated(Whole, {})


@pytest.mark.parametrize(
    ("sections", "sentence"),
    [
        ({"iner": {}}, "unknown table iner (did you mean inner?)"),
        ({"inner": {"temprature": 1}}, "unknown setting inner.temprature (did you mean inner.temperature?)"),
        ({"other": {"temperature": 1}}, "unknown setting other.temperature (did you mean inner.temperature"),
        ({"inner": {"rate": 1}}, "unknown setting inner.rate (did you mean other.rate?)"),
        (
            {"inner": {"parts": [{"name": "x"}, {"wieght": 1}]}},
            "inner.parts.1.wieght (did you mean inner.parts.1.weight?)",
        ),
        (
            {"other": {"maybe": {"sizes": 1}}},
            "unknown setting other.maybe.sizes (did you mean other.maybe.size?)",
        ),
        ({"other": {"zzz": 1}}, "unknown setting other.zzz (known: maybe, rate)"),
        ({"size": 3}, "unknown table size (did you mean inner.size or other.maybe.size?)"),
    ],
)
def test_unknown_keys_name_the_place_they_probably_mean(sections: dict, sentence: str):
    assert sentence in told(**sections)


def test_all_unknown_keys_are_told_at_once():
    message = told(inner={"aaa": 1}, other={"bbb": 2})
    assert "inner.aaa" in message
    assert "other.bbb" in message


def test_free_tables_hold_anything():
    assert whole(table={"anything": {"goes": [1, "x", None]}}).table == {"anything": {"goes": [1, "x", None]}}


def test_origins_are_told():
    assert "inner.size (set by mine.toml) must be" in told({"inner.size": "mine.toml"}, inner={"size": "x"})
    assert "inner.sise (set by the command line) (did" in told(
        {"inner": "the command line"}, inner={"sise": 1}
    )


def test_dates_are_refused_with_their_path():
    message = told(table={"a": [{"when": datetime.date(2026, 1, 1)}]})
    assert message.startswith("table.a.0.when: a date or time has no use here")


def test_long_values_are_cut():
    assert len(told(inner={"size": "x" * 1000})) < 150


def test_known_paths_are_all_leaves():
    paths = {".".join(path) for path in known_paths(Whole)}
    assert {"inner.size", "inner.parts", "other.maybe.size", "table"} <= paths
    assert "inner" not in paths
