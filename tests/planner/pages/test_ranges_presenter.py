from __future__ import annotations

import pytest

from planner.compiler.plan import Plan
from planner.compiler.sensitivity import End, Parameter, Range, sensitivity
from planner.compiler.solve import compile_plan
from planner.presenters.ranges import CHANGES_SHOWN, RangeView, range_views
from tests.planner.pages.samples import chain, fork_join, problem


def _plan(count: int = 3) -> Plan:
    found = compile_plan(problem(chain(count)), 0.0)
    assert isinstance(found, Plan)
    return found


def _end(at: float, *, open: bool = False, proved: bool = True, nodes: int = 0) -> End:
    plan = _plan(max(nodes, 1))
    changes = {node: plan.assignment[node] for node in list(plan.assignment)[:nodes]}
    return End(at=at, open=open, proved=proved, changes=changes)


def _view(parameter: Parameter, value: float, low: End, high: End, *, priced: bool = False) -> RangeView:
    found = Range(parameter=parameter, value=value, low=low, high=high)
    workflow = chain(8)
    (view,) = range_views([found], _plan(8), workflow, priced=priced)
    return view


def test_real_ranges_hold_their_value_and_say_who_takes_over() -> None:
    given = problem(fork_join())
    plan = compile_plan(given, 0.0)
    assert isinstance(plan, Plan)

    views = range_views(sensitivity(given, plan), plan, given.workflow, priced=False)

    assert [view.parameter for view in views] == ["lambda_l", "effort", "level"]
    for view in views:
        assert 0 <= view.low.place <= view.place <= view.high.place <= 1
        assert view.proved
        for end in (view.low, view.high):
            assert end.open == (end.takes_over == 0)
            assert all(change.before.full != change.after.full for change in end.changes)


def test_places_are_those_of_the_scale() -> None:
    view = _view("lambda_l", 0.2, _end(0.1), _end(0.4))

    assert (view.top, view.logarithmic) == ("0.5", False)
    assert (view.low.place, view.place, view.high.place) == pytest.approx((0.2, 0.4, 0.8))
    assert view.sentence == "Latency is 0.2; the plan stays optimal from 0.1 to 0.4"


def test_a_far_end_is_drawn_on_a_logarithmic_scale() -> None:
    view = _view("lambda_l", 0.05, _end(0.04), _end(300.0))

    assert view.logarithmic
    assert 0 < view.low.place < view.place < 0.2
    assert view.high.place < 1


def test_an_open_end_reaches_the_end_of_the_bar() -> None:
    view = _view("level", 0.0, _end(0.0, open=True), _end(100.0, open=True))

    assert (view.low.place, view.place, view.high.place) == (0, 0, 1)
    assert view.fades
    assert not _view("effort", 0.5, _end(0.0, open=True), _end(1.0, open=True)).fades


def test_what_is_not_proved_is_said() -> None:
    view = _view("effort", 0.5, _end(0.0, open=True, proved=False), _end(1.0, open=True))

    assert not view.proved
    assert view.sentence.endswith(", not proved")


def test_many_changes_are_folded_and_a_price_is_named() -> None:
    view = _view("level", 0.005, _end(0.001), _end(0.01, nodes=8), priced=True)

    assert (len(view.high.changes), len(view.high.further)) == (CHANGES_SHOWN, 8 - CHANGES_SHOWN)
    assert view.words == "Price level"
