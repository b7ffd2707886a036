"""The rules by which the baselines choose (paper 7.1, 7.5); `planner.compiler.baselines` says how each is meant.

Every rule takes coefficients, level and seconds per solve, and gives every node one of its own columns. Among columns
that a rule leaves equal the faster one is taken, then the earlier one in the order of the menu.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from statistics import fmean

from planner.compiler import exact
from planner.compiler.baselines.collapsed import collapsed
from planner.compiler.coefficients import Coefficients, NodeCoefficients
from planner.compiler.evaluate import Choice
from planner.compiler.menu import Column, Menu, menu_of
from planner.compiler.vulnerability import VulnerabilityTable, vulnerability

SHERLOCK_SHARE = 0.5
"""Share of the slot-seconds that Verify-All adds which Sherlock-style may spend on verification."""

Columns = Mapping[str, Sequence[Column]]


# --- Columns ---------------------------------------------------------------------------------------------------------


def _verifies(coefficients: Coefficients, column: Column) -> bool:
    """A policy of more than one call verifies; of one call alone it is the base generation."""
    return coefficients.problem.policies[column.implementation.policy].max_calls > 1


def _of_largest_model(coefficients: Coefficients, columns: Sequence[Column]) -> list[Column]:
    """The columns of the node's largest legal class."""
    models = {column.implementation.model for column in columns}
    catalog = coefficients.problem.catalog
    largest = max(models, key=lambda name: (catalog.model(name).size_rank, name))
    return [column for column in columns if column.implementation.model == largest]


def _unverified(coefficients: Coefficients, columns: Sequence[Column]) -> list[Column]:
    """One class's columns without verification; where that is not legal, those of its cheapest policy."""
    plain = [column for column in columns if not _verifies(coefficients, column)]
    return plain or _of_policy(columns, min(columns, key=lambda column: column.cost).implementation.policy)


def _of_policy(columns: Sequence[Column], policy: str) -> list[Column]:
    return [column for column in columns if column.implementation.policy == policy]


def _fastest(columns: Sequence[Column]) -> Column:
    return min(columns, key=lambda column: column.duration_s)


def _slot_s(column: Column) -> float:
    return sum(column.work.values())


def _offering(node: NodeCoefficients, columns: Sequence[Column]) -> NodeCoefficients:
    return replace(node, menu=Menu(columns=tuple(columns)))


def _best_of(coefficients: Coefficients, columns: Columns, level: float, time_limit_s: float) -> Choice:
    """The best choice among some of the columns, at the true objective."""
    nodes = {node_id: _offering(node, columns[node_id]) for node_id, node in coefficients.nodes.items()}
    return exact.solve(replace(coefficients, nodes=nodes), level, time_limit_s)[1]


def _by_node(coefficients: Coefficients, keep: Callable[[Sequence[Column]], Sequence[Column]]) -> Columns:
    return {node_id: keep(node.columns) for node_id, node in coefficients.nodes.items()}


# --- Rules without a solver ------------------------------------------------------------------------------------------


def fixed_model(coefficients: Coefficients, level: float, time_limit_s: float) -> dict[str, Column]:
    return {
        node_id: _fastest(_unverified(coefficients, _of_largest_model(coefficients, node.columns)))
        for node_id, node in coefficients.nodes.items()
    }


def verify_all(coefficients: Coefficients, level: float, time_limit_s: float) -> dict[str, Column]:
    choice = fixed_model(coefficients, level, time_limit_s)
    for node_id, node in coefficients.nodes.items():
        verifying = _verifying(coefficients, node)
        if verifying:
            choice[node_id] = max(verifying, key=lambda column: (column.quality, -column.cost))
    return choice


def _verifying(coefficients: Coefficients, node: NodeCoefficients) -> list[Column]:
    """The largest class's verifying policies, each on its fastest backend."""
    columns = [c for c in _of_largest_model(coefficients, node.columns) if _verifies(coefficients, c)]
    policies = dict.fromkeys(column.implementation.policy for column in columns)
    return [_fastest(_of_policy(columns, policy)) for policy in policies]


def sherlock_style(coefficients: Coefficients, level: float, time_limit_s: float) -> Choice:
    choice = fixed_model(coefficients, level, time_limit_s)
    everything = verify_all(coefficients, level, time_limit_s)
    budget = SHERLOCK_SHARE * sum(_slot_s(everything[node_id]) - _slot_s(plain) for node_id, plain in choice.items())
    verified = set[str]()
    for _, node_id, column, extra_s in sorted(_offers(coefficients, choice), key=lambda offer: -offer[0]):
        if node_id not in verified and extra_s <= budget:
            choice[node_id] = column
            verified.add(node_id)
            budget -= extra_s
    return choice


def _offers(coefficients: Coefficients, plain: Choice) -> Iterator[tuple[float, str, Column, float]]:
    """(utility, node, column, slot-seconds on top) of every verification that lowers the error."""
    for node_id, node in coefficients.nodes.items():
        exposed = _topological_vulnerability(coefficients, node_id)
        for column in _verifying(coefficients, node):
            saved = exposed * (plain[node_id].error_rate - column.error_rate)
            extra_s = _slot_s(column) - _slot_s(plain[node_id])
            if saved > 0:
                yield (saved / extra_s if extra_s > 0 else inf), node_id, column, extra_s


