"""Stability against the same problems built anew from redrawn profiles, and the value of cells against brute force."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import count, pairwise
from random import Random
from statistics import NormalDist, fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.compiler.evaluate import Choice, evaluate
from planner.compiler.limits import Limits
from planner.compiler.plan import Plan
from planner.compiler.pricing import fleet_pricing
from planner.compiler.problem import PlanningProblem
from planner.compiler.profile import PairProfile
from planner.compiler.solve import compile_plan
from planner.compiler.stability import stability
from planner.compiler.stability.redraw import MICRO, Beta, Cell, Redraw, SplitNormal, belief_of
from planner.compiler.stability.regret import POINTS
from planner.compiler.vulnerability import wilson_interval
from planner.compiler.weights import Weights
from tests.planner.compiler.cases import (
    LARGE,
    MIDDLE,
    SMALL,
    brute_force,
    certain,
    coefficients_of,
    h200_catalog,
    linked_problem,
    llm,
    measured,
    pair,
    planned,
    profile_set,
    tool,
    uncertain_problems,
    with_pairs,
    workflow,
)
from tests.sampling import sampled

Rates = Mapping[Cell, float]
EVERY_CELL = 1000


def rebuilt(problem: PlanningProblem, rates: Rates) -> PlanningProblem:
    """The problem from profiles with these rates, with none of the redraw's code; counts in millionths."""
    by_key = {cell.key: rate for cell, rate in rates.items()}
    pairs: list[PairProfile] = []
    for p in problem.profiles.pairs:
        key = ("quality", p.skill, p.model, p.policy, p.verifier_model or "", "", "", str(p.thinking))
        pairs.append(replace(p, quality=by_key.get(key, p.quality), interval=(0.0, 1.0)))
    table, cells = problem.profiles.vulnerability, []
    for c in table.cells:
        rate = by_key.get(("vulnerability", c.skill, "", "", "", c.role, c.fan_in, "False"), c.flips / c.pairs)
        cells.append(replace(c, pairs=c.pairs * MICRO, flips=round(rate * c.pairs * MICRO)))
    table = replace(table, cells=tuple(cells), pseudo_pairs=table.pseudo_pairs * MICRO)
    return replace(problem, profiles=replace(problem.profiles, pairs=tuple(pairs), vulnerability=table))


def regret_by_enumeration(problem: PlanningProblem, plan: Plan, rates: Rates) -> float:
    coefficients = coefficients_of(rebuilt(problem, rates))
    columns = {n: node.column(plan.assignment[n]) for n, node in coefficients.nodes.items()}
    choice: Choice = {n: column for n, column in columns.items() if column is not None}
    best = brute_force(coefficients, plan.level).objective
    return max(0.0, best - evaluate(coefficients, choice, plan.level).objective)


def check_draws(problem: PlanningProblem, level: float) -> None:
    plan = planned(compile_plan(problem, level))
    redraw = Redraw(coefficients_of(problem))
    rng = Random(7)
    regrets = []
    for _ in range(4):
        rates = {redraw.cells[i]: rate for i, rate in redraw.draw(rng).items()}
        regrets.append(regret_by_enumeration(problem, plan, rates))
    found = stability(problem, plan, draws=4, seed=7, top=1)
    assert found.regret == pytest.approx(fmean(regrets), abs=1e-6)
    assert found.unchanged.count == pytest.approx(sum(lost <= 1e-9 for lost in regrets))


def check_values(problem: PlanningProblem, level: float) -> None:
    plan = planned(compile_plan(problem, level))
    found = {c.cell: c.value for c in stability(problem, plan, draws=1, top=EVERY_CELL).cells}
    redraw = Redraw(coefficients_of(problem))
    for cell, belief in zip(redraw.cells, redraw.beliefs, strict=True):
        lost = [regret_by_enumeration(problem, plan, {cell: rate}) for rate in belief.points(POINTS)]
        assert found.get(cell, 0.0) == pytest.approx(fmean(lost), abs=1e-6), cell.name


@sampled(10)
@given(problem=uncertain_problems(), level=st.sampled_from([0.0, 3.0]))
def test_a_draw_is_the_problem_with_redrawn_profiles(problem: PlanningProblem, level: float) -> None:
    check_draws(problem, level)


@sampled(6)
@given(problem=uncertain_problems(max_nodes=2), level=st.sampled_from([0.0, 3.0]))
def test_the_value_of_a_cell_is_its_mean_regret(problem: PlanningProblem, level: float) -> None:
    check_values(problem, level)


