from __future__ import annotations

import random
import re
import time

from hypothesis import given
from hypothesis import strategies as st

from planner.compiler.workflow import LlmNode, Workflow
from planner.layout import COLUMN_GAP, MAX_WAY_POINTS, NODE_HEIGHT, NODE_WIDTH, DagLayout, layout_dag
from tests.planner.pages.samples import chain, fork_join
from tests.sampling import sampled


def _workflow(count: int, edges: list[tuple[int, int]]) -> Workflow:
    return Workflow(
        name="w",
        nodes=tuple(LlmNode(id=f"n{i}", skill="s", prompt="p") for i in range(count)),
        edges=tuple((f"n{a}", f"n{b}") for a, b in edges),
        output=f"n{count - 1}",
    )


@st.composite
def dags(draw: st.DrawFn) -> Workflow:
    count = draw(st.integers(1, 14))
    pairs = [(a, b) for b in range(count) for a in range(b)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=30)) if pairs else []
    return _workflow(count, edges)


def _overlapping(layout: DagLayout) -> list[tuple[str, str]]:
    nodes = layout.nodes
    return [
        (a.id, b.id)
        for i, a in enumerate(nodes)
        for b in nodes[i + 1 :]
        if abs(a.x - b.x) < NODE_WIDTH and abs(a.y - b.y) < NODE_HEIGHT
    ]


@given(dags())
@sampled(60)
def test_nodes_never_overlap_and_edges_run_left_to_right(workflow: Workflow) -> None:
    layout = layout_dag(workflow)

    x = {node.id: node.x for node in layout.nodes}
    assert _overlapping(layout) == []
    assert all(x[edge.target] - x[edge.source] >= NODE_WIDTH + COLUMN_GAP for edge in layout.edges)
    assert {(edge.source, edge.target) for edge in layout.edges} == set(workflow.edges)


@given(dags())
@sampled(40)
def test_everything_lies_inside_the_drawing(workflow: Workflow) -> None:
    layout = layout_dag(workflow)

    assert all(0 <= node.x <= layout.width - NODE_WIDTH for node in layout.nodes)
    assert all(0 <= node.y <= layout.height - NODE_HEIGHT for node in layout.nodes)
    numbers = [float(text) for edge in layout.edges for text in re.findall(r"-?[\d.]+(?:e-?\d+)?", edge.path)]
    assert all(0 <= number <= max(layout.width, layout.height) for number in numbers)


@given(dags())
@sampled(20)
def test_the_same_workflow_has_the_same_layout(workflow: Workflow) -> None:
    assert layout_dag(workflow) == layout_dag(workflow)


def test_an_edge_starts_at_its_source_and_ends_at_its_target() -> None:
    layout = layout_dag(chain(2))

    first, second = layout.nodes
    numbers = [float(text) for text in re.findall(r"[\d.]+", layout.edges[0].path)]
    assert numbers[:2] == [first.x + NODE_WIDTH, first.y + NODE_HEIGHT / 2]
    assert numbers[-2:] == [second.x, second.y + NODE_HEIGHT / 2]


def test_branches_stand_side_by_side() -> None:
    place = {node.id: node for node in layout_dag(fork_join()).nodes}

    assert place["left"].x == place["right"].x
    assert place["left"].y != place["right"].y


def test_a_source_stands_next_to_what_reads_it() -> None:
    # n3 has no predecessors and feeds the last node of a chain only.
    place = {node.id: node.x for node in layout_dag(_workflow(5, [(0, 1), (1, 2), (2, 4), (3, 4)])).nodes}

    assert place["n3"] == place["n2"]


def test_isolated_nodes_are_drawn() -> None:
    layout = layout_dag(_workflow(40, []))

    assert len(layout.nodes) == 40
    assert _overlapping(layout) == []


def test_a_long_edge_passes_around_the_nodes_between() -> None:
    layout = layout_dag(_workflow(4, [(0, 1), (1, 2), (2, 3), (0, 3)]))

    long = next(edge for edge in layout.edges if (edge.source, edge.target) == ("n0", "n3"))
    between = [node for node in layout.nodes if node.id in ("n1", "n2")]
    runs = [float(y) for y in re.findall(r"([\d.]+)H", long.path)]
    assert len(runs) == 2
    assert all(not node.y <= y <= node.y + NODE_HEIGHT for node, y in zip(between, runs, strict=True))


def test_a_dense_graph_gives_up_way_points_instead_of_time() -> None:
    count = 60
    edges = [(a, b) for b in range(count) for a in range(b)]
    assert sum(b - a - 1 for a, b in edges) > MAX_WAY_POINTS

    layout = layout_dag(_workflow(count, edges))

    assert _overlapping(layout) == []
    assert all("H" not in edge.path for edge in layout.edges)


def test_two_hundred_nodes_take_well_under_a_second_of_processor_time() -> None:
    choose = random.Random(1)
    edges = sorted({(choose.randrange(max(0, b - 30), b), b) for b in range(1, 200) for _ in range(2)})
    workflow = _workflow(200, edges)

    started = time.process_time()
    layout_dag(workflow)
    assert time.process_time() - started < 0.9
