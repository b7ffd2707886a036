from __future__ import annotations

import json

import pytest

from planner.charts import (
    FRONT_POINTS,
    demand_chart,
    front_chart,
    pareto_chart,
    profile_chart,
    vulnerability_chart,
)
from planner.compiler.pareto import Axis, Front, ParetoPoint, pareto_front
from planner.data import load_profiles
from planner.views.insights import AXES
from tests.planner.pages.samples import bundle, chain, problem


def test_one_point_a_variant_at_its_latency_and_quality() -> None:
    found = bundle(chain(3))
    chart = pareto_chart(found)

    assert chart.traces[0]["x"] == [plan.makespan_s for plan in found.variants]
    assert chart.traces[0]["y"] == [plan.estimated_quality for plan in found.variants]
    assert len(chart.table.rows) == len(found.variants)


def test_bars_add_up_to_the_demand_of_each_variant() -> None:
    found = bundle(chain(3))
    chart = demand_chart(found)

    for index, plan in enumerate(found.variants):
        assert sum(trace["x"][index] for trace in chart.traces) == pytest.approx(plan.total_demand)


@pytest.mark.parametrize("axis", AXES)
def test_a_front_marks_the_variants_and_never_falls(axis: Axis) -> None:
    found = bundle(chain(3))
    front = pareto_front(problem(chain(3)), axis, plan=found.variants[0])
    assert isinstance(front, Front)
    chart = front_chart(front, found, found.variants[0])

    line, marks = chart.traces
    assert line["y"] == sorted(line["y"])
    assert line["x"] == sorted(line["x"])
    assert marks["x"] == [getattr(plan, axis) for plan in found.variants]
    assert chart.note.startswith("exact; quality is the product surrogate")
    assert len(chart.table.rows) == len(found.variants) + len(line["x"])
    assert chart.table.rows[0][-1] == "the plan shown"


def test_a_long_front_is_thinned_and_keeps_its_ends_and_the_plan() -> None:
    found = bundle(chain(2))
    plan = found.variants[0]
    points = tuple(
        ParetoPoint(makespan_s=1.0, cost=float(i), estimated_quality=i / 1000, assignment=plan.assignment)
        for i in range(1, 501)
    )
    front = Front(axis="cost", points=points, exact=False, factor=0.5, current=251)

    chart = front_chart(front, found, plan)

    drawn = chart.traces[0]["x"]
    assert FRONT_POINTS <= len(drawn) <= FRONT_POINTS + 1
    assert {1.0, 252.0, 500.0} <= set(drawn)
    assert "not exact, factor 0.500" in chart.note
    assert "of 500 plans drawn" in chart.note
    assert chart.layout["yaxis"]["type"] == "log"


def test_the_heat_map_holds_every_pair_once() -> None:
    profiles = load_profiles()
    cells = 0
    for thinking in (False, True):
        chart = profile_chart(profiles, thinking=thinking)
        cells += sum(value is not None for row in chart.traces[0]["z"] for value in row)
        assert "samples" in chart.traces[0]["customdata"][0][0]
    assert cells == len(profiles.pairs)


def test_vulnerabilities_show_rates_with_their_intervals() -> None:
    profiles = load_profiles()
    chart = vulnerability_chart(profiles)

    shown = [value for row in chart.traces[0]["z"] for value in row if value is not None]
    assert len(shown) == sum(cell.pairs > 0 for cell in profiles.vulnerability.cells)
    assert all(0 <= value <= 1 for value in shown)
    assert len(chart.table.rows) == len(profiles.vulnerability.cells)


def test_figures_are_json() -> None:
    found = bundle(chain(2))
    for chart in (pareto_chart(found), demand_chart(found), vulnerability_chart(load_profiles())):
        assert json.loads(json.dumps(chart.figure, allow_nan=False))["layout"]["height"] > 0
