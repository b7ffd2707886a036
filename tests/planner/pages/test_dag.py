from __future__ import annotations

from django.template.loader import render_to_string

from planner.compiler.plan import Implementation
from planner.compiler.workflow import LlmNode, Workflow
from planner.presenters.dag import TITLE_COLUMNS, DagNode, badge_text, dag_thumb, dag_view
from tests.planner.pages.samples import HOSTILE, chain, fork_join

PLAN = {
    "source": Implementation(model="qwen3.5-9b", backend="h200-9b", policy="self_check"),
    "left": Implementation(
        model="qwen3.5-4b",
        backend="h200-4b",
        policy="cross_check",
        verifier_model="qwen3.5-27b",
        verifier_backend="h200-27b",
    ),
}


def _node(nodes: tuple[DagNode, ...], node_id: str) -> DagNode:
    return next(node for node in nodes if node.id == node_id)


def test_a_badge_names_size_policy_and_the_verifier() -> None:
    assert badge_text(PLAN["source"]) == "9B · self_check"
    assert badge_text(PLAN["left"]) == "4B · cross_check@27B"


def test_a_node_carries_plan_state_and_marks() -> None:
    view = dag_view(
        fork_join(), assignment=PLAN, states={"source": "committed"}, locked={"source"}, reassigned={"left"}
    )

    source, left, right, end = (_node(view.nodes, name) for name in ("source", "left", "right", "end"))
    assert (source.token, source.state, source.locked) == ("9b", "committed", True)
    assert (left.token, left.reassigned, left.locked) == ("4b", True, False)
    assert (right.kind, right.detail, right.badge) == ("tool", "template", "")
    assert end.is_output
    assert not source.is_output
    assert source.label == "source, 9B · self_check, committed, committed to its binding"


def test_edges_say_where_the_run_is() -> None:
    states = {"source": "committed", "left": "dispatched", "right": "committed", "end": "waiting"}
    edges = {(edge.source, edge.target): edge for edge in dag_view(fork_join(), states=states).edges}

    assert edges["source", "left"].active
    assert edges["source", "right"].done
    assert not edges["right", "end"].active
    assert not edges["right", "end"].done


def test_long_titles_are_cut_and_kept_whole_in_the_tooltip() -> None:
    title = "A very long title that no box can hold"
    workflow = Workflow(name="w", nodes=(LlmNode(id="n", skill="s", prompt="p", title=title),), edges=(), output="n")

    (node,) = dag_view(workflow).nodes

    assert len(node.title) <= TITLE_COLUMNS
    assert node.title.endswith("…")
    assert title in node.tooltip


def test_the_drawing_escapes_what_people_wrote() -> None:
    workflow = Workflow(
        name=HOSTILE, nodes=(LlmNode(id="n", skill="s", prompt="p", title=HOSTILE),), edges=(), output="n"
    )

    html = render_to_string("components/dag.html", {"dag": dag_view(workflow)})

    assert "<img" not in html
    assert "</script" not in html
    assert "&lt;/script&gt;" in html


def test_every_node_is_reachable_by_keyboard_and_says_what_it_is() -> None:
    html = render_to_string("components/dag.html", {"dag": dag_view(chain(3))})

    assert html.count('data-node="') == 3
    assert html.count('role="button" aria-pressed="false" tabindex="0"') == 3
    assert 'aria-label="Step 0, code"' in html


def test_a_preview_is_not_clickable() -> None:
    html = render_to_string("components/dag.html", {"dag": dag_view(chain(3), clickable=False)})

    assert "data-clickable" not in html
    assert html.count('role="img" tabindex="0"') == 3


def test_the_small_form_shows_every_node_inside_its_frame() -> None:
    thumb = dag_thumb(fork_join())

    assert len(thumb.boxes) == 4
    assert sum(box.is_tool for box in thumb.boxes) == 1
    assert all(0 <= box.x <= thumb.width - box.size and 0 <= box.y <= thumb.height - box.size for box in thumb.boxes)
    assert thumb.path.count("M") == 4
