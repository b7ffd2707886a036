"""Graph facts of a document that may still be wrong: cycles and sinks (a Workflow value has neither problem)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Edge = tuple[str, str]


def find_cycles(ids: Sequence[str], edges: Iterable[Edge]) -> tuple[tuple[str, ...], ...]:
    """Cycles that share no node, each as `(a, b, a)`; empty exactly when the graph has no cycle."""
    successors: dict[str, list[str]] = {node: [] for node in ids}
    for source, target in edges:
        successors[source].append(target)
    cycles: list[tuple[str, ...]] = []
    done: set[str] = set()
    for start in ids:
        cycle = _cycle_from(start, successors, done)
        while cycle:
            cycles.append(cycle)
            done.update(cycle)
            cycle = _cycle_from(start, successors, done)
    return tuple(cycles)


def _cycle_from(start: str, successors: dict[str, list[str]], done: set[str]) -> tuple[str, ...] | None:
    """Depth-first from `start`; nodes that lie on no cycle reachable here end up in `done`."""
    if start in done:
        return None
    path, on_path = [start], {start}
    iterators = [iter(successors[start])]
    while iterators:
        following = next(iterators[-1], None)
        if following is None:
            finished = path.pop()
            on_path.discard(finished)
            done.add(finished)
            iterators.pop()
        elif following in on_path:
            return (*path[path.index(following) :], following)
        elif following not in done:
            path.append(following)
            on_path.add(following)
            iterators.append(iter(successors[following]))
    return None


def sinks(ids: Iterable[str], edges: Iterable[Edge]) -> tuple[str, ...]:
    """The nodes without successors, in the order given."""
    sources = {source for source, _ in edges}
    return tuple(node for node in ids if node not in sources)


def ancestors(node: str, edges: Iterable[Edge]) -> frozenset[str]:
    """Every node from which `node` can be reached, without itself (unless it lies on a cycle)."""
    predecessors: dict[str, list[str]] = {}
    for source, target in edges:
        predecessors.setdefault(target, []).append(source)
    found: set[str] = set()
    waiting = [node]
    while waiting:
        for before in predecessors.get(waiting.pop(), ()):
            if before not in found:
                found.add(before)
                waiting.append(before)
    return frozenset(found)


def cycle_text(cycle: Sequence[str]) -> str:
    """`a -> b -> a`; a long cycle is shortened in the middle."""
    shown = cycle if len(cycle) <= 12 else (*cycle[:6], "...", *cycle[-5:])
    return " -> ".join(shown)
