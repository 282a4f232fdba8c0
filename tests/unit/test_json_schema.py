"""JSON Schema: every keyword both ways, as the standard's own draft 2020-12 has it."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json

import pytest

from trimtab.rewards.json_schema import KEYWORDS, unusable
from trimtab.rewards.json_validation import schema_fault

CASES = [
    ({"type": "integer"}, [1, 1.0, -0.0], [1.5, True, "1", None]),
    ({"type": ["null", "number"]}, [None, 2.5], [False, "x", []]),
    ({"enum": [1, "a", None, [1]]}, [1.0, "a", None, [1.0]], [True, "b", [True], 0]),
    ({"const": {"a": 1}}, [{"a": 1.0}], [{"a": True}, {}]),
    ({"minimum": 0, "maximum": 2}, [0, 2, 1.5, "x"], [-0.1, 2.1, 1e300]),
    ({"exclusiveMinimum": 0, "exclusiveMaximum": 2}, [1, 1e-300], [0, 2, 1e300]),
    ({"multipleOf": 0.1}, [0.3, 1, 0], [0.35, 1e-9]),
    ({"minLength": 1, "maxLength": 2}, ["a", "éé", 7], ["", "abc"]),
    ({"pattern": "b+"}, ["abc", 1], ["ac"]),
    ({"pattern": "^b+$"}, ["b"], ["b\n", "b\nb"]),
    ({"pattern": r"^[$]\$[^]$]\d$"}, ["$$a7"], ["$$a7\n", "$$a\u0663", "$$$7"]),
    ({"items": {"type": "string"}}, [[], ["a"], "x"], [[1], ["a", 1]]),
    ({"prefixItems": [{"const": 1}], "items": False}, [[], [1]], [[2], [1, 1]]),
    ({"minItems": 1, "maxItems": 2, "uniqueItems": True}, [[1], [1, True]], [[], [1, 1.0], [1, 2, 3]]),
    ({"contains": {"const": 1}, "minContains": 2, "maxContains": 3}, [[1, 1], [1, 1, 1]], [[1], [1] * 4]),
    ({"properties": {"a": {"const": 1}}, "required": ["a"]}, [{"a": 1, "b": 2}, 3], [{}, {"a": 2}]),
    ({"additionalProperties": {"const": 1}, "properties": {"a": True}}, [{"a": 9, "b": 1}], [{"b": 2}]),
    ({"patternProperties": {"^x": {"const": 1}}}, [{"xa": 1, "y": 2}], [{"xa": 2}]),
    ({"propertyNames": {"maxLength": 1}}, [{"a": 1}], [{"ab": 1}]),
    ({"minProperties": 1, "maxProperties": 1}, [{"a": 1}], [{}, {"a": 1, "b": 1}]),
    ({"dependentRequired": {"a": ["b"]}}, [{"a": 1, "b": 1}, {}], [{"a": 1}]),
    ({"dependentSchemas": {"a": {"required": ["b"]}}}, [{"a": 1, "b": 1}, {}], [{"a": 1}]),
    ({"allOf": [{"minimum": 1}, {"maximum": 2}]}, [1, 2], [0, 3]),
    ({"anyOf": [{"const": 1}, {"type": "string"}]}, [1, "x"], [2]),
    ({"oneOf": [{"minimum": 1}, {"maximum": 3}]}, [0, 4], [2]),
    ({"not": {"const": 1}}, [2], [1]),
    ({"if": {"type": "string"}, "then": {"minLength": 1}, "else": {"minimum": 0}}, ["a", 0], ["", -1]),
    ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"const": 1}}, "maximum": 1}, [1], [2]),
    ({"$ref": "#/definitions/x", "definitions": {"x": {"not": {}}}}, [], [0]),
    ({"properties": {"n": {"$ref": "#"}}, "required": ["v"]}, [{"v": 1, "n": {"v": 2}}], [{"v": 1, "n": {}}]),
    ({"format": "email", "title": "T", "default": 3}, ["no address"], []),
    (True, [1, {}], []),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "fitting", "others"), CASES, ids=lambda value: str(value)[:40])
def test_every_keyword(schema, fitting, others):
    assert unusable(schema) is None
    for value in fitting:
        assert schema_fault({"schema": schema, "text": json.dumps(value)}) is None, value
    for value in others:
        assert schema_fault({"schema": schema, "text": json.dumps(value)}), value


def test_every_known_keyword_that_checks_has_a_case():
    notes = {"$comment", "$id", "$schema", "deprecated", "description", "examples", "readOnly", "writeOnly"}
    told = json.dumps([schema for schema, _, _ in CASES])
    assert {keyword for keyword in KEYWORDS if f'"{keyword}"' not in told} == notes


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"properties": {"a": {"requird": []}}}, "the schema.properties.a has the keyword 'requird'"),
        ({"requird": []}, "did you mean 'required'?"),
        ({"anyOf": []}, "the schema.anyOf must be a list of schemas"),
        ({"not": 3}, "the schema.not must be an object, true or false"),
        ({"type": "strin"}, "did you mean 'string'?"),
        ({"$ref": "#/$defs/nowhere"}, "must name a part of the same schema"),
        ({"minLength": True}, "cannot be True"),
        ({"multipleOf": 0}, "cannot be 0"),
        ({"patternProperties": {"(": True}}, "is not valid"),
        ({"pattern": "a{99999999999}"}, "is not valid"),
        ({"minimum": float("inf")}, "it holds what JSON cannot"),
        ({"const": float("nan")}, "it holds what JSON cannot"),
        ({"default": object()}, "it holds what JSON cannot"),
        ({"$ref": "#/enum/0", "enum": [3]}, "must be an object, true or false, got 3"),
        ({"$ref": "#/examples/0", "examples": [{"requird": []}]}, "has the keyword 'requird'"),
    ],
    ids=str,
)
def test_what_cannot_be_checked_is_refused(schema, words):
    assert words in (unusable(schema) or "")


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
        {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"not": {"$ref": "#/$defs/a"}}}},
        {"dependentSchemas": {"k": {"if": {"$ref": "#"}}}},
    ],
    ids=str,
)
def test_a_schema_that_no_answer_could_be_checked_against_is_refused(schema):
    assert "leads back to itself" in (unusable(schema) or "")


def test_a_schema_may_refer_to_itself_one_level_down_and_any_answer_ends():
    tree = {"type": "object", "properties": {"next": {"$ref": "#"}}}
    assert unusable(tree) is None
    deep = '{"next": ' * 900 + "{}" + "}" * 900
    assert schema_fault({"schema": tree, "text": deep}) == "the JSON is nested too deeply"
    assert schema_fault({"schema": tree, "text": '{"next": {"next": 1}}'}) == (
        "the JSON.next.next is not of type object"
    )
    nested: dict[str, object] = {}
    for _ in range(5000):
        nested = {"not": nested}
    assert unusable(nested) == "it is nested too deeply"
