"""Fronts against all plans there are; what is dropped is bounded by the factor that the front states."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from itertools import count, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.compiler.evaluate import Evaluation, Solution, evaluate
from planner.compiler.explain import choice_of
from planner.compiler.limits import Limits
from planner.compiler.pareto import Axis, Front, ParetoPoint, pareto_front
from planner.compiler.pareto import front as pareto
from planner.compiler.pareto.labels import Label, undominated
from planner.compiler.plan import Infeasible, Plan
from planner.compiler.problem import PlanningProblem
from planner.compiler.solve import compile_plan, decode
from tests.paper.compiler_walkthrough import B9, B27, walkthrough_problem
from tests.planner.compiler.cases import (
    LARGE,
    MIDDLE,
    all_choices,
    coefficients_of,
    h200_catalog,
    linked_problem,
    llm,
    pair,
    planned,
    problems,
    profile_set,
    tool,
    workflow,
)
from tests.sampling import sampled

AXES: tuple[Axis, ...] = ("makespan_s", "cost")
CLOSE = 1e-9


def front_of(problem: PlanningProblem, axis: Axis, **options: object) -> Front:
    found = pareto_front(problem, axis, **options)  # type: ignore[arg-type]  # plan, time limit, timer
    assert isinstance(found, Front), found
    return found


def all_plans(problem: PlanningProblem) -> list[Evaluation]:
    coefficients = coefficients_of(problem)
    return [evaluate(coefficients, choice, 0.0) for choice in all_choices(coefficients)]


def is_covered(axis: Axis, plan: Evaluation, points: Sequence[ParetoPoint], factor: float = 1.0) -> bool:
    """Whether a point is no slower (dearer) and has that share of the plan's quality, but for rounding."""
    return any(
        getattr(point, axis) <= getattr(plan, axis) * (1 + CLOSE)
        and point.estimated_quality >= factor * plan.estimated_quality * (1 - CLOSE)
        for point in points
    )


def check(problem: PlanningProblem, front: Front) -> None:
    """Every point is the plan that it says; none is as fast (cheap) and worse; every plan is covered."""
    axis, coefficients = front.axis, coefficients_of(problem)
    for point in front.points:
        choice = {n: coefficients.nodes[n].column(impl) for n, impl in point.assignment.items()}
        value = evaluate(coefficients, {n: column for n, column in choice.items() if column is not None}, 0.0)
        assert (point.makespan_s, point.cost) == pytest.approx((value.makespan_s, value.cost), rel=CLOSE)
        assert point.estimated_quality == pytest.approx(value.estimated_quality, rel=CLOSE)
    for before, after in pairwise(front.points):
        assert getattr(before, axis) < getattr(after, axis)
        assert before.estimated_quality < after.estimated_quality
    plans = all_plans(problem)
    assert all(is_covered(axis, plan, front.points, front.factor) for plan in plans)
    if front.exact:
        assert front.factor == 1.0
        for point in front.points:
            assert not any(
                getattr(plan, axis) < getattr(point, axis) * (1 - CLOSE)
                and plan.estimated_quality >= point.estimated_quality
                for plan in plans
            )


@sampled(60)
@given(problem=problems(), axis=st.sampled_from(AXES))
def test_the_front_is_that_of_all_plans(problem: PlanningProblem, axis: Axis) -> None:
    front = front_of(problem, axis)
    assert front.exact
    check(problem, front)


@sampled(40)
@given(problem=problems(), labels=st.integers(1, 8), beam=st.integers(1, 8))
def test_with_bounds_the_front_is_the_same(problem: PlanningProblem, labels: int, beam: int) -> None:
    """The simple search gives up at once, so that a beam, the hull and the bounds have to find everything."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pareto, "EASY_SETS", 0)
        patch.setattr(pareto, "HARD_LABELS", labels)
        patch.setattr(pareto, "BEAM", beam)
        front = front_of(problem, "makespan_s")
    assert front.exact
    check(problem, front)
    expected = front_of(problem, "makespan_s").points
    assert [p.makespan_s for p in front.points] == pytest.approx([p.makespan_s for p in expected], rel=CLOSE)


@sampled(40)
@given(problem=problems(), labels=st.integers(0, 4))
def test_plans_that_were_dropped_are_covered_by_the_factor(problem: PlanningProblem, labels: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pareto, "EASY_SETS", 0)
        for name in ("HARD_LABELS", "MAX_LABELS", "BEAM"):
            patch.setattr(pareto, name, max(labels, 1) if name == "BEAM" else labels)
        front = front_of(problem, "makespan_s")
    assert 0 <= front.factor <= 1
    check(problem, front)


@pytest.mark.parametrize("looks", range(0, 60, 3))
def test_wherever_the_time_ends_every_plan_is_covered(looks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock stands still for some looks and then jumps past the limit; each stage ends at some of them."""
    for name in ("EASY_SETS", "HARD_LABELS"):
        monkeypatch.setattr(pareto, name, 0)
    problem, clock = linked_problem(4, steps=(1, 2)), count()
    front = front_of(problem, "makespan_s", timer=lambda: 0.0 if next(clock) <= looks else 1e9)
    assert 0 < front.factor <= 1
    assert front.exact == (front.factor == 1.0)
    assert all(is_covered("makespan_s", plan, front.points, front.factor) for plan in linked_plans())


