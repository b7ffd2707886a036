"""Instances of JSON Schemas: valid whenever one is returned, refused with a reason otherwise."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from fleet.emulator.schema import Draw, SchemaUnsupported, instance, string_leaves
from tests.sampling import sampled


def _draw(seed: int = 0, words: int = 3) -> Draw:
    return Draw(random=Random(seed), text=lambda count: " ".join(["word"] * count), words=words)


SCALARS = st.sampled_from(
    [
        {"type": "string"},
        {"type": "string", "minLength": 30},
        {"type": "string", "maxLength": 3},
        {"type": "string", "minLength": 7, "maxLength": 9},
        {"type": "string", "format": "date"},
        {"type": "integer", "minimum": 3, "maximum": 4},
        {"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 5},
        {"type": "integer", "multipleOf": 7, "minimum": 1},
        {"type": "number", "minimum": -2.5, "maximum": -2.25},
        {"type": "number", "maximum": -10},
        {"type": "number", "exclusiveMinimum": 0, "maximum": 0.5},
        {"type": "boolean"},
        {"type": "null"},
        {"type": ["string", "null"]},
        {"enum": ["red", "green", 3]},
        {"const": {"fixed": True}},
        {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        {"oneOf": [{"const": 1}, {"const": "one"}]},
        {"allOf": [{"type": "integer", "minimum": 5}, {"type": "integer", "maximum": 6}]},
        True,
        {},
    ]
)


def _nested(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    arrays = st.builds(
        lambda item, least, more: {"type": "array", "items": item, "minItems": least, "maxItems": least + more},
        children,
        st.integers(0, 3),
        st.integers(0, 3),
    )
    objects = st.builds(
        lambda properties, required: {
            "type": "object",
            "properties": properties,
            "required": [name for name in properties if name in required],
            "additionalProperties": False,
        },
        st.dictionaries(st.sampled_from("abcd"), children, max_size=4),
        st.sets(st.sampled_from("abcd")),
    )
    return arrays | objects


@given(schema=st.recursive(SCALARS, _nested, max_leaves=8), seed=st.integers(0, 99))
@sampled(120)
def test_every_instance_is_valid(schema: Any, seed: int) -> None:
    whole = {"type": "object", "properties": {"value": schema}, "required": ["value"]}
    Draft202012Validator(whole).validate(instance(whole, _draw(seed)))


def test_local_references_and_recursion_end() -> None:
    schema = {
        "$ref": "#/$defs/tree",
        "$defs": {
            "tree": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}},
                },
                "required": ["name"],
            }
        },
    }
    for seed in range(10):
        Draft202012Validator(schema).validate(instance(schema, _draw(seed)))


def test_a_required_property_that_is_not_described_is_filled() -> None:
    assert instance({"required": ["x"]}, _draw())["x"] == "word word word"


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "string", "pattern": "^[0-9]{5}$"}, "does not match"),
        ({"type": "nonsense"}, "invalid schema"),
        ({"$ref": "https://example.org/schema.json"}, "only local references"),
        ({"$ref": "#/$defs/nowhere"}, "leads nowhere"),
        ({"$ref": "#"}, "leads back to itself"),
        ({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "requires itself"),
        ({"type": "object", "properties": {"a": False}, "required": ["a"]}, "allows no value"),
        ({"type": "integer", "minimum": 5, "maximum": 3}, "greater than the maximum"),
        ({"type": "array", "contains": {"const": 7}, "items": {"type": "string"}}, "does not contain"),
        ({"not": {}}, "should not be valid"),
        ({"type": "string", "minLength": 10**9}, "more than 100,000 characters"),
        ({"type": "array", "minItems": 10**8}, "more than 5,000 values"),
        (
            {"type": "array", "minItems": 99, "items": {"type": "array", "minItems": 99, "items": {"const": 1}}},
            "more than 5,000 values",
        ),
    ],
)
def test_a_schema_without_a_known_instance_is_refused_with_the_reason(schema: dict[str, Any], reason: str) -> None:
    with pytest.raises(SchemaUnsupported, match=reason):
        instance(schema, _draw())


def test_free_strings_are_counted() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"enum": ["x"]}, "c": {"type": "string"}}}
    assert string_leaves(schema, _draw()) == 2
