"""Pins and prohibitions by node: they shorten a node's columns, after the reference plan is known (ours).

T_ref, K_ref and D_ref come from the unrestricted columns, so that objectives stay comparable with and without limits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from planner.compiler.limits.declared import EVERY_NODE, Limits, LimitsInvalid, parts, unknown_node
from planner.compiler.menu import Column, Menu
from planner.compiler.plan import Conflict, Implementation, Infeasible
from planner.compiler.workflow import LlmNode

if TYPE_CHECKING:
    from planner.compiler.coefficients import Coefficients, NodeCoefficients
    from planner.compiler.problem import PlanningProblem


def matches(pattern: str, implementation: Implementation) -> bool:
    """Whether the base model, the policy and the base model's backend fit; a verifier is not looked at."""
    model, policy, backend = parts(pattern)
    return (
        model in ("*", implementation.model)
        and policy in ("*", implementation.policy)
        and backend in ("*", implementation.backend)
    )


def excludes(limits: Limits, name: str, implementation: Implementation) -> bool:
    """Whether the limit `pin.KEY` or `forbid.KEY` rules the implementation out for the nodes it holds for."""
    kind, _, key = name.partition(".")
    patterns = limits.pinned[key] if kind == "pin" else limits.forbidden[key]
    return any(matches(pattern, implementation) for pattern in patterns) == (kind == "forbid")


def names_for(limits: Limits, node_id: str) -> list[str]:
    """The pins and prohibitions that hold for a node."""
    return [
        f"{kind}.{key}"
        for kind, given in (("pin", limits.pinned), ("forbid", limits.forbidden))
        for key in (EVERY_NODE, node_id)
        if key in given
    ]


def permitted(coefficients: Coefficients) -> Coefficients | Infeasible:
    """The same problem with the columns that pins and prohibitions leave; Infeasible names each node without one.

    Raises LimitsInvalid on a node that is no LLM node of the workflow: ignored in silence, a limit would seem to hold.
    """
    limits = coefficients.problem.limits
    if not limits.pinned and not limits.forbidden:
        return coefficients
    _refuse_unknown(coefficients.problem)
    nodes, bare = dict(coefficients.nodes), []
    for node_id, node in nodes.items():
        names = names_for(limits, node_id)
        columns = [c for c in node.columns if not any(excludes(limits, n, c.implementation) for n in names)]
        nodes[node_id] = with_columns(node, columns)
        if not columns:
            bare.append(node_id)
    if not bare:
        return replace(coefficients, nodes=nodes)
    left = {node_id: _irreducible(limits, node_id, coefficients.nodes[node_id].columns) for node_id in bare}
    reasons = [_reason(limits, node_id, conflicts) for node_id, conflicts in left.items()]
    return Infeasible(reasons=tuple(reasons), conflicts=left[bare[0]])


def with_columns(node: NodeCoefficients, columns: Sequence[Column]) -> NodeCoefficients:
    """The node with some of its columns; itself where that is all of them."""
    return node if len(columns) == len(node.columns) else replace(node, menu=Menu(columns=tuple(columns)))


def pattern_of(implementation: Implementation) -> str:
    return f"{implementation.model}/{implementation.policy}/{implementation.backend}"


def asked(limits: Limits, name: str) -> str:
    """The patterns of a pin or a prohibition, as they are written on the command line."""
    kind, _, key = name.partition(".")
    return ",".join(limits.pinned[key] if kind == "pin" else limits.forbidden[key])


def _refuse_unknown(problem: PlanningProblem) -> None:
    nodes, limits = problem.workflow.by_id, problem.limits
    named: Mapping[str, str] = {f"pin.{n}": n for n in limits.pinned} | {f"forbid.{n}": n for n in limits.forbidden}
    wrong = {
        name: unknown_node(problem, node_id)
        for name, node_id in named.items()
        if node_id != EVERY_NODE and not isinstance(nodes.get(node_id), LlmNode)
    }
    if wrong:
        raise LimitsInvalid(wrong)


def _irreducible(limits: Limits, node_id: str, columns: Sequence[Column]) -> tuple[Conflict, ...]:
    """Pins and prohibitions that leave the node nothing together, though any one of them less leaves something."""
    names = names_for(limits, node_id)
    for name in tuple(names):
        others = [other for other in names if other != name]
        if all(any(excludes(limits, other, c.implementation) for other in others) for c in columns):
            names = others
    return tuple(_conflict(limits, node_id, name, names, columns) for name in names)


def _conflict(limits: Limits, node_id: str, name: str, names: list[str], columns: Sequence[Column]) -> Conflict:
    """`needed` is the first implementation in the fleet's order that the other limits of the conflict leave."""
    others = [other for other in names if other != name]
    free = next(c for c in columns if not any(excludes(limits, other, c.implementation) for other in others))
    pattern = pattern_of(free.implementation)
    text = f"let node {node_id} use {pattern}, which {name}={asked(limits, name)} rules out"
    return Conflict(limit=name, asked=asked(limits, name), needed=pattern, text=text)


def _reason(limits: Limits, node_id: str, conflicts: Sequence[Conflict]) -> str:
    said = " and ".join(f"{conflict.limit}={conflict.asked}" for conflict in conflicts)
    return f"node {node_id} has no implementation left by {said}: " + ", or ".join(c.text for c in conflicts)
