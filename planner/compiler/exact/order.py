"""In which order the search decides nodes, and what it has to remember in between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from planner.compiler.workflow import Workflow

Sets = dict[int, tuple[int, ...]]
"""Decided nodes by the undecided ones that wait for them, as bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Nodes by position in an order of decision, and per step the sets whose times the undecided nodes wait for.

    `sets[k]` holds the sets after step k as tuples of node positions, `waiting[k]` the undecided nodes that wait for
    each of them; the last set, where its nodes are waited for by none, holds those that nothing waits for. `origin[k]`:
    an undecided node waits for nothing, so a path may start later.
    """

    order: tuple[int, ...]
    predecessors: tuple[tuple[int, ...], ...]
    successors: tuple[tuple[int, ...], ...]
    sets: tuple[tuple[tuple[int, ...], ...], ...]
    waiting: tuple[tuple[tuple[int, ...], ...], ...]
    origin: tuple[bool, ...]


class Orders:
    """A workflow's orders of decision, made when they are needed."""

    def __init__(self, workflow: Workflow) -> None:
        self._workflow = workflow

    @cached_property
    def forward(self) -> Order:
        return decision_order(self._workflow)

    @cached_property
    def backward(self) -> Order:
        return decision_order(self._workflow, backward=True)


def decision_order(workflow: Workflow, *, backward: bool = False) -> Order:
    """A topological order that keeps few sets open: at every step the ready node that leaves the fewest.

    `backward`: of the DAG with its edges turned round, whose longest paths are the same.
    """
    index = workflow.index
    before = [tuple([index[p] for p in workflow.predecessors[node.id]]) for node in workflow.nodes]
    after = [tuple([index[s] for s in workflow.successors[node.id]]) for node in workflow.nodes]
    if backward:
        before, after = after, before
    waiters = [sum(1 << s for s in successors) for successors in after]
    missing = [len(p) for p in before]
    ready = [i for i, count in enumerate(missing) if count == 0]
    sources = len(ready)
    undecided = (1 << len(before)) - 1
    open_sets: Sets = {}
    members: dict[int, tuple[int, ...]] = {}
    decided: list[int] = []
    sets: list[tuple[tuple[int, ...], ...]] = []
    waiting: list[tuple[tuple[int, ...], ...]] = []
    origin: list[bool] = []
    while ready:
        node = _fewest_open(ready, open_sets, before, waiters, undecided)
        ready.remove(node)
        decided.append(node)
        sources -= not before[node]
        undecided &= ~(1 << node)
        open_sets = _without(open_sets, 1 << node)
        waiting_for_it = waiters[node] & undecided
        open_sets[waiting_for_it] = (*open_sets.get(waiting_for_it, ()), node)
        for successor in after[node]:
            missing[successor] -= 1
            if missing[successor] == 0:
                ready.append(successor)
        masks = [mask for mask in open_sets if mask] + ([0] if 0 in open_sets else [])
        members = {mask: members.get(mask) or _members(mask) for mask in masks}
        sets.append(tuple([open_sets[mask] for mask in masks]))
        waiting.append(tuple(members.values()))
        origin.append(sources > 0)
    return Order(
        order=tuple(decided),
        predecessors=tuple(before),
        successors=tuple(after),
        sets=tuple(sets),
        waiting=tuple(waiting),
        origin=tuple(origin),
    )


def _fewest_open(
    ready: Sequence[int],
    open_sets: Sets,
    before: Sequence[Sequence[int]],
    waiters: Sequence[int],
    undecided: int,
) -> int:
    """The ready node after which the fewest sets are open (ties: file order)."""

    def opened(node: int) -> tuple[int, int]:
        bit, own = 1 << node, waiters[node] & undecided
        # Only sets that wait for the node change: each becomes one with the set that waits for the same others.
        joined = sum([mask ^ bit in open_sets for mask in {waiters[p] & undecided for p in before[node]}])
        return (own not in open_sets and own | bit not in open_sets) - joined, node

    return ready[0] if len(ready) == 1 else min(ready, key=opened)


def _without(open_sets: Sets, bit: int) -> Sets:
    """The sets when one more node is decided: those that waited for the same others become one."""
    found: Sets = {}
    for mask, members in open_sets.items():
        left = mask & ~bit
        found[left] = found[left] + members if left in found else members
    return found


def _members(mask: int) -> tuple[int, ...]:
    found = []
    while mask:
        lowest = mask & -mask
        found.append(lowest.bit_length() - 1)
        mask ^= lowest
    return tuple(found)
