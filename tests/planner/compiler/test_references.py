from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.compiler.references import (
    MAX_RENDERED,
    Reference,
    ReferenceFailed,
    escape,
    find_references,
    malformed,
    node_references,
    render,
    render_text,
)
from planner.compiler.workflow import LlmNode, ToolNode

INPUTS = {"topic": "bees", "count": 3, "list": [1, {"a": "b"}]}
OUTPUTS = {"plan": {"steps": ["one", "two"], "0": None, "n": 1.5}, "text": "plain", "list": ["x"]}


def test_references_are_found_in_order_and_in_every_text_of_a_value() -> None:
    value = {"a": "{{ inputs.topic }} {{nodes.plan.output.steps.0}}", "{{ inputs.no }}": ["{{ nodes.text.output }}", 3]}
    assert [str(reference) for reference in find_references(value)] == [
        "inputs.topic",
        "nodes.plan.output.steps.0",
        "nodes.text.output",
    ]
    assert find_references("{{ nodes.a.output.b.0 }}") == (Reference(kind="node", name="a", path=("b", "0")),)


def test_a_node_s_references_are_those_of_its_templates() -> None:
    llm = LlmNode(id="a", skill="plan", prompt="{{ inputs.x }}", system="{{ nodes.b.output }}", title="{{ inputs.no }}")
    tool = ToolNode(id="t", tool="template", arguments={"template": ["{{ inputs.y }}"]})
    assert [str(reference) for reference in node_references(llm) + node_references(tool)] == [
        "inputs.x",
        "nodes.b.output",
        "inputs.y",
    ]


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ inputs.topic }}", "bees"),
        ("{{ inputs.count }}", 3),
        ("{{inputs.list.1}}", {"a": "b"}),
        ("{{ nodes.plan.output.steps }}", ["one", "two"]),
        ("{{ nodes.plan.output.0 }}", None),
        ("About {{ inputs.topic }}", "About bees"),
        (" {{ inputs.count }}", " 3"),
        ("{{ inputs.count }}{{ inputs.count }}", "33"),
        ("is {{ nodes.plan.output.0 }}, {{ inputs.list }}", 'is null, [1, {"a": "b"}]'),
        ("{{ '{{' }}", "{{"),
        ('a {{ "{{" }} b }}', "a {{ b }}"),
        ('{"k":{{ inputs.count }}}', '{"k":3}'),
        ("{{{ inputs.count }}}", "{3}"),
        ("no { braces } at }} all", "no { braces } at }} all"),
        (
            {"a": ["{{ inputs.count }}", 1, None], "{{ inputs.topic }}": True},
            {"a": [3, 1, None], "{{ inputs.topic }}": True},
        ),
    ],
)
def test_render(template: Any, expected: Any) -> None:
    assert render(template, INPUTS, OUTPUTS) == expected


def test_a_prompt_is_always_a_text() -> None:
    assert render_text("{{ inputs.count }}", INPUTS, OUTPUTS) == "3"
    assert render_text("{{ nodes.plan.output }}", INPUTS, OUTPUTS) == '{"steps": ["one", "two"], "0": null, "n": 1.5}'
    assert render_text("{{ inputs.umlaut }}", {"umlaut": ["ü"]}, {}) == '["ü"]'


@pytest.mark.parametrize(
    ("template", "code", "part"),
    [
        ("{{ inputs.none }}", "unknown_input", "no such input"),
        ("{{ nodes.none.output }}", "no_output", "no output yet"),
        ("{{ nodes.plan.output.stps }}", "missing_field", "its fields: steps, 0, n"),
        ("{{ nodes.plan.output.steps.2 }}", "bad_position", "list of 2"),
        ("{{ nodes.plan.output.steps.-1 }}", "bad_position", "start at 0"),
        ("{{ nodes.plan.output.steps.first }}", "bad_position", "'first' is no position"),
        ("{{ nodes.list.output.99999999999999999999 }}", "bad_position", "list of 1"),
        ("{{ nodes.text.output.a }}", "no_fields", "nodes.text.output is neither"),
        ("{{ nodes.plan.output.steps.0.a }}", "no_fields", "nodes.plan.output.steps.0 is neither"),
        ("{{ inputs.count.a }}", "no_fields", "has no 'a'"),
    ],
)
def test_a_reference_that_cannot_be_filled_says_why(template: str, code: str, part: str) -> None:
    for broken in (template, f"text {template}", {"deep": [template]}):
        with pytest.raises(ReferenceFailed) as caught:
            render(broken, INPUTS, OUTPUTS)
        assert caught.value.code == code
        assert part in str(caught.value)
        assert str(caught.value.reference) in template