@cache
def linked_plans() -> list[Evaluation]:
    """Of 10,000 plans those that no faster one is as good as: the others are covered where these are."""
    best, kept = -1.0, []
    for plan in sorted(all_plans(linked_problem(4, steps=(1, 2))), key=lambda p: (p.makespan_s, -p.estimated_quality)):
        if plan.estimated_quality > best:
            best = plan.estimated_quality
            kept.append(plan)
    return kept


@sampled(100)
@given(data=st.data(), width=st.integers(1, 4))
def test_labels_that_stay_are_those_that_no_other_one_dominates(data: st.DataObject, width: int) -> None:
    times = st.tuples(*[st.integers(0, 4).map(float)] * width)
    found = data.draw(st.lists(st.tuples(st.integers(1, 5).map(float), times), min_size=1, max_size=30))
    labels: list[Label] = [(quality, seconds, None, i, 0.0) for i, (quality, seconds) in enumerate(found)]
    kept = undominated(list(labels), lambda: False)
    assert kept is not None
    assert {(label[0], label[1]) for label in kept} == {
        one for one in found if not any(other != one and dominates(other, one) for other in found)
    }
    assert len(kept) == len({(label[0], label[1]) for label in kept})
    assert undominated(list(labels), lambda: True) is None


def dominates(one: tuple[float, tuple[float, ...]], other: tuple[float, tuple[float, ...]]) -> bool:
    return one[0] >= other[0] and all(a <= b for a, b in zip(one[1], other[1], strict=True))


@sampled(40)
@given(problem=problems(), most=st.integers(2, 6))
def test_by_cost_too(problem: PlanningProblem, most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pareto, "MAX_POINTS", most)
        front = front_of(problem, "cost")
    assert 0 < front.factor <= 1
    check(problem, front)


@pytest.mark.parametrize("axis", AXES)
def test_without_time_the_front_says_what_it_is_worth(axis: Axis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pareto, "MAX_POINTS_LATE", 5)
    problem = linked_problem(4, steps=(1, 2))
    front = front_of(problem, axis, time_limit_s=-1.0, timer=lambda: 1.0)
    assert not front.exact
    assert 0 < front.factor < 1
    check(problem, front)


@sampled(40)
@given(problem=problems(max_nodes=3), axis=st.sampled_from(AXES), data=st.data())
def test_the_given_plan_has_its_place_exactly_when_no_plan_is_better(
    problem: PlanningProblem, axis: Axis, data: st.DataObject
) -> None:
    coefficients = coefficients_of(problem)
    choice = {n: data.draw(st.sampled_from(node.columns)) for n, node in coefficients.nodes.items()}
    plan = decode(coefficients, Solution(choice=choice, solver="any"), 0.0)
    front = front_of(problem, axis, plan=plan)
    assert (front.current is not None) == (not is_dominated(axis, plan, all_plans(problem)))
    if front.current is not None:
        point = front.points[front.current]
        assert (getattr(point, axis), point.estimated_quality) == pytest.approx(
            (getattr(plan, axis), plan.estimated_quality)
        )


def is_dominated(axis: Axis, plan: Plan, others: Sequence[Evaluation]) -> bool:
    """By a plan that is better in one and no worse in the other, beyond rounding."""
    here, quality = getattr(plan, axis), plan.estimated_quality
    return any(
        (getattr(o, axis) < here * (1 - CLOSE) and o.estimated_quality >= quality * (1 - CLOSE))
        or (getattr(o, axis) <= here * (1 + CLOSE) and o.estimated_quality > quality * (1 + CLOSE))
        for o in others
    )


# --- Examples --------------------------------------------------------------------------------------------------------


def test_the_walkthrough_fork_verifies_d_where_c_leaves_it_the_time() -> None:
    """C on 27B takes 10 s, so D verified (7 s) is free; with C on 9B (6 s) verification costs the one second."""
    problem = walkthrough_problem()
    front = front_of(problem, "makespan_s", plan=planned(compile_plan(problem, 0.0)))
    found = [
        (round(p.makespan_s, 6), p.assignment["C"].label, p.assignment["D"].label, round(p.estimated_quality, 2))
        for p in front.points
    ]
    assert found == [
        (9.0, f"{B9}.none", f"{B9}.none", 0.81),
        (9.67, f"{B9}.none", f"{B27}.none", 0.82),
        (10.0, f"{B9}.none", f"{B9}.verified", 0.84),
        (12.0, f"{B9}.verified", f"{B9}.verified", 0.85),
        (13.0, f"{B27}.none", f"{B9}.verified", 0.89),
    ]
    assert front.current == 4


