"""What a node is committed to when it is dispatched (paper 5.1): its implementation under the active variant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.compiler.plan import Plan
from planner.compiler.references import ReferenceFailed, render
from planner.compiler.workflow import Node, ToolNode
from runtime.engine.ports import Intent


def bind(
    node: Node,
    plan: Plan,
    variant: int,
    *,
    attempt: int,
    at: float,
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
) -> Intent:
    """The dispatch intent of a ready node. All nodes of one engine step are bound under one `plan`.

    A tool has no binding; its intent records the arguments that it will get, None when they cannot be filled (the
    invocation then fails with the reason).
    """
    if isinstance(node, ToolNode):
        return Intent(
            node=node.id,
            attempt=attempt,
            kind="tool",
            at=at,
            predicted_s=node.expected_s,
            arguments=_arguments(node, inputs, outputs),
        )
    return Intent(
        node=node.id,
        attempt=attempt,
        kind="llm",
        at=at,
        binding=plan.assignment[node.id],
        variant=variant,
        predicted_s=plan.durations_s.get(node.id, 0.0),
    )


def _arguments(node: ToolNode, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> Any:
    try:
        return render(node.arguments, inputs, outputs)
    except ReferenceFailed:
        return None
