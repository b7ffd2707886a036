"""Why this plan: per node, what every other implementation would change, and the slack of its branch (ours)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf, prod

from planner.compiler.coefficients import Coefficients
from planner.compiler.critical_path import makespan_s, slack_s
from planner.compiler.evaluate import Choice, Evaluation, evaluate
from planner.compiler.menu import Column
from planner.compiler.plan import Implementation, Infeasible, Plan
from planner.compiler.problem import PlanningProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """One legal implementation of a node in place of the planned one; all changes are alternative minus plan.

    `node_quality` is the pair's profiled quality, `estimated_quality` the whole plan's; `makespan_s` is re-evaluated
    on the whole DAG (a node with slack may get slower for free); `demand` is in slot-seconds; `objective` holds at the
    plan's level.
    """

    implementation: Implementation
    node_quality: float
    estimated_quality: float
    makespan_s: float
    cost: float
    demand: float
    objective: float
    chosen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeExplanation:
    """`best` is the alternative that loses least; None when the node has one legal implementation only."""

    node: str
    chosen: Implementation
    best: Alternative | None
    slack_s: float


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


def _explanation(planned: _Planned, node_id: str) -> NodeExplanation:
    others = [other for other in _alternatives(planned, node_id) if not other.chosen]
    return NodeExplanation(
        node=node_id,
        chosen=planned.choice[node_id].implementation,
        best=others[0] if others else None,
        slack_s=planned.slack_s[node_id],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    """A plan with the columns it chose and what all its nodes' explanations share."""

    coefficients: Coefficients
    choice: Choice
    level: float
    now: Evaluation
    slack_s: Mapping[str, float]


def _planned(problem: PlanningProblem, plan: Plan) -> _Planned:
    coefficients = problem.coefficients
    if isinstance(coefficients, Infeasible):
        raise ValueError(f"the problem has no plan: {coefficients.text}")
    choice = {}
    for node_id, node in coefficients.nodes.items():
        column = node.column(plan.assignment[node_id]) if node_id in plan.assignment else None
        if column is None:
            raise ValueError(f"the plan's implementation of node {node_id} is not legal in this problem")
        choice[node_id] = column
    now = evaluate(coefficients, choice, plan.level)
    slack = slack_s(problem.workflow, now.durations_s)
    return _Planned(coefficients=coefficients, choice=choice, level=plan.level, now=now, slack_s=slack)


def _alternatives(planned: _Planned, node_id: str) -> tuple[Alternative, ...]:
    coefficients, node, chosen = planned.coefficients, planned.coefficients.nodes[node_id], planned.choice[node_id]
    others_quality = prod(
        1 - coefficients.nodes[n].residual_risk(column) for n, column in planned.choice.items() if n != node_id
    )
    makespan = _makespan_by_duration(planned, node_id)
    gain = coefficients.gain(node, chosen, planned.level)

    def alternative(column: Column) -> Alternative:
        longer = makespan(column.duration_s) - planned.now.makespan_s if column is not chosen else 0.0
        return Alternative(
            implementation=column.implementation,
            node_quality=column.quality - chosen.quality,
            estimated_quality=others_quality * (node.residual_risk(chosen) - node.residual_risk(column)),
            makespan_s=longer,
            cost=column.cost - chosen.cost,
            demand=sum(column.work.values()) - sum(chosen.work.values()),
            objective=coefficients.gain(node, column, planned.level) - gain - coefficients.latency_price * longer,
            chosen=column is chosen,
        )

    return tuple(sorted(map(alternative, node.columns), key=lambda found: -found.objective))


def _makespan_by_duration(planned: _Planned, node_id: str) -> Callable[[float], float]:
    """The makespan as a function of one node's duration: the longest path that avoids the node, or through it.

    Two passes over the DAG serve all of a node's alternatives, so that large workflows stay explainable.
    """
    durations, now = planned.now.durations_s, planned.now.makespan_s
    avoiding = makespan_s(planned.coefficients.problem.workflow, {**durations, node_id: -inf})
    through = now - planned.slack_s[node_id] - durations[node_id]
    return lambda duration_s: max(avoiding, through + duration_s)