@sampled(3)
@given(problem=uncertain_problems(max_nodes=2))
def test_priced_problems_too(problem: PlanningProblem) -> None:
    priced = replace(problem, pricing=fleet_pricing(problem.catalog))
    check_draws(priced, 0.04)
    check_values(priced, 0.04)


@sampled(10)
@given(problem=uncertain_problems())
def test_the_most_valuable_cells_are_the_first_of_all(problem: PlanningProblem) -> None:
    """Cells left unsolved since their bound is too low would not have been among them."""
    plan = planned(compile_plan(problem, 0.0))
    everything = stability(problem, plan, draws=1, top=EVERY_CELL).cells
    for top in (1, 3):
        assert stability(problem, plan, draws=1, top=top).cells == everything[:top]
    values = [cell.value for cell in everything]
    assert values == sorted(values, reverse=True)


def deciding() -> PlanningProblem:
    """The large class is a little better and dearer; whether it is better by enough, eight samples do not say."""
    pairs = [
        measured(pair("plan", MIDDLE, "none", 0.85), 100_000),
        measured(pair("plan", LARGE, "none", 0.87), 8),
        measured(pair("plan", MIDDLE, "debate", 0.3), 30),
        measured(pair("plan", SMALL, "none", 0.8), 2),
        measured(pair("code", LARGE, "none", 0.8), 2),
    ]
    return PlanningProblem(
        workflow=workflow(llm("a", models=(MIDDLE, LARGE)), llm("b", models=(MIDDLE, LARGE)), edges=[("a", "b")]),
        catalog=h200_catalog(),
        profiles=profile_set(pairs),
        weights=Weights(lambda_c=0.2),
    )


def test_the_one_thin_cell_that_decides_is_named() -> None:
    problem = deciding()
    plan = planned(compile_plan(problem, 0.0))
    assert {used.model for used in plan.assignment.values()} == {MIDDLE}
    found = stability(problem, plan)
    assert found.cells[0].cell.name == f"plan on {LARGE}.none"
    assert (found.cells[0].cell.samples, found.cells[0].cell.rate) == (8, 0.87)
    assert found.advice.startswith(f"measure plan on {LARGE}.none next: ")
    assert found.cells[0].value == pytest.approx(found.regret, rel=0.2)
    assert 0 < found.unchanged.value < 1
    assert found.unchanged.interval[0] < found.unchanged.value < found.unchanged.interval[1]
    for node in found.nodes:
        assert node.unchanged.count >= found.unchanged.count
        assert node.other is not None
        assert node.other.model == LARGE
        assert node.other_share.count == found.draws - node.unchanged.count
    assert found.complete


def test_cells_that_are_illegal_unused_or_out_of_reach_are_never_named() -> None:
    problem = deciding()
    found = stability(problem, planned(compile_plan(problem, 0.0)), draws=20, top=EVERY_CELL)
    names = {value.cell.name for value in found.cells}
    assert names <= {f"plan on {MIDDLE}.none", f"plan on {LARGE}.none", "faults at a source node, any, fan-in 0"}
    assert found.cells_used == 4


def test_nothing_flips_without_uncertainty() -> None:
    problem = with_pairs(linked_problem(6), map(certain, linked_problem(6).profiles.pairs))
    plan = planned(compile_plan(problem, 0.0))
    found = stability(problem, plan, draws=10, vulnerability=False)
    assert found.unchanged.count == 10
    assert all(node.unchanged.count == 10 and node.other is None for node in found.nodes)
    assert (found.regret, found.relative_regret, found.cells) == (0.0, 0.0, ())
    assert found.quality_p05 == found.quality_p95 == pytest.approx(plan.estimated_quality)
    assert found.advice == "no cell would change the plan alone"
    assert found.complete


def sure_problem(nodes: int = 6) -> PlanningProblem:
    problem = linked_problem(nodes)
    return with_pairs(problem, [measured(p, 30 + 10 * i) for i, p in enumerate(problem.profiles.pairs)])


