from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.compiler.workflow import Node
from runtime.engine.binding import bind
from runtime.engine.ports import Intent
from tests.runtime.engine.samples import BIG, START, impl, llm, plan, tool

PLAN = plan({"a": impl(BIG, "self_check")}, durations_s={"a": 3.5})


def bound(node: Node, outputs: Mapping[str, Any]) -> Intent:
    return bind(node, PLAN, 2, attempt=1, at=START, inputs={"who": "you"}, outputs=outputs)


def test_an_llm_node_is_bound_to_the_plan_s_implementation() -> None:
    assert bound(llm("a"), {}) == Intent(
        node="a", attempt=1, kind="llm", at=START, binding=impl(BIG, "self_check"), variant=2, predicted_s=3.5
    )


def test_a_tool_records_its_arguments_and_has_no_binding() -> None:
    intent = bound(tool("t", "{{ inputs.who }}"), {})
    assert (intent.kind, intent.binding, intent.variant) == ("tool", None, None)
    assert (intent.arguments, intent.predicted_s) == ({"template": "you"}, 1.0)


def test_arguments_that_cannot_be_filled_are_left_to_the_invocation() -> None:
    assert bound(tool("t", "{{ nodes.a.output.x }}"), {"a": "text"}).arguments is None
