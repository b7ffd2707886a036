"""The value of an assignment: the objective's terms and a plan's annotations, from the coefficients alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from planner.compiler.coefficients import Coefficients, log_quality, per_reference, priced
from planner.compiler.critical_path import makespan_s
from planner.compiler.menu import Column
from planner.compiler.pricing import Pricing

Choice = Mapping[str, Column]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """`terms` carry their weights and signs and add up to `objective`; `demand` is work per model class."""

    terms: Mapping[str, float]
    estimated_quality: float
    makespan_s: float
    cost: float
    demand: Mapping[str, float]
    dominant_model: str | None
    durations_s: Mapping[str, float]

    @property
    def objective(self) -> float:
        return sum(self.terms.values())


def evaluate(coefficients: Coefficients, choice: Choice, level: float) -> Evaluation:
    """`choice` gives every LLM node its column; the makespan is re-evaluated on the whole DAG."""
    workflow = coefficients.problem.workflow
    chosen = {node_id: choice[node_id] for node_id in coefficients.nodes}
    durations = {
        node.id: chosen[node.id].duration_s if node.id in chosen else coefficients.fixed_s[node.id]
        for node in workflow.nodes
    }
    total_s = makespan_s(workflow, durations)
    demand = _work_per_model(chosen)
    return Evaluation(
        terms=terms(coefficients, chosen, level, total_s),
        estimated_quality=coefficients.settled_quality
        * prod(1.0 - coefficients.nodes[n].residual_risk(column) for n, column in chosen.items()),
        makespan_s=total_s,
        cost=sum(column.cost for column in chosen.values()),
        demand=demand,
        dominant_model=_dominant(coefficients, demand),
        durations_s=durations,
    )


def terms(coefficients: Coefficients, chosen: Choice, level: float, total_s: float) -> dict[str, float]:
    """What the chosen columns, of all nodes or of some, and a makespan add to each term of the objective."""
    latency = -coefficients.latency_price * total_s
    if coefficients.problem.pricing is not None:
        return _priced_terms(coefficients, coefficients.problem.pricing, chosen, level) | {"latency": latency}
    w, count = coefficients.problem.weights, coefficients.llm_count
    quality = sum(coefficients.nodes[n].rho * column.quality for n, column in chosen.items())
    risk = sum(coefficients.nodes[n].residual_risk(column) for n, column in chosen.items())
    cost = sum(column.cost for column in chosen.values())
    demand = sum(map(coefficients.demand, chosen.values()))
    return {
        "quality": quality / count,
        "risk": -w.lambda_r * risk / count,
        "latency": latency,
        "cost": -per_reference(w.lambda_c, coefficients.k_ref) * cost,
        "demand": -level * per_reference(w.lambda_d, coefficients.d_ref) * demand,
    }


def _priced_terms(coefficients: Coefficients, pricing: Pricing, chosen: Choice, level: float) -> dict[str, float]:
    risks = (coefficients.nodes[n].residual_risk(column) for n, column in chosen.items())
    return {
        "log_quality": sum(map(log_quality, risks)),
        "gpu": -level * sum(priced(pricing, column) for column in chosen.values()),
    }


def _work_per_model(chosen: Choice) -> dict[str, float]:
    demand: dict[str, float] = {}
    for column in chosen.values():
        for model, slot_s in column.work.items():
            demand[model] = demand.get(model, 0.0) + slot_s
    return demand


def _dominant(coefficients: Coefficients, demand: Mapping[str, float]) -> str | None:
    """The class with the largest share of planned work (paper 4.4); ties go to the larger class."""
    catalog = coefficients.problem.catalog
    return max(demand, key=lambda name: (demand[name], catalog.model(name).size_rank, name), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """What a solver found: a column per node, and a bound on any plan's objective (None: this one is optimal).

    `phases_s` and `pruning` as in a plan.
    """

    choice: Choice
    solver: str
    bound: float | None = None
    phases_s: Mapping[str, float] = field(default_factory=dict)
    pruning: Mapping[str, int] = field(default_factory=dict)