@pytest.mark.parametrize(
    "template",
    [
        "{{ inputs.half }}, {{ inputs.half }}{{ inputs.half }}",
        ["{{ inputs.half }}", {"again": "{{ inputs.half }}"}, "and {{ inputs.half }}"],
        ["{{ inputs.list }}"] * 3,
    ],
)
def test_references_cannot_bring_in_more_than_any_context_holds(template: Any) -> None:
    half = "x" * (MAX_RENDERED // 2)
    inputs = {"half": half, "list": [half[:-10]]}
    with pytest.raises(ReferenceFailed, match="more than 2,000,000 characters") as caught:
        render(template, inputs, {})
    assert caught.value.code == "too_large"
    assert render("{{ inputs.half }}{{ inputs.half }}", inputs, {}) == half + half


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{ x }}", "{{ x }}"),
        ("a {{ inputs.x", "{{ inputs.x"),
        ("{{ inputs.x }} {{ nodes.y }}", "{{ nodes.y }}"),
        ("{{ nodes.y.output | upper }}", "{{ nodes.y.output | upper }}"),
        ("{{ inputs.x\n}}", "{{ inputs.x"),
        ("{{#each inputs}}", "{{#each inputs}}"),
        ("{{ inputs..x }}", "{{ inputs..x }}"),
        ("{{ '{{ }}", "{{ '{{ }}"),
        ("{{ '{{\" }}", "{{ '{{\" }}"),
        ("{{{{ inputs.x }}}}", "{{{{ inputs.x }}"),
        ("{{", "{{"),
        ("{{ " + "y" * 100 + " }}", "{{ " + "y" * 37),
        ("{{ inputs.x }} {{ '{{' }} }} {", None),
        ("", None),
    ],
)
def test_everything_else_in_double_braces_is_malformed(text: str, expected: str | None) -> None:
    assert malformed(text) == expected


# --- Substituted once ------------------------------------------------------------------------------------------------

hostile = st.text(st.sampled_from("{}' \"inputs.odeuabc\n"), max_size=30) | st.sampled_from(
    ["{{ inputs.secret }}", "{{ nodes.b.output }}", "{{", "{{ '{{' }}", "}}", "{"]
)


@given(hostile, hostile, hostile, hostile)
def test_what_a_reference_brings_in_is_never_rendered_again(before: str, first: str, second: str, after: str) -> None:
    template = f"{escape(before)}\n{{{{ inputs.x }}}}{{{{ nodes.b.output }}}}\n{escape(after)}"
    rendered = render_text(template, {"x": first, "secret": "S3CRET"}, {"b": second})
    assert rendered == f"{before}\n{first}{second}\n{after}"
    assert render([template], {"x": first, "secret": "S3CRET"}, {"b": second}) == [rendered]


@given(st.text() | hostile)
def test_escaped_text_is_a_template_of_itself(text: str) -> None:
    assert malformed(escape(text)) is None
    assert find_references(escape(text)) == ()
    assert render(escape(text), {}, {}) == text


@given(st.text() | hostile)
def test_any_text_is_either_malformed_or_renders_with_its_references(text: str) -> None:
    if malformed(text) is None:
        inputs: dict[str, Any] = {r.name: "i" for r in find_references(text) if r.kind == "input" and not r.path}
        outputs: dict[str, Any] = {r.name: "o" for r in find_references(text) if r.kind == "node" and not r.path}
        if all(not r.path for r in find_references(text)):
            assert isinstance(render_text(text, inputs, outputs), str)
