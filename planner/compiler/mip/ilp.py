"""The workflow-wide ILP (paper 4.3 and 4.4; objective, units and normalisation ours: MATH.md).

maximise   (1/|V_L|) * sum rho(n) Q x  -  lambda_r (1/|V_L|) * sum f x
           -  lambda_l * T / T_ref  -  lambda_c * K / K_ref  -  L * lambda_d * D / D_ref

Limits (ours) add a row each: planner.compiler.limits.caps says what a column uses of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pulp import LpAffineExpression, LpMaximize, LpProblem, LpVariable, lpSum

from planner.compiler.coefficients import Coefficients
from planner.compiler.critical_path import makespan_s
from planner.compiler.evaluate import Choice
from planner.compiler.limits.caps import Cap, slack_by_node

Binaries = Mapping[str, tuple[LpVariable, ...]]
Times = Mapping[str, LpVariable]

OBJECTIVE_SCALE = 1000.0
"""The objective is of order 1: scaled, a solver's absolute tolerances no longer matter."""
TOO_MUCH = 2.0
"""A share of a cap's slack that no column of a plan can have; larger ones mean the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanModel:
    """`x[n]` holds one binary per column of node n, in the order of `coefficients`. Times count in `unit_s`."""

    coefficients: Coefficients
    program: LpProblem
    x: Binaries
    makespan: LpVariable
    unit_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a MIP solver said of a model: a choice unless there is none or none yet; a bound on any choice's objective.

    `optimal` and `infeasible` are proved; `feasible` and `unknown` are where the time ended.
    """

    status: Literal["optimal", "feasible", "infeasible", "unknown"]
    choice: Choice | None = None
    bound: float = float("inf")


def build_model(coefficients: Coefficients, level: float, caps: Sequence[Cap] = ()) -> PlanModel:
    model = _feasible_plans(coefficients, caps)
    model.program.setObjective(objective(model, level))
    return model


def build_any(coefficients: Coefficients, caps: Sequence[Cap]) -> PlanModel:
    """Any plan within the caps: all are worth the same."""
    return _feasible_plans(coefficients, caps)


def build_least(coefficients: Coefficients, cap: Cap, caps: Sequence[Cap]) -> PlanModel:
    """The plan that uses least of one cap, of which every column's amount is finite, and keeps the others."""
    model = _feasible_plans(coefficients, caps)
    model.program.setObjective(least_of(model, cap))
    return model


def _feasible_plans(coefficients: Coefficients, caps: Sequence[Cap]) -> PlanModel:
    workflow = coefficients.problem.workflow
    program = LpProblem("plan", LpMaximize)
    x = implementation_variables(program, coefficients)
    finish = {node.id: program.add_variable(f"finish_{workflow.index[node.id]}", 0) for node in workflow.nodes}
    makespan, unit_s = program.add_variable("T", 0), time_unit_s(coefficients)
    model = PlanModel(coefficients=coefficients, program=program, x=x, makespan=makespan, unit_s=unit_s)
    add_one_implementation_per_node(program, x)
    add_precedence(model, finish)
    add_makespan(program, finish, makespan)
    for cap in caps:
        add = add_makespan_cap if cap.path else add_cap
        add(model, cap)
    return model


def implementation_variables(program: LpProblem, coefficients: Coefficients) -> Binaries:
    """x[n,o,p]; names use positions, since node ids may hold any character."""
    index = coefficients.problem.workflow.index
    return {
        node_id: tuple(program.add_variable(f"x_{index[node_id]}_{i}", cat="Binary") for i in range(len(node.columns)))
        for node_id, node in coefficients.nodes.items()
    }


def time_unit_s(coefficients: Coefficients) -> float:
    """The shortest makespan there is: fleets differ by orders of magnitude, a solver's tolerances do not."""
    fastest = {n: min(column.duration_s for column in node.columns) for n, node in coefficients.nodes.items()}
    return makespan_s(coefficients.problem.workflow, {**coefficients.fixed_s, **fastest}) or 1.0


def objective(model: PlanModel, level: float) -> LpAffineExpression:
    """Quality, risk, cost and demand are separable by column (`gain`); only T couples the nodes."""
    coefficients = model.coefficients
    terms = [
        (variable, OBJECTIVE_SCALE * coefficients.gain(node, column, level))
        for node_id, node in coefficients.nodes.items()
        for variable, column in zip(model.x[node_id], node.columns, strict=True)
    ]
    price = OBJECTIVE_SCALE * coefficients.latency_price * model.unit_s
    return LpAffineExpression([*terms, (model.makespan, -price)])


