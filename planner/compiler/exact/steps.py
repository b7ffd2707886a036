"""What the search needs to know at each of its steps, prepared once for all labels.

What a partial plan of gain G means for the rest is one time t_c for each set c of decided nodes that the same undecided
nodes wait for (and t = 0 for paths that have yet to begin), so a label is one value v_c = G - price * t_c for each set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from planner.compiler.exact.bound import Bound, tails
from planner.compiler.exact.order import Order
from planner.compiler.exact.points import Point


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One node's decision: how the values before it become those after it.

    `waits`: old values that the node waits for; `moves[c]`: old values that the new one continues; `joins`: the new
    value that the node's finish belongs to; `shares`: flow through the new sets, adding up to 1; `least`, `most`: what
    the shortest and the longest continuation of each set costs; `alone`, `gains`: at most what the undecided nodes add
    to the mean value over the flow, and to gains.
    """

    points: tuple[tuple[float, float], ...]
    waits: tuple[int, ...]
    moves: tuple[tuple[int, ...], ...]
    joins: int
    shares: tuple[float, ...]
    least: tuple[float, ...]
    most: tuple[float, ...]
    alone: float
    gains: float


def steps_of(order: Order, fronts: Sequence[Sequence[Point]], price: float, bound: Bound) -> list[Step]:
    shortest = [price * t for t in tails(order, [front[0][1] for front in fronts])]
    longest = [price * t for t in tails(order, [front[-1][1] for front in fronts])]
    alone = [
        max([point[0] - rate * point[1] for point in front]) for front, rate in zip(fronts, bound.node, strict=True)
    ]
    alone_left, gains_left = sum(alone), sum([front[-1][0] for front in fronts])
    sources = [node for node in order.order if not order.predecessors[node]]
    outflow = [0.0] * len(fronts)
    before: tuple[tuple[int, ...], ...] = ()
    steps = []
    for position, node in enumerate(order.order):
        alone_left -= alone[node]
        gains_left -= fronts[node][-1][0]
        _decide(outflow, order, node, bound)
        if not order.predecessors[node]:
            sources.remove(node)
        sets, origin = order.sets[position], order.origin[position]
        waits, moves, joins = _transition(order, node, before, sets)
        waiting = order.waiting[position]
        shares = [sum([outflow[m] for m in members]) / price for members in sets]
        if origin:
            moves = (*moves, (len(before),))
            waiting = (*waiting, tuple(sources))
            shares.append(1.0 - sum(shares))
        steps.append(
            Step(
                points=tuple([(point[0], price * point[1]) for point in fronts[node]]),
                waits=waits,
                moves=moves,
                joins=joins,
                shares=tuple(shares),
                least=tuple([max([shortest[n] for n in nodes], default=0.0) for nodes in waiting]),
                most=tuple([max([longest[n] for n in nodes], default=0.0) for nodes in waiting]),
                alone=alone_left,
                gains=gains_left,
            )
        )
        before = sets
    return steps


def _decide(outflow: list[float], order: Order, node: int, bound: Bound) -> None:
    """`outflow[m]`: flow from a decided node to undecided ones, or out of the DAG."""
    for m in order.predecessors[node]:
        outflow[m] -= bound.edge.get((m, node), 0.0)
    outflow[node] = bound.edge.get((node, -1), 0.0)
    for n in order.successors[node]:
        outflow[node] += bound.edge.get((node, n), 0.0)


def _transition(
    order: Order, node: int, before: Sequence[tuple[int, ...]], after: Sequence[tuple[int, ...]]
) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...], int]:
    """(waits, moves, joins) of a step; the value of paths that have yet to begin stands after those of the sets."""
    home = {member: place for place, members in enumerate(before) for member in members}
    waits = tuple(sorted({home[p] for p in order.predecessors[node]})) or (len(before),)
    moves = tuple([tuple(sorted({home[m] for m in members if m != node})) for members in after])
    return waits, moves, next(place for place, members in enumerate(after) if node in members)
