"""Plans and their explanations as tables for people, for `manage.py compile`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.markup import escape
from rich.table import Table

from planner.compiler.explain import Explanation, NodeExplanation
from planner.compiler.pareto import Front
from planner.compiler.plan import Bundle
from planner.compiler.sensitivity import End, Range
from planner.compiler.stability import Stability
from planner.compiler.workflow import Workflow

LEFT = frozenset({"dominant", "solver", "node", "skill", "plan", "next best", "parameter", "takes over", "cell"})
POINTS = 10


def of_bundle(workflow: Workflow, bundle: Bundle) -> Iterator[Table]:
    """The variants with their annotations, and who serves which node."""
    table = _table(
        f"{workflow.name}: {len(workflow.nodes)} nodes, {len(bundle.variants)} variants",
        ("#", "level", "dominant", "quality", "makespan", "work", "cost", "solver", "solve"),
        caption="quality: estimated, a surrogate; makespan and work in seconds, without queueing; solve in ms",
    )
    for index, plan in enumerate(bundle.variants):
        table.add_row(
            str(index),
            f"{plan.level:g}",
            plan.dominant_model or "-",
            f"{plan.estimated_quality:.3f}",
            f"{plan.makespan_s:.2f}",
            f"{plan.total_demand:.1f}",
            f"{plan.cost:.2f}",
            plan.solver if not plan.gap else f"{plan.solver} (gap {plan.gap:.2%})",
            f"{plan.solve_s * 1000:.1f}",
        )
    yield table
    names = tuple(f"variant {index}" for index in range(len(bundle.variants)))
    table = _table("model.policy per node", ("node", "skill", *names))
    for node in workflow.llm_nodes:
        table.add_row(node.id, node.skill, *(plan.assignment[node.id].label for plan in bundle.variants))
    yield table


def of_explanation(explanation: Explanation, ranges: Sequence[Range], fronts: Sequence[Front]) -> Iterator[Table]:
    yield _prices(explanation)
    yield _verification(explanation)
    if ranges:
        yield _ranges(ranges)
    yield from map(_front, fronts)


def _prices(explanation: Explanation) -> Table:
    terms = tuple(explanation.terms)
    table = _table(
        f"variant 0, objective {explanation.objective:.4f}: what the next best implementation of each node costs",
        ("node", "plan", "slack", "next best", "objective", *terms, "makespan", "est. quality"),
        caption=f"changes against the plan; slack and makespan in seconds; * on the critical path: "
        f"{' > '.join(explanation.critical_path)}",
    )
    for node in explanation.nodes:
        table.add_row(*_price(node, terms))
    return table


def _price(node: NodeExplanation, terms: Sequence[str]) -> list[str]:
    name = f"{node.node} *" if node.critical else node.node
    row = [name, node.chosen.label, f"{node.slack_s:.2f}"]
    best = node.best
    if best is None:
        return [*row, "no other is legal"]
    changes = [_signed(best.terms[term]) for term in terms]
    label = best.implementation.label + (f" (breaks {', '.join(best.breaks)})" if best.breaks else "")
    return [*row, label, _signed(best.objective), *changes, _seconds(best.makespan_s), _signed(best.estimated_quality)]


def _verification(explanation: Explanation) -> Table:
    whole = explanation.verification
    table = _table(
        "what verification adds",
        ("node", "plan", "node seconds", "makespan", "est. quality", "cost", "objective"),
        caption="with it minus without it, everything else as planned; slack takes up seconds of a branch",
    )
    for node in explanation.nodes:
        added = node.verification
        if added is not None:
            seconds = (_seconds(added.node_s), _seconds(added.makespan_s))
            rest = (_signed(added.estimated_quality), f"{added.cost:+.2f}", _signed(added.objective))
            table.add_row(node.node, node.chosen.label, *seconds, *rest)
    rest = (_signed(whole.estimated_quality), f"{whole.cost:+.2f}", _signed(whole.objective))
    table.add_row("all together", f"{len(whole.nodes)} nodes", "", _seconds(whole.makespan_s), *rest)
    return table


def _ranges(ranges: Sequence[Range]) -> Table:
    table = _table(
        "where the plan stays optimal, everything else as it is", ("parameter", "value", "from", "to", "takes over")
    )
    for found in ranges:
        beyond = "; ".join(
            f"{side}: {', '.join(f'{node} {other.label}' for node, other in end.changes.items())}"
            for side, end in (("below", found.low), ("above", found.high))
            if end.changes
        )
        table.add_row(found.parameter, f"{found.value:g}", _end(found.low), _end(found.high), beyond)
    return table


def _end(end: End) -> str:
    return f"{end.at:.4g}" + (" (end of the span)" if end.open else "" if end.proved else " (not proved)")


def _front(front: Front) -> Table:
    shown = front.to_json(POINTS)
    guarantee = "exact" if front.exact else f"within a factor {front.factor:.4f}"
    table = _table(
        f"front of {front.axis} and estimated quality: {shown['total']} plans, {guarantee}",
        ("", "makespan", "cost", "est. quality"),
        caption="* variant 0"
        if shown["current"] is not None
        else "variant 0 is not on it: the objective has more terms",
    )
    for position, point in enumerate(shown["points"]):
        mark = "*" if position == shown["current"] else ""
        quality = f"{point['estimated_quality']:.4f}"
        table.add_row(mark, f"{point['makespan_s']:.2f}", f"{point['cost']:.2f}", quality)
    return table


def of_stability(found: Stability) -> Table:
    table = _table(
        f"profiles redrawn from their intervals {found.draws} times: the plan stays in {found.unchanged.value:.0%}",
        ("node", "plan", "stays", "next best", "instead"),
        caption=f"mean regret {found.regret:.5f}; estimated quality {found.quality_p05:.3f} to {found.quality_p95:.3f} "
        "(5% to 95%)",
    )
    for node in found.nodes:
        other = "-" if node.other is None else node.other.label
        share = "-" if node.other is None else f"{node.other_share.value:.0%}"
        table.add_row(node.node, node.planned.label, f"{node.unchanged.value:.0%}", other, share)
    return table


def _signed(change: float) -> str:
    return f"{round(change, 4) + 0.0:+.4f}"


def _seconds(change: float) -> str:
    """Without a minus before 0."""
    return f"{round(change, 2) + 0.0:+.2f}"


def _table(title: str, columns: Sequence[str], caption: str | None = None) -> Table:
    # A workflow's name may hold what rich takes for markup; node ids and the names of a fleet cannot.
    table = Table(title=escape(title), caption=caption, box=box.SIMPLE_HEAD, pad_edge=False, min_width=len(title))
    for name in columns:
        left = name in LEFT or name.startswith("variant ")
        table.add_column(name, justify="left" if left else "right", overflow="fold")
    return table