def test_the_order_of_the_nodes_does_not_matter() -> None:
    problem = sure_problem()
    turned = replace(problem, workflow=replace(problem.workflow, nodes=problem.workflow.nodes[::-1]))
    one, other = (stability(p, planned(compile_plan(p, 0.0)), draws=30) for p in (problem, turned))
    assert {node.node: node for node in one.nodes} == {node.node: node for node in other.nodes}
    assert [value.cell for value in one.cells] == [value.cell for value in other.cells]
    assert [value.value for value in one.cells] == pytest.approx([value.value for value in other.cells])
    assert len(one.cells) == 5
    assert one.regret == pytest.approx(other.regret)


def test_a_seed_gives_one_result() -> None:
    problem = sure_problem()
    plan = planned(compile_plan(problem, 1.5))
    one, again, other = (stability(problem, plan, draws=20, seed=seed) for seed in (1, 1, 2))
    assert one == again
    assert one.regret != other.regret
    assert one.cells == other.cells
    assert json.loads(json.dumps(one.to_json(), allow_nan=False))["nodes"][0]["unchanged"]["of"] == 20


def test_more_draws_begin_with_the_same_ones() -> None:
    problem = sure_problem()
    plan = planned(compile_plan(problem, 0.0))
    ticks = count()
    hurried = stability(problem, plan, time_limit_s=0, timer=lambda: float(next(ticks)))
    assert (hurried.draws, hurried.draws_asked, hurried.complete) == (1, 200, False)
    assert hurried.cells_settled < hurried.cells_used
    assert str(hurried.cells_used) in hurried.advice
    assert hurried.quality_p50 == stability(problem, plan, draws=1).quality_p50


def test_a_search_that_is_cut_off_says_so() -> None:
    """Regrets are then lower bounds, and never below what the plan itself is worth."""
    problem = sure_problem(12)
    plan = planned(compile_plan(problem, 0.0))
    ticks = count()
    found = stability(problem, plan, draws=1, time_limit_s=0, timer=lambda: float(next(ticks)))
    assert found.unproved == 1
    assert found.regret >= 0.0


def test_one_column_leaves_nothing_to_change() -> None:
    profiles = profile_set([measured(pair(), 5)])
    problem = PlanningProblem(workflow=workflow(llm("only")), catalog=h200_catalog(), profiles=profiles)
    found = stability(problem, planned(compile_plan(problem, 0.0)), draws=50)
    assert (found.unchanged.count, found.regret, found.cells) == (50, 0.0, ())
    assert found.quality_p05 < found.quality_p50 < found.quality_p95


def test_a_workflow_of_tools_has_no_cells() -> None:
    problem = PlanningProblem(workflow=workflow(tool("t")), catalog=h200_catalog(), profiles=profile_set([pair()]))
    found = stability(problem, planned(compile_plan(problem, 0.0)), draws=3)
    assert (found.nodes, found.cells, found.cells_used, found.unchanged.count) == ((), (), 0, 3)
    assert (found.quality_p50, found.regret, found.complete) == (1.0, 0.0, True)


def test_a_plan_that_is_not_optimal_loses_in_every_draw_and_no_cell_is_blamed() -> None:
    pairs = [certain(pair(model=MIDDLE, quality=0.9)), certain(pair(model=LARGE, quality=0.5))]
    problem = PlanningProblem(workflow=workflow(llm("a")), catalog=h200_catalog(), profiles=profile_set(pairs))
    best = planned(compile_plan(problem, 0.0))
    (worse,) = (c.implementation for c in coefficients_of(problem).nodes["a"].columns if c.quality == 0.5)
    found = stability(problem, replace(best, assignment={"a": worse}), draws=5, vulnerability=False)
    assert found.unchanged.count == 0
    assert found.nodes[0].other == best.assignment["a"]
    assert found.regret > 0
    assert found.cells == ()


def test_hundreds_of_nodes_and_hostile_text() -> None:
    skill = 'pl\nan"; <b>\x00'
    pairs = [measured(pair(skill, m, "none", q), 9) for m, q in ((MIDDLE, 0.8), (LARGE, 0.82))]
    ids = [f"{i}\n'\u202e" for i in range(300)]
    graph = workflow(*(llm(i, skill) for i in ids), edges=[*pairwise(ids)])
    problem = PlanningProblem(workflow=graph, catalog=h200_catalog(), profiles=profile_set(pairs))
    found = stability(problem, planned(compile_plan(problem, 0.0)), draws=2, top=1)
    assert [node.node for node in found.nodes] == ids
    assert json.loads(json.dumps(found.to_json()))["cells"][0]["skill"] == skill


