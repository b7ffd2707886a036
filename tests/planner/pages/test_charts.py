from __future__ import annotations

import json

import pytest

from planner.charts import demand_chart, pareto_chart, profile_chart, vulnerability_chart
from planner.data import load_profiles
from tests.planner.pages.samples import bundle, chain


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