def least_of(model: PlanModel, cap: Cap) -> LpAffineExpression:
    """Minus what the plan uses of a cap beyond every node's least, as a share of the most it can use."""
    if cap.path:
        return LpAffineExpression([(model.makespan, -OBJECTIVE_SCALE)])
    amounts = {node_id: amounts_of(model, cap, node_id) for node_id in model.x}
    most = sum(max(found) - min(found) for found in amounts.values()) or 1.0
    return LpAffineExpression(
        [
            (variable, -OBJECTIVE_SCALE * (amount - min(amounts[node_id])) / most)
            for node_id, variables in model.x.items()
            for variable, amount in zip(variables, amounts[node_id], strict=True)
        ]
    )


def add_one_implementation_per_node(program: LpProblem, x: Binaries) -> None:
    """sum over o, p of x[n,o,p] = 1."""
    for variables in x.values():
        program.addConstraint(lpSum(variables) == 1)


def add_precedence(model: PlanModel, finish: Times) -> None:
    """finish(n) >= dur(n);  finish(n) >= finish(m) + dur(n) for each edge m -> n."""
    predecessors = model.coefficients.problem.workflow.predecessors
    for node_id, variable in finish.items():
        after = variable - duration(model, node_id)
        model.program.addConstraint(after >= 0)
        for before in predecessors[node_id]:
            model.program.addConstraint(after - finish[before] >= 0)


def add_makespan(program: LpProblem, finish: Times, makespan: LpVariable) -> None:
    """T >= finish(n)."""
    for variable in finish.values():
        program.addConstraint(makespan - variable >= 0)


def duration(model: PlanModel, node_id: str) -> LpAffineExpression | float:
    """dur(n) = sum tau x for an LLM node, expected_s for a tool node."""
    if node_id in model.coefficients.fixed_s:
        return model.coefficients.fixed_s[node_id] / model.unit_s
    columns = model.coefficients.nodes[node_id].columns
    return LpAffineExpression(
        [(v, c.duration_s / model.unit_s) for v, c in zip(model.x[node_id], columns, strict=True)]
    )


def add_makespan_cap(model: PlanModel, cap: Cap) -> None:
    """T <= cap."""
    model.program.addConstraint(model.makespan <= cap.room / model.unit_s)


def add_cap(model: PlanModel, cap: Cap) -> None:
    """sum a x <= cap, counted from every node's least and in shares of what is left above that."""
    slack = slack_by_node(model.coefficients, cap)
    terms = []
    for node_id, variables in model.x.items():
        amounts = amounts_of(model, cap, node_id)
        lowest = min(amounts)
        terms += [
            (v, _share(a - lowest, slack[node_id])) for v, a in zip(variables, amounts, strict=True) if a > lowest
        ]
    model.program.addConstraint(LpAffineExpression(terms) <= 1)


def _share(more: float, slack: float) -> float:
    return more / slack if more <= slack else TOO_MUCH


def add_cover(model: PlanModel, cap: Cap, choice: Choice) -> None:
    """Rules out a choice that breaks a cap by less than the solver's tolerance, and all that use no less of it.

    Of the nodes that use more than their least, along the longest path for a makespan, one must use less.
    """
    users = {}
    for node_id in _along_longest_path(model, choice) if cap.path else choice:
        amounts, used = amounts_of(model, cap, node_id), cap.amount(node_id, choice[node_id])
        if used > min(amounts):
            users[node_id] = [v for v, a in zip(model.x[node_id], amounts, strict=True) if a >= used]
    model.program.addConstraint(lpSum(v for variables in users.values() for v in variables) <= len(users) - 1)


def _along_longest_path(model: PlanModel, choice: Choice) -> list[str]:
    """The LLM nodes of one longest path."""
    workflow = model.coefficients.problem.workflow
    durations = {**model.coefficients.fixed_s, **{n: column.duration_s for n, column in choice.items()}}
    finish: dict[str, float] = {}
    through: dict[str, str | None] = {}
    for node_id in workflow.topological_order:
        through[node_id] = max(workflow.predecessors[node_id], key=finish.__getitem__, default=None)
        before = through[node_id]
        finish[node_id] = durations[node_id] + (finish[before] if before is not None else 0.0)
    path: list[str] = []
    here: str | None = max(finish, key=finish.__getitem__)
    while here is not None:
        path.append(here)
        here = through[here]
    return [node_id for node_id in path if node_id in choice]


def amounts_of(model: PlanModel, cap: Cap, node_id: str) -> list[float]:
    return [cap.amount(node_id, column) for column in model.coefficients.nodes[node_id].columns]


def chosen(model: PlanModel) -> Choice:
    """The column whose binary is set, per node (the largest one: solvers return 0.9999999)."""
    choice = {}
    for node_id, node in model.coefficients.nodes.items():
        values = [variable.value() or 0.0 for variable in model.x[node_id]]
        choice[node_id] = node.columns[values.index(max(values))]
    return choice
