"""A DAG as a page draws it: boxes, badges and edges for templates/components/dag.html (and its small form)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from fleet.common.presentation import model_size, model_token, shortened
from planner.compiler.plan import Implementation
from planner.compiler.workflow import LlmNode, Node, Workflow
from planner.layout import NODE_HEIGHT, NODE_WIDTH, DagLayout, RoutedEdge, layout_dag

TITLE_COLUMNS = 18
DETAIL_COLUMNS = 22
# Average advance of a character of the badge's font, in SVG units; scripts measure it once the page is shown.
BADGE_CHARACTER = 6.1
THUMB_SIZE = (112.0, 34.0)
_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class DagNode:
    """One box. `badge` is `size · policy` of an LLM node with a plan; `detail` its skill, or the tool's name.

    `state` is a NodeState's value or empty; `label` is what a screen reader says; `tooltip` holds the whole title.
    """

    id: str
    x: float
    y: float
    kind: str
    title: str
    detail: str
    badge: str
    badge_width: float
    token: str
    state: str
    locked: bool
    reassigned: bool
    is_output: bool
    label: str
    name: str
    tooltip: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DagView:
    nodes: tuple[DagNode, ...]
    edges: tuple[DagEdge, ...]
    width: float
    height: float
    clickable: bool
    name: str
    node_width: int = NODE_WIDTH
    node_height: int = NODE_HEIGHT


@dataclass(frozen=True, slots=True, kw_only=True)
class DagEdge:
    """`active`: output committed, target dispatched; `done`: both committed."""

    source: str
    target: str
    path: str
    active: bool
    done: bool


def badge_text(implementation: Implementation) -> str:
    """`9B · cross_check@27B`."""
    verifier = f"@{model_size(implementation.verifier_model)}" if implementation.verifier_model else ""
    return f"{model_size(implementation.model)} · {implementation.policy}{verifier}"


def dag_view(
    workflow: Workflow,
    *,
    assignment: Mapping[str, Implementation] | None = None,
    states: Mapping[str, str] = _NOTHING,
    locked: Collection[str] = (),
    reassigned: Collection[str] = (),
    clickable: bool = True,
) -> DagView:
    """The whole DAG, waiting nodes included. `assignment` gives badges, `states` the colours, by node id.

    `locked` nodes are committed to their binding; `reassigned` ones were changed by a switch.
    """
    layout = layout_dag(workflow)
    given = assignment or {}
    nodes = tuple(
        _node(
            workflow.by_id[place.id],
            x=place.x,
            y=place.y,
            implementation=given.get(place.id),
            state=states.get(place.id, ""),
            locked=place.id in locked,
            reassigned=place.id in reassigned,
            is_output=place.id == workflow.output,
        )
        for place in layout.nodes
    )
    edges = tuple(_edge(edge, states) for edge in layout.edges)
    return DagView(
        nodes=nodes, edges=edges, width=layout.width, height=layout.height, clickable=clickable, name=workflow.name
    )


def _node(
    node: Node,
    *,
    x: float,
    y: float,
    implementation: Implementation | None,
    state: str,
    locked: bool,
    reassigned: bool,
    is_output: bool,
) -> DagNode:
    badge = badge_text(implementation) if implementation else ""
    name = node.title or node.id
    detail = node.skill if isinstance(node, LlmNode) else node.tool
    return DagNode(
        id=node.id,
        x=x,
        y=y,
        kind="llm" if isinstance(node, LlmNode) else "tool",
        title=shortened(name, TITLE_COLUMNS),
        detail=shortened(detail, DETAIL_COLUMNS),
        badge=badge,
        badge_width=len(badge) * BADGE_CHARACTER + 12 if badge else 0,
        token=model_token(implementation.model) if implementation else "none",
        state=state,
        locked=locked,
        reassigned=reassigned,
        is_output=is_output,
        label=_label(name, detail, badge, state, locked, reassigned, is_output),
        name=name,
        tooltip=_tooltip(node, name, detail, implementation),
    )


def _label(name: str, detail: str, badge: str, state: str, locked: bool, reassigned: bool, is_output: bool) -> str:
    parts = [
        name,
        badge or detail,
        state,
        "committed to its binding" if locked else "",
        "reassigned by a switch" if reassigned else "",
        "output node" if is_output else "",
    ]
    return ", ".join(part for part in parts if part)


def _tooltip(node: Node, name: str, detail: str, implementation: Implementation | None) -> str:
    kind = f"LLM node, skill {detail}" if isinstance(node, LlmNode) else f"tool {detail}"
    lines = [name] if name == node.id else [name, node.id]
    lines.append(kind)
    if implementation:
        lines.append(f"{implementation.label} on {implementation.backend}")
    return "\n".join(lines)


def _edge(edge: RoutedEdge, states: Mapping[str, str]) -> DagEdge:
    source, target = states.get(edge.source), states.get(edge.target)
    return DagEdge(
        source=edge.source,
        target=edge.target,
        path=edge.path,
        active=source == "committed" and target == "dispatched",
        done=source == "committed" and target == "committed",
    )


# --- The small form, for lists ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ThumbBox:
    x: float
    y: float
    size: float
    is_tool: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DagThumb:
    """The shape of a DAG without words; `path` holds all edges as straight lines."""

    boxes: tuple[ThumbBox, ...]
    path: str
    width: float = THUMB_SIZE[0]
    height: float = THUMB_SIZE[1]


def dag_thumb(workflow: Workflow) -> DagThumb:
    layout = layout_dag(workflow)
    centres = _thumb_centres(layout)
    size = 5.0 if len(workflow.nodes) <= 40 else 2.5
    boxes = tuple(
        ThumbBox(x=x - size / 2, y=y - size / 2, size=size, is_tool=not isinstance(workflow.by_id[node_id], LlmNode))
        for node_id, (x, y) in centres.items()
    )
    lines = (
        f"M{centres[a][0]:.1f} {centres[a][1]:.1f}L{centres[b][0]:.1f} {centres[b][1]:.1f}" for a, b in workflow.edges
    )
    return DagThumb(boxes=boxes, path="".join(lines))


def _thumb_centres(layout: DagLayout) -> dict[str, tuple[float, float]]:
    """Columns at most 16 and rows at most 9 units apart, centred."""
    width, height = THUMB_SIZE
    xs = [node.x for node in layout.nodes]
    ys = [node.y for node in layout.nodes]
    span_x, span_y = max(xs) - min(xs), max(ys) - min(ys)
    scale_x = min((width - 8) / span_x, 0.09) if span_x else 0.0
    scale_y = min((height - 8) / span_y, 0.13) if span_y else 0.0
    top = (height - span_y * scale_y) / 2
    return {node.id: (4 + (node.x - min(xs)) * scale_x, top + (node.y - min(ys)) * scale_y) for node in layout.nodes}
