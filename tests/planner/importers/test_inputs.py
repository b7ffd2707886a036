from __future__ import annotations

from typing import Any

import pytest

from planner.compiler.workflow import InputSpec
from planner.importers.inputs import has_type, validate_inputs
from planner.importers.problems import MAX_COLLECTED

SPECS = (
    InputSpec(name="topic"),
    InputSpec(name="count", type="integer", required=False, default=5),
    InputSpec(name="note", required=False),
    InputSpec(name="limits", type="json", required=False),
)


def test_defaults_complete_the_inputs() -> None:
    assert validate_inputs(SPECS, {"topic": "bees"}).values == {"topic": "bees", "count": 5, "note": "", "limits": None}
    given_all = {"topic": "", "count": 2.0, "note": None, "limits": [1]}
    values = validate_inputs(SPECS, given_all).values
    assert values == {"topic": "", "count": 2, "note": "", "limits": [1]}
    assert isinstance(values["count"], int)


@pytest.mark.parametrize(
    ("given_inputs", "expected"),
    [
        ({}, [("missing_input", "/inputs")]),
        ({"topic": 3}, [("wrong_type", "/inputs/topic")]),
        ({"topic": None}, [("wrong_type", "/inputs/topic")]),
        ({"topic": "a", "count": True}, [("wrong_type", "/inputs/count")]),
        ({"topic": "a", "count": 1.5}, [("wrong_type", "/inputs/count")]),
        ({"topic": "a", "cuont": 1}, [("unknown_input", "/inputs/cuont")]),
        ({"topic": "\0"}, [("unstorable_text", "/inputs/topic")]),
        ({"topic": "a", "limits": {"x": [float("nan")]}}, [("not_finite", "/inputs/limits/x/0")]),
        (
            {"x": 1, "count": "a"},
            [("unknown_input", "/inputs/x"), ("missing_input", "/inputs"), ("wrong_type", "/inputs/count")],
        ),
        ([], [("wrong_type", "/inputs")]),
    ],
)
def test_every_problem_of_the_inputs_is_reported(given_inputs: Any, expected: list[tuple[str, str]]) -> None:
    checked = validate_inputs(SPECS, given_inputs, at="/inputs")
    assert [(problem.code, problem.pointer) for problem in checked.problems] == expected
    assert checked.values == {}
    assert all(problem.remedy for problem in checked.problems)


def test_a_flood_of_unknown_names_is_reported_in_part() -> None:
    checked = validate_inputs(SPECS, {f"x{number}": 1 for number in range(5000)})
    assert len(checked.problems) == MAX_COLLECTED + 1  # and the missing topic
    assert checked.values == {}


def test_a_misspelt_input_comes_with_the_right_one() -> None:
    assert validate_inputs(SPECS, {"topic": "a", "cuont": 1}).problems[0].remedy == "Did you mean 'count'?"


@pytest.mark.parametrize(
    ("value", "types"),
    [
        ("a", {"string", "json"}),
        (1, {"integer", "number", "json"}),
        (2.0, {"integer", "number", "json"}),
        (2.5, {"number", "json"}),
        (1e300, {"number", "json"}),
        (True, {"boolean", "json"}),
        (None, {"json"}),
        ([], {"json"}),
    ],
)
def test_has_type(value: Any, types: set[str]) -> None:
    every: tuple[Any, ...] = ("string", "number", "integer", "boolean", "json")
    assert {wanted for wanted in every if has_type(value, wanted)} == types
