from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from planner.importers.document import document_of
from planner.importers.output_schema import MAX_EXPANDED, schema_problems
from tests.planner.importers.helpers import native_problems
from tests.planner.importers.strategies import json_values


def _codes(schema: Any) -> list[tuple[str, str]]:
    return [(problem.code, problem.pointer) for problem in schema_problems(schema, "/s")]


def test_an_ordinary_schema_is_fine() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "required": ["steps"],
        "additionalProperties": False,
        "properties": {
            "steps": {"type": "array", "maxItems": 9, "items": {"$ref": "#/$defs/step"}},
            "mood": {"enum": ["good", {"$ref": "not a reference here"}]},
        },
        "patternProperties": {"^x-[a-z]+$": True},
        "$defs": {"step": {"type": "string", "pattern": "^[A-Z][a-z ]*$"}},
    }
    assert _codes(schema) == []


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"$ref": "https://example.org/s"}, ("remote_reference", "/s/$ref")),
        ({"$ref": "#/properties/a", "properties": {"a": {}}}, ("remote_reference", "/s/$ref")),
        ({"items": {"$ref": "#/$defs/none"}}, ("unknown_reference", "/s/items/$ref")),
        ({"anyOf": [{}, {"$ref": 3}]}, ("remote_reference", "/s/anyOf/1/$ref")),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}}, ("schema_recursive", "/s")),
        ({"$id": "urn:x"}, ("schema_keyword", "/s/$id")),
        ({"not": {"$dynamicRef": "#x"}}, ("schema_keyword", "/s/not/$dynamicRef")),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, ("schema_dialect", "/s/$schema")),
        ({"pattern": "(a+)+$"}, ("unsafe_pattern", "/s/pattern")),
        ({"patternProperties": {"(?=a)": {}}}, ("unsafe_pattern", "/s/patternProperties/(?=a)")),
        ({"$defs": {"a": {"then": {"pattern": "\\1"}}}}, ("unsafe_pattern", "/s/$defs/a/then/pattern")),
        ({"type": "strin"}, ("bad_schema", "/s/type")),
        ({"minLength": -1}, ("bad_schema", "/s/minLength")),
        ({"enum": ["x" * 70_000]}, ("schema_too_large", "/s")),
    ],
)
def test_each_refused_schema_names_its_place(schema: Any, expected: tuple[str, str]) -> None:
    assert _codes(schema) == [expected]


def test_a_deep_schema_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(40):
        schema = {"items": schema}
    assert _codes(schema)[0][0] == "schema_too_deep"


def test_references_that_multiply_are_refused() -> None:
    defs: dict[str, Any] = {"d0": {"type": "string"}}
    for n in range(1, 30):
        defs[f"d{n}"] = {"allOf": [{"$ref": f"#/$defs/d{n - 1}"}, {"$ref": f"#/$defs/d{n - 1}"}]}
    (problem,) = schema_problems({"$ref": "#/$defs/d29", "$defs": defs}, "/s")
    assert problem.code == "schema_too_large"
    assert f"{MAX_EXPANDED:,}" in problem.message


@given(json_values)
def test_any_object_is_judged_without_an_exception(value: Any) -> None:
    keywords = ("$ref", "$defs", "allOf", "items", "pattern", "patternProperties", "properties", "$schema", "type")
    for keyword in keywords:
        for problem in schema_problems({keyword: value, "$defs": value}, "/s"):
            assert problem.pointer.startswith("/s")


def test_the_schemas_of_a_workflow_share_one_budget() -> None:
    schema = {"properties": {f"p{n}": {"type": "string"} for n in range(600)}}
    nodes = [
        {"id": f"n{n}", "kind": "llm", "skill": "plan", "prompt": "x", "output": {"format": "json", "schema": schema}}
        for n in range(4)
    ]
    problems = native_problems(document_of({"dyserve": 1, "name": "w", "nodes": nodes, "output": "n0"}))
    assert [(problem.code, problem.pointer) for problem in problems] == [("schema_too_large", "/nodes/2/output/schema")]
