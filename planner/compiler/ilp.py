"""The workflow-wide ILP (paper 4.3 and 4.4; objective, units and normalisation ours: MATH.md).

maximise   (1/|V_L|) * sum rho(n) Q x  -  lambda_r (1/|V_L|) * sum f x
           -  lambda_l * T / T_ref  -  lambda_c * K / K_ref  -  L * lambda_d * D / D_ref
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pulp import LpAffineExpression, LpMaximize, LpProblem, LpVariable, lpSum

from planner.compiler.coefficients import Coefficients

Binaries = Mapping[str, tuple[LpVariable, ...]]
Times = Mapping[str, LpVariable]

OBJECTIVE_SCALE = 1000.0
"""The objective is of order 1: scaled, a solver's absolute tolerances no longer matter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanModel:
    """`x[n]` holds one binary per column of node n, in the coefficients' order."""

    program: LpProblem
    x: Binaries


def build_model(coefficients: Coefficients, level: float) -> PlanModel:
    workflow = coefficients.problem.workflow
    program = LpProblem("plan", LpMaximize)
    x = implementation_variables(program, coefficients)
    finish = {node.id: program.add_variable(f"finish_{workflow.index[node.id]}", 0) for node in workflow.nodes}
    makespan = program.add_variable("T", 0)
    program.setObjective(objective(coefficients, level, x, makespan))
    add_one_implementation_per_node(program, x)
    add_precedence(program, coefficients, x, finish)
    add_makespan(program, finish, makespan)
    return PlanModel(program=program, x=x)


def implementation_variables(program: LpProblem, coefficients: Coefficients) -> Binaries:
    """x[n,o,p]; names use positions, since node ids may hold any character."""
    index = coefficients.problem.workflow.index
    return {
        node_id: tuple(program.add_variable(f"x_{index[node_id]}_{i}", cat="Binary") for i in range(len(node.columns)))
        for node_id, node in coefficients.nodes.items()
    }


def objective(coefficients: Coefficients, level: float, x: Binaries, makespan: LpVariable) -> LpAffineExpression:
    """Quality, risk, cost and demand are separable by column (`gain`); only T couples the nodes."""
    terms = [
        (variable, OBJECTIVE_SCALE * coefficients.gain(node, column, level))
        for node_id, node in coefficients.nodes.items()
        for variable, column in zip(x[node_id], node.columns, strict=True)
    ]
    return LpAffineExpression([*terms, (makespan, -OBJECTIVE_SCALE * coefficients.latency_price)])


def add_one_implementation_per_node(program: LpProblem, x: Binaries) -> None:
    """sum over o, p of x[n,o,p] = 1."""
    for variables in x.values():
        program.addConstraint(lpSum(variables) == 1)


def add_precedence(program: LpProblem, coefficients: Coefficients, x: Binaries, finish: Times) -> None:
    """finish(n) >= dur(n);  finish(n) >= finish(m) + dur(n) for each edge m -> n."""
    predecessors = coefficients.problem.workflow.predecessors
    for node_id, variable in finish.items():
        after = variable - duration(coefficients, x, node_id)
        program.addConstraint(after >= 0)
        for before in predecessors[node_id]:
            program.addConstraint(after - finish[before] >= 0)


def add_makespan(program: LpProblem, finish: Times, makespan: LpVariable) -> None:
    """T >= finish(n)."""
    for variable in finish.values():
        program.addConstraint(makespan - variable >= 0)


def duration(coefficients: Coefficients, x: Binaries, node_id: str) -> LpAffineExpression | float:
    """dur(n) = sum tau x for an LLM node, expected_s for a tool node."""
    if node_id in coefficients.fixed_s:
        return coefficients.fixed_s[node_id]
    columns = coefficients.nodes[node_id].columns
    return LpAffineExpression([(v, c.duration_s) for v, c in zip(x[node_id], columns, strict=True)])
