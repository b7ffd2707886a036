"""Coefficients of the ILP (paper 4.3, first half of Algorithm 1): built once per problem, they serve every level.

    f_n(o,p) = v_n * r(s_n, m, p)                                            residual risk   [paper]
    rho(n)   = 1 + beta * e * (|R(n)| - 1) / (|V| - 1),  1 if |V| = 1        reach           [paper]

Normalisation by a reference plan is ours: largest legal model, fastest of its backends, cheapest legal policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING

from planner.compiler.critical_path import makespan_s
from planner.compiler.legality import why_none_is_legal
from planner.compiler.limits.patterns import permitted
from planner.compiler.menu import Column, Menu, Row, menu_of
from planner.compiler.plan import Implementation, Infeasible
from planner.compiler.pricing import LEAST_QUALITY, Pricing
from planner.compiler.vulnerability import vulnerability
from planner.compiler.workflow import LlmNode, ToolNode, Workflow

if TYPE_CHECKING:
    from planner.compiler.problem import PlanningProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCoefficients:
    """Where a node stands (rho, v_n), and the menu it shares with others of its kind."""

    rho: float
    vulnerability: float
    menu: Menu

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.menu.columns

    def column(self, implementation: Implementation) -> Column | None:
        return self.menu.column(implementation)

    def residual_risk(self, column: Column) -> float:
        """f_n(o,p) = v_n * r."""
        return self.vulnerability * column.error_rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficients:
    """`nodes` in file order: the LLM nodes that are planned. `fixed_s`: seconds of all others, tools first of all.

    `llm_count` is |V_L|. `settled_quality` is what LLM nodes that are not planned (any more) contribute to the
    estimated quality. `t_ref`, `k_ref`, `d_ref` belong to the reference plan; `t_ref` takes tools as 0 s.
    """

    problem: PlanningProblem
    nodes: Mapping[str, NodeCoefficients]
    fixed_s: Mapping[str, float]
    llm_count: int
    t_ref: float
    k_ref: float
    d_ref: float
    settled_quality: float = 1.0

    def demand(self, column: Column) -> float:
        """What D counts of one column: slot-seconds, or tau where the problem says so."""
        return column.duration_s if self.problem.demand == "tau" else sum(column.work.values())

    def gain(self, node: NodeCoefficients, column: Column, level: float) -> float:
        """What one column adds to the objective; all of it but the makespan's term is separable by node."""
        w, count, pricing = self.problem.weights, self.llm_count, self.problem.pricing
        if pricing is not None:
            return log_quality(node.residual_risk(column)) - level * priced(pricing, column)
        return (
            (node.rho * column.quality - w.lambda_r * node.residual_risk(column)) / count
            - per_reference(w.lambda_c, self.k_ref) * column.cost
            - level * per_reference(w.lambda_d, self.d_ref) * self.demand(column)
        )

    @property
    def latency_price(self) -> float:
        """Objective per second of makespan."""
        if self.problem.pricing is not None:
            return self.problem.pricing.epsilon
        return per_reference(self.problem.weights.lambda_l, self.t_ref)


def per_reference(weight: float, reference: float) -> float:
    """weight / reference; a fleet without prices (reference 0) has no such term."""
    return weight / reference if reference > 0 else 0.0


def log_quality(residual_risk: float) -> float:
    """log(1 - v r), bounded below."""
    return log(max(1.0 - residual_risk, LEAST_QUALITY))


def priced(pricing: Pricing, column: Column) -> float:
    """The price of a column's GPU-seconds at level 1."""
    return sum(pricing.prices[model] * seconds for model, seconds in column.gpu_s.items())


def reach_weight(workflow: Workflow, node_id: str, *, beta: float, effort: float) -> float:
    """rho(n)."""
    total = len(workflow.nodes)
    return 1.0 if total == 1 else 1.0 + beta * effort * (len(workflow.reachable[node_id]) - 1) / (total - 1)


def planned_tool_s(node: ToolNode) -> float:
    """`expected_s` rounded to two significant digits, the grain of the bundle cache."""
    return float(f"{node.expected_s:.2g}")


def build_coefficients(problem: PlanningProblem) -> Coefficients | Infeasible:
    """Infeasible when some LLM node has no legal implementation, with a reason for each such node.

    Pins and prohibitions take columns away after the reference plan is known: objectives stay comparable.
    """
    nodes: dict[str, NodeCoefficients] = {}
    reference: dict[str, Row] = {}
    reasons: list[str] = []
    for node in problem.workflow.llm_nodes:
        menu = menu_of(problem, node)
        if len(menu):
            nodes[node.id] = _node_coefficients(problem, node, menu)
            reference[node.id] = menu.reference
        else:
            reasons.append(f"node {node.id} has no legal implementation: {'; '.join(why_none_is_legal(problem, node))}")
    if reasons:
        return Infeasible(reasons=tuple(reasons))
    no_tools = {node.id: 0.0 for node in problem.workflow.tool_nodes}
    unrestricted = Coefficients(
        problem=problem,
        nodes=nodes,
        fixed_s={node.id: planned_tool_s(node) for node in problem.workflow.tool_nodes},
        llm_count=max(1, len(nodes)),
        t_ref=makespan_s(problem.workflow, no_tools | {n: row.duration_s for n, row in reference.items()}),
        k_ref=sum(row.cost for row in reference.values()),
        d_ref=sum(row.duration_s if problem.demand == "tau" else row.work_s for row in reference.values()),
    )
    return permitted(unrestricted)


def _node_coefficients(problem: PlanningProblem, node: LlmNode, menu: Menu) -> NodeCoefficients:
    return NodeCoefficients(
        rho=reach_weight(problem.workflow, node.id, beta=problem.weights.beta, effort=problem.effort),
        vulnerability=vulnerability(problem.workflow, node.id, node.skill, problem.profiles.vulnerability),
        menu=menu,
    )
