from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from planner.importers.graph import ancestors, cycle_text, find_cycles, sinks

IDS = ("a", "b", "c", "d", "e")
edge_sets = st.sets(st.tuples(st.sampled_from(IDS), st.sampled_from(IDS)))


def _is_acyclic(edges: set[tuple[str, str]]) -> bool:
    left = set(IDS)
    while True:
        free = {node for node in left if not any(target == node and source in left for source, target in edges)}
        if not free:
            return not left
        left -= free


@given(edge_sets)
def test_cycles_are_found_exactly_when_there_are_some(edges: set[tuple[str, str]]) -> None:
    cycles = find_cycles(IDS, edges)
    assert bool(cycles) != _is_acyclic(edges)
    for cycle in cycles:
        assert cycle[0] == cycle[-1]
        assert all(pair in edges for pair in pairwise(cycle))
    inner = [node for cycle in cycles for node in cycle[1:]]
    assert len(inner) == len(set(inner))
    assert _is_acyclic({(a, b) for a, b in edges if a not in inner and b not in inner})


@given(edge_sets)
def test_ancestors_are_the_transitive_predecessors(edges: set[tuple[str, str]]) -> None:
    closure = set(edges)
    for middle in IDS:
        closure |= {(a, b) for a in IDS for b in IDS if (a, middle) in closure and (middle, b) in closure}
    for node in IDS:
        assert ancestors(node, edges) == {source for source, target in closure if target == node}


def test_sinks_keep_the_given_order() -> None:
    assert sinks(["c", "a", "b"], [("a", "b")]) == ("c", "b")


def test_long_cycles_are_shortened_in_the_middle() -> None:
    assert cycle_text(("a", "b", "a")) == "a -> b -> a"
    assert cycle_text(tuple(map(str, range(40)))) == "0 -> 1 -> 2 -> 3 -> 4 -> 5 -> ... -> 35 -> 36 -> 37 -> 38 -> 39"
