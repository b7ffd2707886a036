"""An independent check of a residual plan (ours): the certificate's own arithmetic on what a run has left to dispatch.

Of the residual problem it reads the inputs alone, admission's problem and the state; free nodes, T from now, the
settled quality and what is left of the caps are derived here again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from planner.compiler.certificate import (
    _Derived,
    _numbers,
    _profile,
    _reference,
    _vulnerability,
    _why_illegal,
    _wrong_numbers,
)
from planner.compiler.plan import Plan
from planner.compiler.residual import ResidualProblem
from planner.compiler.workflow import LlmNode, Workflow


def verify_residual(residual: ResidualProblem, plan: Plan) -> tuple[str, ...]:
    """Discrepancies between a residual plan and its problem, each a sentence; empty when it is what it says."""
    illegal = tuple(_illegal_suffix(residual, plan))
    return illegal or tuple(_wrong_numbers(residual.admission, plan, _derive_suffix(residual, plan)))


def _illegal_suffix(residual: ResidualProblem, plan: Plan) -> Iterator[str]:
    problem, open_nodes = residual.admission, {node.id for node in _undispatched(residual)}
    for node_id in sorted(set(plan.assignment) - open_nodes):
        yield f"{node_id} is assigned but is no LLM node that is still to be dispatched"
    for node in _undispatched(residual):
        implementation = plan.assignment.get(node.id)
        if implementation is None:
            yield f"LLM node {node.id} is still to be dispatched and has no implementation"
            continue
        reason = _why_illegal(problem, node, implementation)
        if reason:
            yield f"node {node.id}: {implementation.label} is not legal: {reason}"


def _undispatched(residual: ResidualProblem) -> list[LlmNode]:
    return [node for node in _llm_nodes(residual.admission.workflow) if node.id not in _seconds_left(residual)]


def _llm_nodes(workflow: Workflow) -> list[LlmNode]:
    return [node for node in workflow.nodes if isinstance(node, LlmNode)]


def _seconds_left(residual: ResidualProblem) -> dict[str, float]:
    """Of every settled node: none of a completed one, what remains of one in flight, to two digits."""
    state = residual.settled
    left = {node_id: float(f"{max(flight.remaining_s, 0.0):.2g}") for node_id, flight in state.in_flight.items()}
    return left | dict.fromkeys(state.completed, 0.0)


def _derive_suffix(residual: ResidualProblem, plan: Plan) -> _Derived:
    problem, left = residual.admission, _seconds_left(residual)
    workflow = problem.workflow
    numbers = {node.id: _numbers(problem, node, plan.assignment[node.id]) for node in _undispatched(residual)}
    tools = {node.id: float(f"{node.expected_s:.2g}") for node in workflow.nodes if not isinstance(node, LlmNode)}
    return _Derived(
        llm=numbers,
        reference={node.id: _reference(problem, node) for node in _llm_nodes(workflow)},
        risk={
            node.id: _vulnerability(problem, node) * (1 - numbers[node.id].quality) for node in _undispatched(residual)
        },
        tools=tools | left,
        graph=replace(workflow, edges=tuple(edge for edge in workflow.edges if edge[1] not in left)),
        settled_quality=prod(_kept(residual)),
    )


def _kept(residual: ResidualProblem) -> Iterator[float]:
    """1 - v r of every LLM node that was dispatched."""
    problem, state = residual.admission, residual.settled
    for node in _llm_nodes(problem.workflow):
        flight = state.in_flight.get(node.id)
        implementation = state.completed.get(node.id) or (flight.implementation if flight else None)
        profile = _profile(problem, node, implementation) if implementation else None
        if profile is not None:
            yield 1 - _vulnerability(problem, node) * (1 - profile.quality)