@pytest.mark.parametrize("options", [{"draws": 0}, {"top": 0}])
def test_numbers_below_one_are_refused(options: dict[str, int]) -> None:
    problem = deciding()
    with pytest.raises(ValueError, match=f"{next(iter(options))} must be at least 1"):
        stability(problem, planned(compile_plan(problem, 0.0)), **options)  # type: ignore[arg-type]  # by name


def test_caps_and_foreign_plans_are_refused() -> None:
    problem = deciding()
    plan = planned(compile_plan(problem, 0.0))
    with pytest.raises(ValueError, match="ask about the plan without them"):
        stability(replace(problem, limits=Limits(max_cost=9.0)), plan)
    with pytest.raises(ValueError, match="implementation of node n0 is not legal in this problem"):
        stability(linked_problem(2), plan)
    with pytest.raises(ValueError, match="has none: node a"):
        stability(with_pairs(problem, [pair("code")]), plan)


def test_pinned_nodes_use_the_cells_of_their_pins_alone() -> None:
    problem = replace(deciding(), limits=Limits(pinned={"*": (f"{MIDDLE}/none",)}))
    found = stability(problem, planned(compile_plan(problem, 0.0)), draws=5)
    assert (found.unchanged.count, found.cells_used, found.cells) == (5, 2, ())


# --- Beliefs ---------------------------------------------------------------------------------------------------------


def test_a_plain_rate_is_a_beta_and_any_other_interval_counts_as_stated() -> None:
    assert belief_of(measured(pair(quality=0.75), 40)) == Beta(30, 10)
    rounded = replace(pair(quality=0.75), samples=40, interval=(0.6, 0.86))
    assert belief_of(rounded) == Beta(30, 10)
    assert belief_of(pair(quality=0.75)) == SplitNormal(0.75, 0.0, 1.0)
    clustered = replace(pair(quality=0.75), samples=4000, interval=(0.6, 0.86))
    assert belief_of(clustered) == SplitNormal(0.75, 0.6, 0.86)


def test_points_of_a_beta_are_its_quantiles() -> None:
    """Beta(1, 1) is uniform; of Beta(k, 1) the quantile is u^(1/k)."""
    middles = [(i + 0.5) / 10 for i in range(10)]
    assert Beta(0, 0).points(10) == pytest.approx(middles)
    assert Beta(6, 0).points(10) == pytest.approx([u ** (1 / 7) for u in middles], abs=1e-3)
    assert Beta(0, 6).points(10) == pytest.approx([1 - (1 - u) ** (1 / 7) for u in middles], abs=1e-3)
    assert len(Beta(1_000_000_000, 3).points(20)) == 20


def test_a_split_normal_has_the_stated_interval() -> None:
    belief = SplitNormal(0.9, 0.5, 0.95)
    points = belief.points(40)
    assert points[0] == pytest.approx(0.9 + 0.4 * NormalDist().inv_cdf(0.0125) / 1.96)
    assert points[0] < 0.5 < points[1]
    assert max(SplitNormal(0.9, 0.5, 1.0).points(1000)) == 1.0
    assert set(SplitNormal(0.9, 0.9, 0.9).points(5)) == {0.9}


@pytest.mark.parametrize("belief", [Beta(3, 1), Beta(180, 60), SplitNormal(0.7, 0.5, 0.75)])
def test_draws_and_points_are_of_one_distribution(belief: Beta | SplitNormal) -> None:
    rng = Random(0)
    drawn, points = sorted(belief.draw(rng) for _ in range(2000)), belief.points(20)
    spread = points[-1] - points[0]
    for i, point in enumerate(points):
        assert drawn[round((i + 0.5) / 20 * 2000)] == pytest.approx(point, abs=0.05 * spread)


@pytest.mark.parametrize(("rate", "samples"), [(0.8, 240), (1.0, 5), (0.0, 1), (0.5, 1), (0.97, 30)])
def test_so_many_samples_halve_the_interval_and_one_less_does_not(rate: float, samples: int) -> None:
    cell = Cell(kind="quality", skill="s", rate=rate, samples=samples, interval=(0.0, 1.0))

    def width(further: int) -> float:
        low, high = wilson_interval(rate * (samples + further), samples + further)
        return high - low

    assert width(cell.samples_to_halve) <= width(0) / 2 < width(cell.samples_to_halve - 1)
    assert replace(cell, interval=(rate, rate)).samples_to_halve == 0