def _topological_vulnerability(coefficients: Coefficients, node_id: str) -> float:
    """v by role and fan-in alone: that of a skill that the table does not know."""
    problem = coefficients.problem
    table = problem.profiles.vulnerability
    return vulnerability(problem.workflow, node_id, _unknown_skill(table), table)


def _unknown_skill(table: VulnerabilityTable) -> str:
    """Longer than every skill of the table, and so none of them."""
    return max((cell.skill for cell in table.cells), key=len) + "?"


# --- One dimension before the other, or one alone --------------------------------------------------------------------


def model_first(coefficients: Coefficients, level: float, time_limit_s: float) -> Choice:
    unverified = _by_node(coefficients, lambda columns: _unverified_by_model(coefficients, columns))
    return _refined(coefficients, _best_of(coefficients, unverified, level, time_limit_s), "model", level, time_limit_s)


def _unverified_by_model(coefficients: Coefficients, columns: Sequence[Column]) -> list[Column]:
    models = dict.fromkeys(column.implementation.model for column in columns)
    by_model = ([c for c in columns if c.implementation.model == model] for model in models)
    return [column for of_model in by_model for column in _unverified(coefficients, of_model)]


def verification_first(coefficients: Coefficients, level: float, time_limit_s: float) -> Choice:
    policies = verifier_only(coefficients, level, time_limit_s)
    return _refined(coefficients, policies, "policy", level, time_limit_s)


def _refined(coefficients: Coefficients, first: Choice, fixed: str, level: float, time_limit_s: float) -> Choice:
    """The best choice with every node's `fixed` (model or policy) as in `first`."""
    columns = {
        node_id: [
            column
            for column in node.columns
            if getattr(column.implementation, fixed) == getattr(first[node_id].implementation, fixed)
        ]
        for node_id, node in coefficients.nodes.items()
    }
    return _best_of(coefficients, columns, level, time_limit_s)


def model_only(coefficients: Coefficients, level: float, time_limit_s: float) -> Choice:
    columns = _by_node(coefficients, lambda columns: _of_policy(columns, _best_for_all_models(columns)))
    return _best_of(coefficients, columns, level, time_limit_s)


def _best_for_all_models(columns: Sequence[Column]) -> str:
    """The policy that leaves most classes to choose from; of those the highest mean quality, then the lowest cost."""

    def merit(policy: str) -> tuple[int, float, float]:
        of_policy = _of_policy(columns, policy)
        models = {column.implementation.model for column in of_policy}
        return len(models), fmean(c.quality for c in of_policy), -fmean(c.cost for c in of_policy)

    return max(dict.fromkeys(column.implementation.policy for column in columns), key=merit)


def verifier_only(coefficients: Coefficients, level: float, time_limit_s: float) -> Choice:
    largest = _by_node(coefficients, lambda columns: _of_largest_model(coefficients, columns))
    return _best_of(coefficients, largest, level, time_limit_s)


# --- Less knowledge --------------------------------------------------------------------------------------------------


def uniform_weights(coefficients: Coefficients, level: float, time_limit_s: float) -> Choice:
    nodes = coefficients.nodes.values()
    rho, v = fmean(node.rho for node in nodes), fmean(node.vulnerability for node in nodes)
    believed = {n: replace(node, rho=rho, vulnerability=v) for n, node in coefficients.nodes.items()}
    return exact.solve(replace(coefficients, nodes=believed), level, time_limit_s)[1]


def no_vulnerability(coefficients: Coefficients, level: float, time_limit_s: float) -> Choice:
    v = 0.0 if coefficients.problem.pricing is None else 1.0
    believed = {n: replace(node, vulnerability=v) for n, node in coefficients.nodes.items()}
    return exact.solve(replace(coefficients, nodes=believed), level, time_limit_s)[1]


def collapsed_skills(coefficients: Coefficients, level: float, time_limit_s: float) -> Choice:
    problem = replace(coefficients.problem, profiles=collapsed(coefficients.problem.profiles))
    true = {n: {_place(column): column for column in node.columns} for n, node in coefficients.nodes.items()}
    believed: dict[str, Sequence[Column]] = {}
    for node in problem.workflow.llm_nodes:
        if node.id in true:
            legal = [column for column in menu_of(problem, node).columns if _place(column) in true[node.id]]
            believed[node.id] = legal or coefficients.nodes[node.id].columns
    chosen = _best_of(coefficients, believed, level, time_limit_s)
    return {node_id: true[node_id][_place(column)] for node_id, column in chosen.items()}


def _place(column: Column) -> tuple[str, str, str]:
    """What tells a node's columns apart: another prompt length may only move the verifier to another backend."""
    implementation = column.implementation
    return implementation.model, implementation.backend, implementation.policy
