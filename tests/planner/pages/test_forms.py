from __future__ import annotations

import pytest
from django.template.loader import render_to_string

from planner.compiler.workflow import InputSpec, InputType, LlmNode, Workflow
from planner.presenters.forms import read_inputs, run_form
from tests.planner.pages.samples import HOSTILE


def _workflow(*inputs: InputSpec) -> Workflow:
    node = LlmNode(id="n", skill="s", prompt="p")
    return Workflow(name="w", nodes=(node,), edges=(), output="n", inputs=inputs, deadline_s=12.5)


def _one(kind: InputType, *, required: bool = True) -> Workflow:
    return _workflow(InputSpec(name="x", type=kind, required=required))


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("string", "a\r\nb", "a\nb"),
        ("string", "", ""),
        ("integer", " 7 ", 7),
        ("number", "0.5", 0.5),
        ("boolean", "true", True),
        ("boolean", "false", False),
        ("json", '{"a": [1, null]}', {"a": [1, None]}),
    ],
)
def test_a_posted_input_is_read_by_its_type(kind: InputType, text: str, value: object) -> None:
    assert read_inputs(_one(kind), {"input.x": text}) == ({"x": value}, {})


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("integer", "1.5"),
        ("integer", "many"),
        ("number", "nan"),
        ("number", "1e999"),
        ("number", "x"),
        ("boolean", "yes"),
        ("json", "{"),
        ("json", "[" * 5000),
        ("json", '{"a": 1} {"b": 2}'),
    ],
)
def test_a_bad_input_names_what_is_expected(kind: InputType, text: str) -> None:
    inputs, errors = read_inputs(_one(kind), {"input.x": text})

    assert inputs == {}
    assert errors.keys() == {"input.x"}


@pytest.mark.parametrize("kind", ["integer", "number", "boolean", "json"])
def test_a_required_input_must_be_there_and_an_optional_one_may_be_empty(kind: InputType) -> None:
    assert read_inputs(_one(kind), {})[1] == {"input.x": "This input is required."}
    assert read_inputs(_one(kind, required=False), {"input.x": " "}) == ({}, {})


def test_the_first_form_shows_defaults() -> None:
    workflow = _workflow(
        InputSpec(name="topic", default="bees"),
        InputSpec(name="shape", type="json", default={"a": 1}),
        InputSpec(name="loud", type="boolean", default=True),
    )

    form = run_form(workflow)

    assert [field.value for field in form.inputs] == ["bees", '{\n  "a": 1\n}', "true"]
    assert [field.field for field in form.inputs] == ["input.topic", "input.shape", "input.loud"]
    assert (form.deadline_s, form.effort, form.controller) == ("12.5", "0.5", "")


def test_a_refused_form_keeps_what_was_typed_and_shows_the_errors() -> None:
    posted = {"input.x": "many", "deadline_s": "-1", "controller": "off"}

    form = run_form(_one("integer"), posted, {"input.x": "Enter a whole number.", "deadline_s": "Too small."})
    html = render_to_string("components/run_form.html", {"form": form, "submit_url": "/x/"})

    assert form.inputs[0].value == "many"
    assert "Enter a whole number." in html
    assert "Too small." in html
    assert '<option value="off" selected>' in html


def test_the_form_escapes_names_and_values() -> None:
    workflow = _workflow(InputSpec(name=HOSTILE, default=HOSTILE, description=HOSTILE))

    html = render_to_string("components/run_form.html", {"form": run_form(workflow), "submit_url": "/x/"})

    assert "<img" not in html
    assert html.count("&lt;img src=x onerror=alert(1)&gt;") == 4
