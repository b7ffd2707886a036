from __future__ import annotations

import json
import re
from typing import Any

from jsonschema import Draft202012Validator

from planner.compiler.references import NAME_PATTERN
from planner.importers.document import read_document
from planner.importers.schema_check import (
    MAX_EDGES,
    MAX_INPUTS,
    MAX_LISTED,
    MAX_NODES,
    is_skill,
    schema_text,
    shape_problems,
)
from tests.planner.importers.helpers import fixture

SCHEMA: dict[str, Any] = json.loads(schema_text())


def _subschemas(schema: Any) -> list[dict[str, Any]]:
    if isinstance(schema, list):
        return [found for member in schema for found in _subschemas(member)]
    if not isinstance(schema, dict):
        return []
    return [schema, *(found for member in schema.values() for found in _subschemas(member))]


def test_the_published_schema_is_a_valid_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)


def test_every_property_is_described() -> None:
    for schema in _subschemas({key: value for key, value in SCHEMA.items() if key != "if"}):
        for name, described in schema.get("properties", {}).items():
            if isinstance(described, dict) and described not in ({"const": "llm"}, {"const": "tool"}):
                target = described.get("$ref", "").removeprefix("#/$defs/")
                assert described.get("description") or SCHEMA["$defs"].get(target, {}).get("description"), name


def test_the_schema_accepts_the_example_by_itself() -> None:
    assert not list(Draft202012Validator(SCHEMA).iter_errors(read_document(fixture("release_notes.yaml")).value))


def test_limits_and_names_in_code_are_those_of_the_schema() -> None:
    properties, definitions = SCHEMA["properties"], SCHEMA["$defs"]
    assert properties["nodes"]["maxItems"] == MAX_NODES
    assert properties["edges"]["maxItems"] == MAX_EDGES
    assert properties["inputs"]["maxProperties"] == MAX_INPUTS
    llm = definitions["llmNode"]["properties"]
    assert llm["models"]["maxItems"] == llm["policies"]["maxItems"] == MAX_LISTED
    assert definitions["name"]["pattern"] == f"^{NAME_PATTERN}$"
    for tag in ("plan", "a-b_c", "Plan", "", "x" * 41, "-a"):
        assert is_skill(tag) == bool(re.search(llm["skill"]["pattern"], tag))


def test_one_fault_is_reported_once() -> None:
    problems = shape_problems({"dyserve": 1, "name": "w", "nodes": [7] * 150})
    expected = [("wrong_type", f"/nodes/{index}") for index in range(150)]
    assert [(problem.code, problem.pointer) for problem in problems] == expected


def test_each_unknown_and_each_missing_key_is_a_problem_of_its_own() -> None:
    problems = shape_problems({"nodes": [{"id": "a", "kind": "llm", "x": 1, "y": 2}]})
    assert sorted((problem.code, problem.pointer, problem.message) for problem in problems) == [
        ("missing_key", "", "The key 'dyserve' is missing."),
        ("missing_key", "", "The key 'name' is missing."),
        ("missing_key", "/nodes/0", "The key 'prompt' is missing."),
        ("missing_key", "/nodes/0", "The key 'skill' is missing."),
        ("unknown_key", "/nodes/0/x", "The key 'x' is not known here."),
        ("unknown_key", "/nodes/0/y", "The key 'y' is not known here."),
    ]
