"""Where the nodes of a DAG stand and how its edges run, left to right, for the pages' SVG.

Layers are longest paths, sources pulled towards what reads them; igraph's Sugiyama method orders the nodes of each
layer. Long edges pass through way points of their own, so they run around nodes and not under them. Heights come from
a few sweeps that move every vertex towards its neighbours, in that order and never closer than their boxes allow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

import igraph

from planner.compiler.workflow import Workflow

NODE_WIDTH = 184
NODE_HEIGHT = 58
ROW_GAP = 18
COLUMN_GAP = 64
MARGIN = 16
# A dense graph has edges across nearly all layers; past this many way points long edges are drawn straight.
MAX_WAY_POINTS = 3000
_SWEEPS = 60
_RELAXATIONS = 12
# Rows between two nodes, a node and a way point, two way points: a way point is a line, not a box.
_APART = (1.0, 0.62, 0.22)

Point = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedNode:
    """Upper left corner of a node's box, in SVG units."""

    id: str
    x: float
    y: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedEdge:
    """`path` is the `d` attribute of an SVG path from the source's right side to the target's left side."""

    source: str
    target: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DagLayout:
    """Nodes in file order. Boxes are NODE_WIDTH x NODE_HEIGHT and never overlap."""

    nodes: tuple[PlacedNode, ...]
    edges: tuple[RoutedEdge, ...]
    width: float
    height: float


def layout_dag(workflow: Workflow) -> DagLayout:
    """The layout of one workflow; the same workflow always gets the same one."""
    ids = [node.id for node in workflow.nodes]
    layers = _layers(workflow)
    edges = list(dict.fromkeys(workflow.edges))
    routes = _routes(edges, layers, workflow.index)
    columns = [layers[node_id] for node_id in ids] + [layer for route in routes.values() for _, layer in route]
    rows = _rows(columns, edges, routes, workflow.index)
    centres = [_centre(column, row) for column, row in zip(columns, rows, strict=True)]
    nodes = tuple(
        PlacedNode(id=node_id, x=x - NODE_WIDTH / 2, y=y - NODE_HEIGHT / 2)
        for node_id, (x, y) in zip(ids, centres, strict=False)
    )
    return DagLayout(
        nodes=nodes,
        edges=tuple(_routed(edge, routes[edge], centres, workflow.index) for edge in edges),
        width=max(x for x, _ in centres) + NODE_WIDTH / 2 + MARGIN,
        height=max(y for _, y in centres) + NODE_HEIGHT / 2 + MARGIN,
    )


Edge = tuple[str, str]
Route = tuple[tuple[int, int], ...]
"""(vertex of the drawn graph, its layer) of every way point of an edge."""


def _layers(workflow: Workflow) -> dict[str, int]:
    layers: dict[str, int] = {}
    for node_id in workflow.topological_order:
        before = (layers[other] + 1 for other in workflow.predecessors[node_id])
        layers[node_id] = max(before, default=0)
    for node_id in workflow.topological_order:
        after = workflow.successors[node_id]
        if after and not workflow.predecessors[node_id]:
            layers[node_id] = min(layers[other] for other in after) - 1
    return layers


def _routes(edges: Sequence[Edge], layers: Mapping[str, int], index: Mapping[str, int]) -> dict[Edge, Route]:
    spans = {edge: range(layers[edge[0]] + 1, layers[edge[1]]) for edge in edges}
    if sum(len(span) for span in spans.values()) > MAX_WAY_POINTS:
        return dict.fromkeys(edges, ())
    routes: dict[Edge, Route] = {}
    vertex = len(index)
    for edge, span in spans.items():
        routes[edge] = tuple((vertex + step, layer) for step, layer in enumerate(span))
        vertex += len(span)
    return routes


def _rows(
    columns: Sequence[int], edges: Sequence[Edge], routes: Mapping[Edge, Route], index: Mapping[str, int]
) -> list[float]:
    """Row of every vertex (nodes, then way points), from 0; two nodes of one column are at least one row apart."""
    hops: list[tuple[int, int]] = []
    for edge in edges:
        stops = [index[edge[0]], *(vertex for vertex, _ in routes[edge]), index[edge[1]]]
        hops.extend(pairwise(stops))
    # A long edge without way points would make igraph add its own: such an edge orders nothing.
    short = [(a, b) for a, b in hops if columns[b] - columns[a] == 1]
    rows = _relaxed(_ordered(columns, short), hops, len(index))
    top = min(rows)
    return [row - top for row in rows]