def test_a_plan_without_llm_nodes_is_the_whole_front() -> None:
    graph = workflow(tool("a", 2.0), tool("b", 3.0), edges=[("a", "b")])
    problem = PlanningProblem(workflow=graph, catalog=h200_catalog(), profiles=profile_set([pair()]))
    for axis in AXES:
        front = front_of(problem, axis, plan=planned(compile_plan(problem, 0.0)))
        (point,) = front.points
        assert (point.makespan_s, point.cost, point.estimated_quality, dict(point.assignment)) == (5.0, 0.0, 1.0, {})
        assert (front.exact, front.factor, front.current) == (True, 1.0, 0)


def test_equal_plans_are_one_point() -> None:
    """Nodes that cannot reach the output have no vulnerability: their choice changes cost alone, or time alone."""
    pairs = [pair(model=m, quality=q) for m, q in ((MIDDLE, 0.7), (LARGE, 0.9))]
    graph = workflow(llm("idle"), llm("last"))
    problem = PlanningProblem(workflow=graph, catalog=h200_catalog(), profiles=profile_set(pairs))
    assert [len(front_of(problem, axis).points) for axis in AXES] == [2, 2]
    assert {p.assignment["idle"].model for p in front_of(problem, "cost").points} == {MIDDLE}


def test_a_quality_of_zero_is_a_point_like_any_other() -> None:
    pairs = [pair(model=m, quality=q) for m, q in ((MIDDLE, 0.0), (LARGE, 0.9))]
    graph = workflow(llm("a"), llm("b"), edges=[("a", "b")])
    problem = PlanningProblem(workflow=graph, catalog=h200_catalog(), profiles=profile_set(pairs, 1.0))
    for axis in AXES:
        front = front_of(problem, axis)
        assert front.points[0].estimated_quality == 0.0
        check(problem, front)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in (("EASY_SETS", 0), ("HARD_LABELS", 0), ("MAX_POINTS", 2)):
                patch.setattr(pareto, name, value)
            check(problem, front_of(problem, axis))


def test_infeasible_problems_and_foreign_plans() -> None:
    problem = PlanningProblem(workflow=workflow(llm("n")), catalog=h200_catalog(), profiles=profile_set([pair()]))
    none = PlanningProblem(workflow=workflow(llm("n", "code")), catalog=h200_catalog(), profiles=profile_set([pair()]))
    assert isinstance(pareto_front(none, "cost"), Infeasible)
    other = PlanningProblem(
        workflow=problem.workflow, catalog=problem.catalog, profiles=profile_set([pair(model=MIDDLE)])
    )
    with pytest.raises(ValueError, match="node n is not legal"):
        pareto_front(other, "cost", plan=planned(compile_plan(problem, 0.0)))


def test_caps_on_the_whole_plan_do_not_narrow_the_front() -> None:
    pairs = [pair(model=m, quality=q) for m, q in ((MIDDLE, 0.7), (LARGE, 0.9))]
    problem = PlanningProblem(
        workflow=workflow(llm("n")), catalog=h200_catalog(), profiles=profile_set(pairs), limits=Limits(max_cost=0.0)
    )
    for axis in AXES:
        assert len(front_of(problem, axis).points) == 2


def test_many_nodes_are_answered_in_time_with_a_factor() -> None:
    """The clock moves by 1 s a look: the time limit ends every stage, and there is a front all the same."""
    problem, ticks = linked_problem(60, steps=(2, 3, 5)), iter(range(10**6))
    for axis in AXES:
        front = front_of(problem, axis, time_limit_s=40.0, timer=lambda: float(next(ticks)))
        assert front.points
        assert 0 <= front.factor <= 1
        assert front.exact == (front.factor == 1.0)


def test_the_json_form_can_be_short() -> None:
    problem = linked_problem(5, steps=(1, 2))
    plan = planned(compile_plan(problem, 0.0))
    front = front_of(problem, "makespan_s", plan=plan)
    data = json.loads(json.dumps(front.to_json(most=4), allow_nan=False))
    assert data["total"] == len(front.points) > 6
    assert len(data["points"]) in (4, 5)
    assert [data["points"][i] for i in (0, -1)] == [front.points[i].to_json() for i in (0, -1)]
    if front.current is not None:
        assert data["points"][data["current"]] == front.points[front.current].to_json()
    assert len(front.to_json()["points"]) == data["total"]
    assert choice_of(coefficients_of(problem), plan).keys() == front.points[0].assignment.keys()
