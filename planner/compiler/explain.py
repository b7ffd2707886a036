"""Why this plan: what every other implementation would change, what verification adds, which path decides (ours).

All figures come from the plan's own evaluation, so any plan of the problem can be explained, optimal or not. Under
caps on the whole plan an alternative may be better than the planned one and not allowed: it names what it breaks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import accumulate
from operator import mul
from typing import Any

from planner.compiler.coefficients import Coefficients, NodeCoefficients
from planner.compiler.critical_path import avoiding_s, critical_path, slack_s
from planner.compiler.evaluate import Choice, Evaluation, evaluate, terms
from planner.compiler.limits.caps import Cap, caps_of
from planner.compiler.menu import Column
from planner.compiler.plan import Implementation, Infeasible, Plan
from planner.compiler.problem import PlanningProblem

CRITICAL_S = 1e-9
"""A node with less slack than this, in seconds, is critical."""
ROUNDING = 1e-12
"""Sums of one path in another order differ by less, relative to the makespan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """One legal implementation of a node in place of the planned one; all changes are alternative minus plan.

    `node_quality` is the pair's profiled quality, `estimated_quality` the whole plan's; `makespan_s` is re-evaluated
    on the whole DAG (a node with slack may get slower for free); `demand` is in slot-seconds; `objective` holds at the
    plan's level and is the sum of `terms`, which are named and signed like those of a plan. `breaks`: the caps that
    the plan with this change would not keep.
    """

    implementation: Implementation
    node_quality: float
    estimated_quality: float
    makespan_s: float
    cost: float
    demand: float
    terms: Mapping[str, float]
    objective: float
    chosen: bool
    breaks: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return _json(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What a node's policy adds to its model alone, everything else as planned; all figures: with it minus without.

    Without it the node runs `plain`: `none` on the same backend, or the cheapest legal policy where `none` is not
    legal. `node_s` are seconds of the node, `makespan_s` those that reach the critical path (paper 2.2).
    """

    plain: Implementation
    node_s: float
    makespan_s: float
    without_makespan_s: float
    node_quality: float
    estimated_quality: float
    cost: float
    demand: float
    objective: float

    def to_json(self) -> dict[str, Any]:
        return _json(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeExplanation:
    """`best` is the alternative that loses least; None when the node has one legal implementation only.

    `alternatives` holds every legal implementation, the planned one included, best objective first. `slack_s`: seconds
    by which the node may take longer before the makespan grows. `verification`: None when the node runs plain.
    """

    node: str
    chosen: Implementation
    best: Alternative | None
    slack_s: float
    alternatives: tuple[Alternative, ...]
    verification: Verification | None

    @property
    def critical(self) -> bool:
        return self.slack_s < CRITICAL_S

    def to_json(self, most: int | None = None) -> dict[str, Any]:
        """`most`: how many of the alternatives are written, the planned one always; None: all."""
        written = [a.to_json() for i, a in enumerate(self.alternatives) if most is None or i < most or a.chosen]
        return {
            "node": self.node,
            "chosen": self.chosen.to_json(),
            "best": self.best.to_json() if self.best else None,
            "slack_s": self.slack_s,
            "critical": self.critical,
            "verification": self.verification.to_json() if self.verification else None,
            "alternatives": written,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanVerification:
    """What all verification of a plan adds: the plan minus the same plan with every node run plain.

    `nodes` are those that verify. The nodes' own `makespan_s` need not add up to this one: branches run in parallel.
    """

    nodes: tuple[str, ...]
    makespan_s: float
    without_makespan_s: float
    estimated_quality: float
    cost: float
    demand: float
    objective: float

    def to_json(self) -> dict[str, Any]:
        return _json(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A plan explained. `critical_path` is one longest path, tools included; `critical` all nodes without slack.

    `slack_s` holds every node, tools included; `nodes` the planned LLM nodes in file order.
    """

    level: float
    objective: float
    terms: Mapping[str, float]
    estimated_quality: float
    makespan_s: float
    cost: float
    demand: Mapping[str, float]
    critical_path: tuple[str, ...]
    critical: tuple[str, ...]
    slack_s: Mapping[str, float]
    verification: PlanVerification
    nodes: tuple[NodeExplanation, ...]

    def to_json(self, most: int | None = None) -> dict[str, Any]:
        """Plain JSON values; `most` alternatives a node and the planned one, None: all."""
        return _json(self) | {
            "verification": self.verification.to_json(),
            "nodes": [node.to_json(most) for node in self.nodes],
        }


def alternatives(problem: PlanningProblem, plan: Plan, node: str) -> tuple[Alternative, ...]:
    """Every legal implementation of `node`, the planned one included, best objective first.

    Raises ValueError when the node is no LLM node or the plan is not one of this problem.
    """
    planned = _planned(problem, plan)
    if node not in planned.choice:
        raise ValueError(f"{node} is no LLM node of workflow {problem.workflow.name}")
    return _alternatives(planned, node)


def branch_slack(problem: PlanningProblem, plan: Plan) -> Mapping[str, float]:
    """Seconds by which each node, tools included, may take longer before the plan's makespan grows."""
    return slack_s(problem.workflow, plan.durations_s)


def explain(problem: PlanningProblem, plan: Plan) -> tuple[NodeExplanation, ...]:
    """One explanation per LLM node, in file order. Raises ValueError when the plan is not one of this problem."""
    planned = _planned(problem, plan)
    return tuple(_explanation(planned, node_id) for node_id in planned.choice)


def explain_plan(problem: PlanningProblem, plan: Plan) -> Explanation:
    """The whole plan and every node. Raises ValueError when the plan is not one of this problem."""
    planned = _planned(problem, plan)
    now, workflow = planned.now, problem.workflow
    nodes = tuple(_explanation(planned, node_id) for node_id in planned.choice)
    return Explanation(
        level=plan.level,
        objective=now.objective,
        terms=now.terms,
        estimated_quality=now.estimated_quality,
        makespan_s=now.makespan_s,
        cost=now.cost,
        demand=now.demand,
        critical_path=critical_path(workflow, now.durations_s),
        critical=tuple(node.id for node in workflow.nodes if planned.slack_s[node.id] < CRITICAL_S),
        slack_s=planned.slack_s,
        verification=_plan_verification(planned),
        nodes=nodes,
    )


def choice_of(coefficients: Coefficients, plan: Plan) -> dict[str, Column]:
    """The plan's columns. Raises ValueError when an implementation is not legal in this problem."""
    choice = {}
    for node_id, node in coefficients.nodes.items():
        column = node.column(plan.assignment[node_id]) if node_id in plan.assignment else None
        if column is None:
            raise ValueError(f"the plan's implementation of node {node_id} is not legal in this problem")
        choice[node_id] = column
    return choice


# --- The plan as its explanations see it -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    """A plan with the columns it chose and what all its nodes' explanations share.

    By node: `avoiding_s` is the longest path that does not pass it, `others_quality` the estimate without its factor.
    `used`: every cap with the plan's own total.
    """

    coefficients: Coefficients
    choice: Choice
    level: float
    now: Evaluation
    slack_s: Mapping[str, float]
    avoiding_s: Mapping[str, float]
    others_quality: Mapping[str, float]
    used: tuple[tuple[Cap, float], ...]


def _planned(problem: PlanningProblem, plan: Plan) -> _Planned:
    coefficients = problem.coefficients
    if isinstance(coefficients, Infeasible):
        raise ValueError(f"the problem has no plan: {coefficients.text}")
    choice = choice_of(coefficients, plan)
    now = evaluate(coefficients, choice, plan.level)
    return _Planned(
        coefficients=coefficients,
        choice=choice,
        level=plan.level,
        now=now,
        slack_s=slack_s(problem.workflow, now.durations_s),
        avoiding_s=avoiding_s(problem.workflow, now.durations_s),
        others_quality=_others_quality(coefficients, choice),
        used=tuple((cap, cap.total(coefficients, choice)) for cap in caps_of(coefficients)),
    )


def _others_quality(coefficients: Coefficients, choice: Choice) -> dict[str, float]:
    """The product over all nodes but one, for each, without a division: a factor may be 0."""
    factors = [1.0 - coefficients.nodes[n].residual_risk(column) for n, column in choice.items()]
    before = list(accumulate(factors, mul, initial=coefficients.settled_quality))
    after = list(accumulate(reversed(factors), mul, initial=1.0))[-2::-1]
    return {node_id: head * tail for node_id, head, tail in zip(choice, before, after, strict=False)}


def _added_s(planned: _Planned, node_id: str) -> Callable[[float], float]:
    """What another duration of one node adds to the makespan: the longest path that avoids the node, or through it."""
    now_s, avoiding = planned.now.makespan_s, planned.avoiding_s[node_id]
    through = now_s - planned.slack_s[node_id] - planned.now.durations_s[node_id]

    def added(duration_s: float) -> float:
        change = max(avoiding, through + duration_s) - now_s
        return change if abs(change) > ROUNDING * now_s else 0.0

    return added


# --- Nodes -----------------------------------------------------------------------------------------------------------


def _explanation(planned: _Planned, node_id: str) -> NodeExplanation:
    found = _alternatives(planned, node_id)
    return NodeExplanation(
        node=node_id,
        chosen=planned.choice[node_id].implementation,
        best=next((other for other in found if not other.chosen), None),
        slack_s=planned.slack_s[node_id],
        alternatives=found,
        verification=_verification(planned, node_id, found),
    )


def _alternatives(planned: _Planned, node_id: str) -> tuple[Alternative, ...]:
    coefficients, node, chosen = planned.coefficients, planned.coefficients.nodes[node_id], planned.choice[node_id]
    others_quality = planned.others_quality[node_id]
    added_s, now_s = _added_s(planned, node_id), planned.now.makespan_s
    here = terms(coefficients, {node_id: chosen}, planned.level, now_s)
    demand = sum(chosen.work.values())

    def alternative(column: Column) -> Alternative:
        longer = added_s(column.duration_s) if column is not chosen else 0.0
        there = terms(coefficients, {node_id: column}, planned.level, now_s + longer)
        changes = {name: value - here[name] for name, value in there.items()}
        return Alternative(
            implementation=column.implementation,
            node_quality=column.quality - chosen.quality,
            estimated_quality=others_quality * (node.residual_risk(chosen) - node.residual_risk(column)),
            makespan_s=longer,
            cost=column.cost - chosen.cost,
            demand=sum(column.work.values()) - demand,
            terms=changes,
            objective=sum(changes.values()),
            chosen=column is chosen,
            breaks=tuple(_broken(planned, node_id, column, longer)) if planned.used else (),
        )

    return tuple(sorted(map(alternative, node.columns), key=lambda found: -found.objective))


def _broken(planned: _Planned, node_id: str, column: Column, longer_s: float) -> Iterator[str]:
    """Caps that the plan with this column would not keep."""
    chosen = planned.choice[node_id]
    for cap, used in planned.used:
        more = longer_s if cap.path else cap.amount(node_id, column) - cap.amount(node_id, chosen)
        if not used + more <= cap.room:
            yield cap.name


# --- Verification ----------------------------------------------------------------------------------------------------


def _plain(node: NodeCoefficients, chosen: Column) -> Column:
    """The chosen model on its backend without verification: `none`, else the cheapest legal policy."""
    place = (chosen.implementation.model, chosen.implementation.backend)
    same = [c for c in node.columns if (c.implementation.model, c.implementation.backend) == place]
    return min(same, key=lambda c: (c.implementation.policy != "none", c.cost, c is not chosen))


def _verification(planned: _Planned, node_id: str, found: tuple[Alternative, ...]) -> Verification | None:
    chosen = planned.choice[node_id]
    plain = _plain(planned.coefficients.nodes[node_id], chosen)
    if plain is chosen:
        return None
    without = next(a for a in found if a.implementation == plain.implementation)
    return Verification(
        plain=plain.implementation,
        node_s=chosen.duration_s - plain.duration_s,
        makespan_s=-without.makespan_s,
        without_makespan_s=planned.now.makespan_s + without.makespan_s,
        node_quality=-without.node_quality,
        estimated_quality=-without.estimated_quality,
        cost=-without.cost,
        demand=-without.demand,
        objective=-without.objective,
    )


def _plan_verification(planned: _Planned) -> PlanVerification:
    nodes = planned.coefficients.nodes
    plain = {node_id: _plain(nodes[node_id], column) for node_id, column in planned.choice.items()}
    now, without = planned.now, evaluate(planned.coefficients, plain, planned.level)
    return PlanVerification(
        nodes=tuple(node_id for node_id, column in planned.choice.items() if plain[node_id] is not column),
        makespan_s=now.makespan_s - without.makespan_s,
        without_makespan_s=without.makespan_s,
        estimated_quality=now.estimated_quality - without.estimated_quality,
        cost=now.cost - without.cost,
        demand=sum(now.demand.values()) - sum(without.demand.values()),
        objective=now.objective - without.objective,
    )


def _json(value: Any) -> dict[str, Any]:
    """The fields of a dataclass as plain JSON values."""
    return {field.name: _plain_json(getattr(value, field.name)) for field in fields(value)}


def _plain_json(value: Any) -> Any:
    if isinstance(value, Implementation):
        return value.to_json()
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple) else value
