"""Caps on a whole plan: what a column uses of them, whether a plan keeps them, which columns they rule out (ours).

Every cap but one says that amounts add up over the nodes to no more than its room:

    max_cost, max_tokens      sum cost x, sum tokens x                     expected values
    max_calls, calls.MODEL    sum calls x                                  when every conditional stage runs
    work_s.MODEL              sum work x                                   slot-seconds
    min_quality               sum -log(1 - v r) x <= -log(q)               the product of MATH.md, as a sum
    max_makespan_s            T <= cap                                     amounts add up along the longest path only

A plan keeps a cap that it exceeds by no more than the relative error of adding up floats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from planner.compiler.coefficients import Coefficients
from planner.compiler.critical_path import makespan_s, slack_s
from planner.compiler.evaluate import Choice
from planner.compiler.limits.patterns import with_columns
from planner.compiler.menu import Column
from planner.compiler.plan import Infeasible

RELATIVE_ERROR = 1e-9
NO_PLAN = Infeasible(reasons=("no plan keeps all limits: change one of them",))
Amount = Callable[[str, Column], float]
"""What a column of a node (by its id) uses of a cap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cap:
    """`base` plus the amounts may come to `room`; `logarithmic`: they are -log of a quality that must be reached."""

    name: str
    asked: float
    room: float
    amount: Amount
    base: float = 0.0
    path: bool = False
    logarithmic: bool = False

    def total(self, coefficients: Coefficients, choice: Choice) -> float:
        if self.path:
            chosen = {node_id: self.amount(node_id, column) for node_id, column in choice.items()}
            return makespan_s(coefficients.problem.workflow, {**coefficients.fixed_s, **chosen})
        return math.fsum((self.base, *(self.amount(node_id, column) for node_id, column in choice.items())))

    def keeps(self, coefficients: Coefficients, choice: Choice) -> bool:
        return self.total(coefficients, choice) <= self.room

    def in_its_unit(self, total: float) -> float:
        """A total as the limit counts it: a quality where the amounts are logarithms."""
        return math.exp(-total) if self.logarithmic else total


def caps_of(coefficients: Coefficients) -> tuple[Cap, ...]:
    """The coupled limits of the problem, in the order of its limits."""
    limits = coefficients.problem.limits
    sums: dict[str, tuple[float | None, Amount]] = {
        "max_cost": (limits.max_cost, lambda _, column: column.cost),
        "max_calls": (limits.max_calls, lambda _, column: sum(column.calls.values())),
        "max_tokens": (limits.max_tokens, lambda _, column: column.tokens),
    }
    for model, seconds in limits.max_model_work_s.items():
        sums[f"work_s.{model}"] = (seconds, _work_of(model))
    for model, calls in limits.max_model_calls.items():
        sums[f"calls.{model}"] = (calls, _calls_of(model))
    caps = [_cap(name, asked, amount) for name, (asked, amount) in sums.items() if asked is not None]
    if limits.max_makespan_s is not None:
        caps.append(_cap("max_makespan_s", limits.max_makespan_s, lambda _, column: column.duration_s, path=True))
    return (*caps, *_min_quality(coefficients, limits.min_quality))


def _work_of(model: str) -> Amount:
    return lambda _, column: column.work.get(model, 0.0)


def _calls_of(model: str) -> Amount:
    return lambda _, column: column.calls.get(model, 0)


def _cap(name: str, asked: float, amount: Amount, *, path: bool = False) -> Cap:
    return Cap(name=name, asked=asked, room=asked * (1 + RELATIVE_ERROR), amount=amount, path=path)


def _min_quality(coefficients: Coefficients, asked: float | None) -> tuple[Cap, ...]:
    """Settled nodes count; a column that is always wrong where it matters can be in no plan of any quality."""
    if not asked:
        return ()

    def amount(node_id: str, column: Column) -> float:
        return _minus_log(1.0 - coefficients.nodes[node_id].residual_risk(column))

    room, base = _minus_log(asked * (1 - RELATIVE_ERROR)), _minus_log(coefficients.settled_quality)
    return (Cap(name="min_quality", asked=asked, room=room, amount=amount, base=base, logarithmic=True),)


def _minus_log(quality: float) -> float:
    return -math.log(quality) if quality > 0 else math.inf


# --- What caps rule out ----------------------------------------------------------------------------------------------


def least(coefficients: Coefficients, cap: Cap) -> Choice:
    """Every node's column that uses least of the cap; no plan's total is lower."""
    return {
        node_id: min(node.columns, key=lambda column: cap.amount(node_id, column))
        for node_id, node in coefficients.nodes.items()
    }


def slack_by_node(coefficients: Coefficients, cap: Cap) -> Mapping[str, float]:
    """How much more than its least a node may use when all others use theirs; negative: no plan keeps the cap."""
    choice = least(coefficients, cap)
    slack = cap.room - cap.total(coefficients, choice)
    if not cap.path:
        return dict.fromkeys(coefficients.nodes, slack)
    workflow = coefficients.problem.workflow
    durations = {**coefficients.fixed_s, **{node_id: cap.amount(node_id, c) for node_id, c in choice.items()}}
    return {node_id: slack + spare for node_id, spare in slack_s(workflow, durations).items() if node_id in choice}


def presolved(coefficients: Coefficients, caps: Sequence[Cap]) -> Coefficients | None:
    """Without the columns that break a cap whatever the other nodes use; None: no plan keeps the caps.

    Every plan that keeps the caps stays possible. Repeats, since fewer columns may raise what another cap uses least.
    """
    changed = True
    while changed:
        changed = False
        for cap in caps:
            if not cap.keeps(coefficients, least(coefficients, cap)):
                return None
            smaller = _without_breaking(coefficients, cap)
            changed |= smaller is not coefficients
            coefficients = smaller
    return coefficients


def _without_breaking(coefficients: Coefficients, cap: Cap) -> Coefficients:
    slack = slack_by_node(coefficients, cap)
    nodes = {}
    for node_id, node in coefficients.nodes.items():
        amounts = [cap.amount(node_id, column) for column in node.columns]
        most = min(amounts) + max(0.0, slack[node_id])
        keep = [column for column, amount in zip(node.columns, amounts, strict=True) if amount <= most]
        nodes[node_id] = with_columns(node, keep)
    if all(nodes[node_id] is node for node_id, node in coefficients.nodes.items()):
        return coefficients
    return replace(coefficients, nodes=nodes)


def undominated(coefficients: Coefficients, level: float, caps: Sequence[Cap]) -> Coefficients:
    """Without columns that another one of the node equals or beats in gain, duration and every cap's amount.

    Putting the other one in its place keeps all caps and loses nothing: true for sums and for longest paths.
    """
    nodes = {}
    for node_id, node in coefficients.nodes.items():
        points = [
            (-coefficients.gain(node, c, level), c.duration_s, *(cap.amount(node_id, c) for cap in caps))
            for c in node.columns
        ]
        front: list[int] = []
        for position in sorted(range(len(points)), key=points.__getitem__):
            if not any(_no_worse(points[other], points[position]) for other in front):
                front.append(position)
        nodes[node_id] = with_columns(node, [node.columns[position] for position in sorted(front)])
    return replace(coefficients, nodes=nodes)


def _no_worse(one: Sequence[float], other: Sequence[float]) -> bool:
    return all(a <= b for a, b in zip(one, other, strict=True))
