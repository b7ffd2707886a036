"""An independent check of a residual plan (ours): the certificate's own arithmetic on what a run has left to dispatch.

Of the residual problem it reads the inputs alone, admission's problem and the state; free nodes, T from now, the
settled quality and what is left of the caps are derived here again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from planner.compiler.certificate.check import Derived, broken_limits, wrong_numbers
from planner.compiler.certificate.facts import Facts, facts_of
from planner.compiler.plan import Plan
from planner.compiler.residual import ResidualProblem
from planner.compiler.workflow import LlmNode


def verify_residual(residual: ResidualProblem, plan: Plan) -> tuple[str, ...]:
    """Discrepancies between a residual plan and its problem, each a sentence; empty when it is what it says."""
    facts = facts_of(residual.admission)
    illegal = tuple(_illegal_suffix(residual, facts, plan))
    if illegal:
        return illegal
    derived = _derive_suffix(residual, facts, plan)
    # With nothing left to dispatch there is nothing that a limit could still decide.
    broken = broken_limits(residual.admission, plan, derived) if plan.assignment else ()
    return (*wrong_numbers(residual.admission, plan, derived), *broken)


def _illegal_suffix(residual: ResidualProblem, facts: Facts, plan: Plan) -> Iterator[str]:
    undispatched = _undispatched(residual, facts)
    for node_id in sorted(set(plan.assignment) - {node.id for node in undispatched}):
        yield f"{node_id} is assigned but is no LLM node that is still to be dispatched"
    for node in undispatched:
        implementation = plan.assignment.get(node.id)
        if implementation is None:
            yield f"LLM node {node.id} is still to be dispatched and has no implementation"
            continue
        reason = facts.why_illegal(node, implementation)
        if reason:
            yield f"node {node.id}: {implementation.label} is not legal: {reason}"


def _undispatched(residual: ResidualProblem, facts: Facts) -> list[LlmNode]:
    left = _seconds_left(residual)
    return [node for node in facts.llm if node.id not in left]


def _seconds_left(residual: ResidualProblem) -> dict[str, float]:
    """Of every settled node: none of a completed one, what remains of one in flight, to two digits."""
    state = residual.settled
    left = {node_id: float(f"{max(flight.remaining_s, 0.0):.2g}") for node_id, flight in state.in_flight.items()}
    return left | dict.fromkeys(state.completed, 0.0)


def _derive_suffix(residual: ResidualProblem, facts: Facts, plan: Plan) -> Derived:
    workflow, left = residual.admission.workflow, _seconds_left(residual)
    return Derived(
        facts=facts,
        llm={node.id: facts.numbers(node, plan.assignment[node.id]) for node in _undispatched(residual, facts)},
        fixed_s=dict(facts.tools_s) | left,
        graph=replace(workflow, edges=tuple(edge for edge in workflow.edges if edge[1] not in left)),
        settled_quality=prod(_kept(residual, facts)),
        taken=_taken(residual, facts),
    )


def _taken(residual: ResidualProblem, facts: Facts) -> dict[str, float]:
    """What was dispatched took of every limit: what is spent, and the invocations in flight at their planned values."""
    state, spent = residual.settled, residual.settled.spent
    taken = {"max_cost": spent.cost, "max_tokens": spent.tokens, "max_makespan_s": spent.elapsed_s}
    taken |= {f"work_s.{model}": seconds for model, seconds in spent.work_s.items()}
    taken |= {f"calls.{model}": float(count) for model, count in spent.calls.items()}
    for node in facts.llm:
        flight = state.in_flight.get(node.id)
        if flight is not None and flight.implementation is not None:
            numbers = facts.numbers(node, flight.implementation)
            more = {"max_cost": numbers.cost, "max_tokens": numbers.tokens}
            more |= {f"work_s.{model}": seconds for model, seconds in numbers.work.items()}
            more |= {f"calls.{model}": count for model, count in numbers.calls.items()}
            taken = {name: taken.get(name, 0.0) + more.get(name, 0.0) for name in {**taken, **more}}
    return taken | {"max_calls": sum(value for name, value in taken.items() if name.startswith("calls."))}


def _kept(residual: ResidualProblem, facts: Facts) -> Iterator[float]:
    """1 - v r of every LLM node that was dispatched."""
    state = residual.settled
    for node in facts.llm:
        flight = state.in_flight.get(node.id)
        implementation = state.completed.get(node.id) or (flight.implementation if flight else None)
        profile = facts.profile(node, implementation) if implementation else None
        if profile is not None:
            yield 1 - facts.vulnerability[node.id] * (1 - profile.quality)
