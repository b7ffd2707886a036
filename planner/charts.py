"""The planner's charts: variants by latency and quality, demand, fronts over all plans, profiles, vulnerabilities."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fleet.common.charts import Chart, ChartTable, label, labels, token
from fleet.common.presentation import compact, model_size, model_token, percent, quality, seconds
from planner.compiler.pareto import Axis, Front, ParetoPoint
from planner.compiler.plan import Bundle, Implementation, Plan
from planner.compiler.profile import PairProfile, ProfileSet
from planner.compiler.vulnerability import FAN_INS, ROLES, VulnerabilityCell
from planner.presenters.plans import level_word, shares, variant_name

HEAT = [[step / 4, token(f"heat-{step}")] for step in range(5)]
FRONT_POINTS = 120
LEAST_FACTOR = 0.001
"""A proved factor below this says nothing."""
WIDE = 50.0
"""Qualities whose highest is more than this many times the lowest are drawn on a logarithmic scale."""
_FAN_IN_WORDS = {"0": "no predecessor", "1-2": "1–2 predecessors", "3+": "3 or more"}


def pareto_chart(bundle: Bundle) -> Chart:
    """Predicted latency against estimated quality, one point a variant, coloured by its dominant model class."""
    plans = bundle.variants
    names = [variant_name(index) for index in range(len(plans))]
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines+markers+text",
        "x": [plan.makespan_s for plan in plans],
        "y": [plan.estimated_quality for plan in plans],
        "text": names,
        "textposition": ["top left" if index % 2 == 0 else "bottom right" for index in range(len(plans))],
        "textfont": {"size": 12, "color": token("text")},
        "line": {"color": token("border-strong"), "width": 1.2, "dash": "dot"},
        "marker": {
            "size": 13,
            "color": [token(f"model-{model_token(plan.dominant_model)}") for plan in plans],
            "line": {"width": 2, "color": token("surface")},
        },
        "customdata": [
            [
                f"{level_word(bundle).lower()} {plan.level:g}",
                label(plan.dominant_model or "no model"),
                seconds(plan.makespan_s),
                compact(plan.cost),
            ]
            for plan in plans
        ],
        "hovertemplate": "%{text}, %{customdata[0]}<br>quality %{y:.3f}, latency %{customdata[2]}"
        "<br>cost %{customdata[3]}<br>mostly %{customdata[1]}<extra></extra>",
        "cliponaxis": False,
    }
    table = ChartTable(
        columns=("Variant", level_word(bundle), "Predicted latency", "Estimated quality", "Dominant model", "Cost"),
        rows=tuple(
            (
                names[index],
                f"{plan.level:g}",
                seconds(plan.makespan_s),
                quality(plan.estimated_quality),
                plan.dominant_model or "none",
                compact(plan.cost),
            )
            for index, plan in enumerate(plans)
        ),
        numeric=frozenset({1, 2, 3, 5}),
    )
    return Chart(
        id="pareto",
        title="Latency and quality of the variants",
        note="no queueing; quality is the product surrogate",
        traces=(trace,),
        layout={
            "xaxis": {"title": "predicted latency (s)", "range": _padded([p.makespan_s for p in plans])},
            "yaxis": {"title": "estimated quality", "range": _padded([p.estimated_quality for p in plans])},
            "showlegend": False,
        },
        table=table,
        height=280,
    )


def demand_chart(bundle: Bundle) -> Chart:
    """Slot-seconds per model class, one stacked bar a variant."""
    plans = bundle.variants
    names = [variant_name(index) for index in range(len(plans))]
    models = sorted({model for plan in plans for model in plan.demand}, key=lambda name: (_billions(name), name))
    traces = tuple(
        {
            "type": "bar",
            "orientation": "h",
            "name": label(model_size(model)),
            "y": names,
            "x": [plan.demand.get(model, 0.0) for plan in plans],
            "marker": {"color": token(f"model-{model_token(model)}")},
            "customdata": [
                [label(model), percent(plan.demand.get(model, 0.0) / plan.total_demand if plan.total_demand else 0)]
                for plan in plans
            ],
            "hovertemplate": "%{y}, %{customdata[0]}<br>%{x:.1f} slot-seconds (%{customdata[1]})<extra></extra>",
        }
        for model in models
    )
    rows = tuple(
        (names[index], share.model, f"{share.slot_s:.1f}", percent(share.share))
        for index, plan in enumerate(plans)
        for share in shares(plan)
    )
    return Chart(
        id="demand",
        title="Demand per model class",
        note="planned slot-seconds, verification included",
        traces=traces,
        layout={
            "barmode": "stack",
            "bargap": 0.45,
            "xaxis": {"title": "slot-seconds"},
            "yaxis": {"autorange": "reversed", "type": "category"},
        },
        table=ChartTable(
            columns=("Variant", "Model class", "Slot-seconds", "Share"), rows=rows, numeric=frozenset({2, 3})
        ),
        height=280,
    )


def front_chart(front: Front, bundle: Bundle, plan: Plan) -> Chart:
    """Every plan that no other one beats in both figures, with the bundle's variants marked among them.

    Long fronts are thinned for drawing and for the table, evenly by position.
    """
    by_makespan = front.axis == "makespan_s"
    words = "predicted makespan (s)" if by_makespan else "cost (relative)"
    points = [front.points[i] for i in _shown(front)]
    names = [variant_name(index) for index in range(len(bundle.variants))]
    guarantee = (
        "exact"
        if front.exact
        else "not exact" + (f", factor {front.factor:.3f}" if front.factor >= LEAST_FACTOR else "")
    )
    thinned = f", {len(points)} of {len(front.points)} plans drawn" if len(points) < len(front.points) else ""
    return Chart(
        id=f"front-{'makespan' if by_makespan else 'cost'}",
        title="Estimated quality against " + ("makespan" if by_makespan else "cost"),
        note=f"{guarantee}; quality is the product surrogate{thinned}",
        traces=(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": "all plans",
                "x": [_on(front.axis, point) for point in points],
                "y": [point.estimated_quality for point in points],
                "customdata": [[seconds(p.makespan_s), compact(p.cost), _differs(plan, p.assignment)] for p in points],
                "hovertemplate": "quality %{y:.3f}, makespan %{customdata[0]}, cost %{customdata[1]}"
                "<br>%{customdata[2]}<extra></extra>",
                "line": {"color": token("border-strong"), "width": 1.2, "shape": "hv"},
                "marker": {"size": 5, "color": token("muted")},
            },
            {
                "type": "scatter",
                "mode": "markers+text",
                "name": "variants",
                "x": [_on(front.axis, variant) for variant in bundle.variants],
                "y": [variant.estimated_quality for variant in bundle.variants],
                "text": names,
                "textposition": ["top left" if index % 2 else "bottom right" for index in range(len(names))],
                "textfont": {"size": 12, "color": token("text")},
                "hovertemplate": "%{text}, quality %{y:.3f}<extra></extra>",
                "marker": {
                    "size": 12,
                    "symbol": "diamond",
                    "color": [token(f"model-{model_token(variant.dominant_model)}") for variant in bundle.variants],
                    "line": {"width": 2, "color": token("surface")},
                },
                "cliponaxis": False,
            },
        ),
        layout={
            "xaxis": {"title": words},
            "yaxis": {"title": "estimated quality", "type": _quality_scale((*points, *bundle.variants))},
            "showlegend": False,
        },
        table=_front_table(points, bundle, plan),
        height=300,
    )


def _front_table(points: Sequence[ParetoPoint], bundle: Bundle, plan: Plan) -> ChartTable:
    """The variants first: they need not lie on the front."""
    variants = [
        (variant_name(i), v.makespan_s, v.cost, v.estimated_quality, v.assignment)
        for i, v in enumerate(bundle.variants)
    ]
    front = [("on the front", p.makespan_s, p.cost, p.estimated_quality, p.assignment) for p in points]
    return ChartTable(
        columns=("Plan", "Makespan", "Cost", "Estimated quality", "Against the plan shown"),
        rows=tuple(
            (name, seconds(makespan_s), compact(cost), quality(estimated), _differs(plan, assignment))
            for name, makespan_s, cost, estimated, assignment in (*variants, *front)
        ),
        numeric=frozenset({1, 2, 3}),
    )


def _on(axis: Axis, plan: ParetoPoint | Plan) -> float:
    return plan.makespan_s if axis == "makespan_s" else plan.cost


def _differs(plan: Plan, assignment: Mapping[str, Implementation]) -> str:
    count = sum(assignment[node] != chosen for node, chosen in plan.assignment.items())
    return "the plan shown" if not count else f"{count} node{'s' * (count != 1)} differ{'s' * (count == 1)}"


def _shown(front: Front) -> list[int]:
    """Positions of at most FRONT_POINTS points, evenly, both ends among them; and of the current one."""
    count, most = len(front.points), FRONT_POINTS
    chosen = set(range(count)) if count <= most else {round(i * (count - 1) / (most - 1)) for i in range(most)}
    return sorted(chosen | ({front.current} if front.current is not None else set()))


def _quality_scale(plans: Iterable[ParetoPoint | Plan]) -> str:
    """Logarithmic where linear would press most plans flat, as in large workflows."""
    values = [plan.estimated_quality for plan in plans]
    return "log" if min(values) > 0 and max(values) > WIDE * min(values) else "linear"


def profile_chart(profiles: ProfileSet, *, thinking: bool) -> Chart:
    """Heat map of quality, skill by (model, policy); samples and intervals on hover and in the table."""
    pairs = [pair for pair in profiles.pairs if pair.thinking == thinking]
    columns = sorted(
        {(pair.model, policy_name(pair)) for pair in pairs}, key=lambda c: (_billions(c[0]), c[0], _order(pairs, c))
    )
    skills = list(dict.fromkeys(pair.skill for pair in pairs))
    by_place = {(pair.skill, pair.model, policy_name(pair)): pair for pair in pairs}
    cells = [[by_place.get((skill, *column)) for column in columns] for skill in skills]
    trace = {
        "type": "heatmap",
        "x": [[label(model_size(model)) for model, _ in columns], labels([policy for _, policy in columns])],
        "y": labels(skills),
        "z": [[cell.quality if cell else None for cell in row] for row in cells],
        "text": [[f"{cell.quality:.2f}" if cell else "" for cell in row] for row in cells],
        "customdata": [[_hover(cell) for cell in row] for row in cells],
        "texttemplate": "%{text}",
        "textfont": {"size": 11, "color": token("text")},
        "hovertemplate": "%{customdata}<extra></extra>",
        "colorscale": HEAT,
        "xgap": 2,
        "ygap": 2,
        "colorbar": {"thickness": 8, "outlinewidth": 0, "tickfont": {"size": 11, "color": token("muted")}},
    }
    return Chart(
        id="profile-thinking" if thinking else "profile",
        title="Quality by skill, model and policy" + (", thinking on" if thinking else ""),
        traces=(trace,),
        layout={
            "xaxis": {"type": "multicategory", "tickangle": -60, "showgrid": False, "dividercolor": token("border")},
            "yaxis": {"autorange": "reversed", "type": "category", "showgrid": False},
        },
        table=_profile_table(pairs),
        height=max(260, 150 + 34 * len(skills)),
    )


def policy_name(pair: PairProfile) -> str:
    return pair.policy + (f"@{model_size(pair.verifier_model)}" if pair.verifier_model else "")


def vulnerability_chart(profiles: ProfileSet) -> Chart:
    """Heat map of measured flip rates: (role, fan-in) by skill."""
    cells = profiles.vulnerability.cells
    skills = list(dict.fromkeys(cell.skill for cell in cells))
    places = [(role, bucket) for role in ROLES for bucket in FAN_INS if _any(cells, role, bucket)]
    by_place = {(cell.role, cell.fan_in, cell.skill): cell for cell in cells if cell.pairs}
    rows = [[by_place.get((*place, skill)) for skill in skills] for place in places]
    trace = {
        "type": "heatmap",
        "x": labels(skills),
        "y": [
            [role for role, _ in places],
            [_FAN_IN_WORDS[bucket] for _, bucket in places],
        ],
        "z": [[_rate(cell) for cell in row] for row in rows],
        "text": [["" if cell is None else f"{_rate(cell):.2f}" for cell in row] for row in rows],
        "customdata": [[_vulnerability_hover(cell) for cell in row] for row in rows],
        "texttemplate": "%{text}",
        "textfont": {"size": 11, "color": token("text")},
        "hovertemplate": "%{customdata}<extra></extra>",
        "colorscale": HEAT,
        "xgap": 2,
        "ygap": 2,
        "colorbar": {"thickness": 8, "outlinewidth": 0, "tickfont": {"size": 11, "color": token("muted")}},
    }
    return Chart(
        id="vulnerability",
        title="Vulnerability by role, fan-in and skill",
        note="how often an injected fault turns a right final answer wrong",
        traces=(trace,),
        layout={
            "xaxis": {"type": "category", "showgrid": False},
            "yaxis": {
                "type": "multicategory",
                "autorange": "reversed",
                "showgrid": False,
                "dividercolor": token("border"),
            },
        },
        table=ChartTable(
            columns=("Role", "Fan-in", "Skill", "Flips", "Pairs", "Rate", "95% interval"),
            rows=tuple(
                (cell.role, cell.fan_in, cell.skill, str(cell.flips), str(cell.pairs), _rate_text(cell), _span(cell))
                for cell in cells
            ),
            numeric=frozenset({3, 4, 5, 6}),
        ),
        height=max(240, 110 + 34 * len(places)),
    )


def _profile_table(pairs: Iterable[PairProfile]) -> ChartTable:
    return ChartTable(
        columns=("Skill", "Model", "Policy", "Quality", "95% interval", "Samples", "Own prompt", "Calls"),
        rows=tuple(
            (
                pair.skill,
                pair.model,
                policy_name(pair),
                quality(pair.quality),
                f"{pair.interval[0]:.3f}–{pair.interval[1]:.3f}",
                str(pair.samples),
                f"{pair.prompt_tokens:.0f} tokens",
                "; ".join(
                    f"{call.role} p={call.probability:g} +{call.prompt_tokens:.0f}/{call.output_tokens:.0f}"
                    for call in pair.calls
                ),
            )
            for pair in pairs
        ),
        numeric=frozenset({3, 4, 5, 6}),
    )


def _hover(pair: PairProfile | None) -> str:
    if pair is None:
        return "never measured"
    low, high = pair.interval
    return (
        f"<b>{label(pair.skill)}</b><br>{label(pair.model)}, {label(policy_name(pair))}"
        f"<br>quality {pair.quality:.3f} ({low:.3f}–{high:.3f}), {pair.samples} samples"
    )


def _vulnerability_hover(cell: VulnerabilityCell | None) -> str:
    if cell is None:
        return "no pairs: the coarser groups decide"
    return (
        f"<b>{label(cell.skill)}</b>, {cell.role}, {_FAN_IN_WORDS[cell.fan_in]}"
        f"<br>{cell.flips} of {cell.pairs} pairs flipped: {_rate_text(cell)} ({_span(cell)})"
    )


def _rate(cell: VulnerabilityCell | None) -> float | None:
    return cell.flips / cell.pairs if cell and cell.pairs else None


def _rate_text(cell: VulnerabilityCell) -> str:
    return quality(_rate(cell))


def _span(cell: VulnerabilityCell) -> str:
    low, high = cell.interval
    return f"{low:.3f}–{high:.3f}"


def _any(cells: Iterable[VulnerabilityCell], role: str, bucket: str) -> bool:
    return any(cell.role == role and cell.fan_in == bucket and cell.pairs for cell in cells)


def _order(pairs: list[PairProfile], column: tuple[str, str]) -> int:
    """Policies keep the order in which the profiles list them."""
    return next(i for i, pair in enumerate(pairs) if (pair.model, policy_name(pair)) == column)


def _billions(model: str) -> float:
    """Orders classes from small to large where their names state a size."""
    size = model_size(model)
    return float(size[:-1]) if size != model else 0.0


def _padded(values: list[float]) -> list[float]:
    """A range with room for the points' names; never below 0."""
    low, high = min(values), max(values)
    room = max((high - low) * 0.18, abs(high) * 0.04, 1e-6)
    return [max(0.0, low - room), high + room]