def _ordered(columns: Sequence[int], hops: Sequence[tuple[int, int]]) -> list[list[int]]:
    """The vertices of each column from top to bottom, with few crossings."""
    graph = igraph.Graph(n=len(columns), edges=hops, directed=True)
    found = graph.layout_sugiyama(layers=list(columns), hgap=1, vgap=1, maxiter=_SWEEPS).coords
    by_column: list[list[int]] = [[] for _ in range(max(columns) + 1)]
    for vertex, column in enumerate(columns):
        by_column[column].append(vertex)
    for vertices in by_column:
        vertices.sort(key=lambda vertex: (found[vertex][0], vertex))
    return by_column


def _relaxed(by_column: Sequence[Sequence[int]], hops: Sequence[tuple[int, int]], nodes: int) -> list[float]:
    """Rows near the mean of each vertex's neighbours; vertices from `nodes` on are way points and stand closer."""
    neighbours: dict[int, list[int]] = defaultdict(list)
    for a, b in hops:
        neighbours[a].append(b)
        neighbours[b].append(a)
    offsets = [_offsets(vertices, nodes) for vertices in by_column]
    rows = [0.0] * sum(len(vertices) for vertices in by_column)
    for vertices, places in zip(by_column, offsets, strict=True):
        for vertex, place in zip(vertices, places, strict=True):
            rows[vertex] = place - places[-1] / 2
    columns = list(zip(by_column, offsets, strict=True))
    for sweep in range(_RELAXATIONS):
        for vertices, places in columns if sweep % 2 else reversed(columns):
            wanted = [fmean(rows[other] for other in neighbours[v]) if neighbours[v] else rows[v] for v in vertices]
            shifted = _monotone([want - place for want, place in zip(wanted, places, strict=True)])
            for vertex, place, shift in zip(vertices, places, shifted, strict=True):
                rows[vertex] = place + shift
    return rows


def _offsets(vertices: Sequence[int], nodes: int) -> list[float]:
    """The tightest rows of one column, from 0."""
    places = [0.0]
    for above, below in pairwise(vertices):
        places.append(places[-1] + _APART[(above >= nodes) + (below >= nodes)])
    return places


def _monotone(values: Sequence[float]) -> list[float]:
    """The closest sequence that never falls (least squares, by pooling adjacent violators)."""
    pools: list[tuple[float, int]] = []
    for value in values:
        total, count = value, 1
        while pools and pools[-1][0] / pools[-1][1] > total / count:
            above, size = pools.pop()
            total, count = total + above, count + size
        pools.append((total, count))
    return [total / count for total, count in pools for _ in range(count)]


def _centre(column: int, row: float) -> Point:
    return (
        MARGIN + NODE_WIDTH / 2 + column * (NODE_WIDTH + COLUMN_GAP),
        round(MARGIN + NODE_HEIGHT / 2 + row * (NODE_HEIGHT + ROW_GAP), 1),
    )


def _routed(edge: Edge, route: Route, centres: Sequence[Point], index: Mapping[str, int]) -> RoutedEdge:
    half = NODE_WIDTH / 2
    start_x, start_y = centres[index[edge[0]]]
    end_x, end_y = centres[index[edge[1]]]
    path = [f"M{start_x + half:g} {start_y:g}"]
    x, y = start_x + half, start_y
    for vertex, _ in route:
        way_x, way_y = centres[vertex]
        path.append(_curve((x, y), (way_x - half, way_y)))
        path.append(f"H{way_x + half:g}")
        x, y = way_x + half, way_y
    path.append(_curve((x, y), (end_x - half, end_y)))
    return RoutedEdge(source=edge[0], target=edge[1], path="".join(path))


def _curve(start: Point, end: Point) -> str:
    middle = (start[0] + end[0]) / 2
    return f"C{middle:g} {start[1]:g} {middle:g} {end[1]:g} {end[0]:g} {end[1]:g}"
