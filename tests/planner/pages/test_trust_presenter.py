from __future__ import annotations

from dataclasses import replace

import pytest

from planner.compiler.plan import Plan
from planner.compiler.solve import compile_plan
from planner.compiler.stability import Stability, stability
from planner.presenters.trust import trust_view
from tests.planner.pages.samples import fork_join, problem


@pytest.fixture(scope="module")
def found() -> Stability:
    given = problem(fork_join())
    plan = compile_plan(given, 0.0)
    assert isinstance(plan, Plan)
    return stability(given, plan, draws=20, seed=1)


def test_nodes_that_change_most_come_first(found: Stability) -> None:
    view = trust_view(found, fork_join())

    shares = [row.stays.value for row in view.nodes]
    assert shares == sorted(shares)
    assert {row.node for row in view.nodes} == {"source", "left", "end"}
    assert view.steady == shares.count(1.0)
    for row in view.nodes:
        assert (row.other is None) == (row.stays.value == 1)
        assert (row.other_share == "") == (row.other is None)


def test_the_cells_lead_to_their_chart(found: Stability) -> None:
    view = trust_view(found, fork_join())

    assert view.cells
    for cell in view.cells:
        assert cell.anchor in ("profile", "profile-thinking", "vulnerability")
        assert (cell.kind == "vulnerability") == (cell.anchor == "vulnerability")
    assert view.advice.startswith(f"measure {view.cells[0].name} next")


def test_what_the_time_limit_left_out_is_said(found: Stability) -> None:
    assert trust_view(found, fork_join()).unfinished == ""

    cut = trust_view(replace(found, draws_asked=200, cells_settled=0, unproved=3), fork_join())

    assert "20 of 200 draws" in cut.unfinished
    assert f"0 of {found.cells_used} cells" in cut.unfinished
    assert "lower bound" in cut.unfinished
