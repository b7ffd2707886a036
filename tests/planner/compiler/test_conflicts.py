"""Conflicting limits against brute force: the set is irreducible, each change suffices and none smaller does."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from planner.compiler.evaluate import Choice
from planner.compiler.limits import Limits, conflicts, parse_limits
from planner.compiler.limits.patterns import excludes, pattern_of
from planner.compiler.plan import Conflict, Infeasible
from planner.compiler.problem import PlanningProblem
from planner.compiler.solve import compile_plan
from tests.planner.compiler.cases import (
    LARGE,
    MIDDLE,
    all_choices,
    best_within,
    coefficients_of,
    h200_catalog,
    keeps_limits,
    limits_for,
    linked_problem,
    llm,
    pair,
    planned,
    problems,
    profile_set,
    used,
    workflow,
)
from tests.sampling import sampled

CASES_OF_ROUNDING = [
    (1.70312, False, 1.704),
    (1.70312, True, 1.703),
    (1.7, False, 1.7),
    (0.99999, True, 0.9999),
    (0.99999, False, 1.0),
    (123456.0, False, 123500.0),
    (9999.6, False, 10000.0),
    (0.0, True, 0.0),
]


@st.composite
def tight_problems(draw: st.DrawFn) -> tuple[PlanningProblem, Limits]:
    """Limits of which many conflict: what is cheapest or fastest, with nearly the best quality there is."""
    problem = draw(problems(max_nodes=3))
    amounts = [used(coefficients_of(problem), choice) for choice in all_choices(coefficients_of(problem))]
    texts = {
        name: min(a[name] for a in amounts) * draw(st.sampled_from([0.9, 1.0, 1.1, 1.3]))
        for name in draw(st.sets(st.sampled_from(["max_cost", "max_makespan_s", "max_tokens", f"work_s.{LARGE}"])))
    }
    if draw(st.booleans()):
        best = max(a["min_quality"] for a in amounts)
        texts["min_quality"] = min(1.0, best * draw(st.sampled_from([0.95, 1.0, 1.05])))
    others = draw(limits_for(problem, max_limits=3)).values()
    all_texts = {n: ",".join(v) if isinstance(v, tuple) else repr(v) for n, v in (others | texts).items()}
    return problem, parse_limits(f"{name}={value}" for name, value in all_texts.items())


def as_texts(limits: Limits) -> dict[str, str]:
    return {n: ",".join(v) if isinstance(v, tuple) else repr(v) for n, v in limits.values().items()}


def parsed(texts: Mapping[str, str]) -> Limits:
    return parse_limits(f"{name}={value}" for name, value in texts.items())


def only(limits: Limits, names: set[str]) -> Limits:
    return parsed({name: text for name, text in as_texts(limits).items() if name in names})


def possible(problem: PlanningProblem, limits: Limits) -> bool:
    return best_within(coefficients_of(problem), 0.0, limits) is not None


@sampled(100)
@given(case=tight_problems())
def test_a_conflict_is_irreducible_and_its_changes_are_the_least(case: tuple[PlanningProblem, Limits]) -> None:
    problem, limits = case
    result = compile_plan(replace(problem, limits=limits), 0.0)
    assume(isinstance(result, Infeasible))
    assert isinstance(result, Infeasible)
    names = {conflict.limit for conflict in result.conflicts}
    assert names
    assert not possible(problem, only(limits, names))
    for conflict in result.conflicts:
        others = only(limits, names - {conflict.limit})
        assert possible(problem, others)
        assert conflict.least
        assert conflict.text in result.text
        check = check_patterns if conflict.limit.startswith(("pin.", "forbid.")) else check_number
        check(problem, others, conflict)


def check_number(problem: PlanningProblem, others: Limits, conflict: Conflict) -> None:
    """`needed` is the least of any plan that keeps the others, and as the limit it suffices."""
    coefficients, name = coefficients_of(problem), conflict.limit
    kept = [choice for choice in all_choices(coefficients) if keeps_limits(coefficients, choice, others)]
    amounts = [used(coefficients, choice)[name] for choice in kept]
    assert isinstance(conflict.needed, float)
    assert conflict.needed == pytest.approx(
        max(amounts) if name == "min_quality" else min(amounts), rel=1e-6, abs=1e-12
    )
    whole = name == "max_calls" or name.startswith("calls.")
    needed = str(int(conflict.needed)) if whole else repr(conflict.needed)
    assert possible(problem, parsed(as_texts(others) | {name: needed}))


def check_patterns(problem: PlanningProblem, others: Limits, conflict: Conflict) -> None:
    """Some plan of the others uses nothing that is ruled out but `needed`, at as few nodes as any."""
    coefficients, key = coefficients_of(problem), conflict.limit.partition(".")[2]
    alone, allowed = parsed({conflict.limit: str(conflict.asked)}), str(conflict.needed).split(",")

    def ruled_out(choice: Choice) -> list[str]:
        """The patterns of the columns that the limit rules out, one for each node that uses one."""
        nodes = [n for n in choice if key in ("*", n)]
        return [
            pattern_of(choice[n].implementation)
            for n in nodes
            if excludes(alone, conflict.limit, choice[n].implementation)
        ]

    kept = [ruled_out(c) for c in all_choices(coefficients) if keeps_limits(coefficients, c, others)]
    fewest = min(map(len, kept))
    assert any(len(patterns) == fewest and set(patterns) <= set(allowed) for patterns in kept)


def test_a_conflict_of_caps_reads_as_advice() -> None:
    problem = costly_or_good(max_cost=6.0, min_quality=0.9, max_tokens=1e6)
    result = compile_plan(problem, 0.0)
    assert isinstance(result, Infeasible)
    assert result.proved
    first = result.reasons[0]
    assert first == "no plan keeps max_cost=6 and min_quality=0.9"
    assert {c.limit: c.asked for c in result.conflicts} == {"max_cost": 6.0, "min_quality": 0.9}
    assert "raise max_cost from 6 to at least 16.2" in result.text
    assert "lower min_quality from 0.9 to at most 0." in result.text


def costly_or_good(**limits: object) -> PlanningProblem:
    """Two nodes: the middle class is cheap, the large one is good."""
    pairs = [pair(model=MIDDLE, quality=0.5), pair(model=LARGE, quality=0.99)]
    return PlanningProblem(
        workflow=workflow(llm("a"), llm("b"), edges=[("a", "b")]),
        catalog=h200_catalog(),
        profiles=profile_set(pairs, vulnerability=0.9),
        limits=Limits(**limits),  # type: ignore[arg-type]  # test shorthand
    )


@pytest.mark.parametrize(("value", "down", "shown"), CASES_OF_ROUNDING)
def test_a_shown_number_suffices(value: float, down: bool, shown: float) -> None:
    assert conflicts._rounded(value, down=down) == shown


def test_a_pin_that_a_cap_forbids_names_what_to_allow() -> None:
    problem = costly_or_good(max_cost=12.0, pinned={"a": (LARGE,), "b": (LARGE,)})
    result = compile_plan(problem, 0.0)
    assert isinstance(result, Infeasible)
    needed = {conflict.limit: conflict.needed for conflict in result.conflicts}
    pattern = f"{MIDDLE}/none/h200-{MIDDLE}"
    assert needed["pin.a"] == needed["pin.b"] == pattern
    assert f"let node a use {pattern}, which pin.a={LARGE} rules out" in result.reasons


def test_limits_that_conflict_twice_say_so() -> None:
    problem = costly_or_good(max_cost=4.0, min_quality=0.9, max_makespan_s=0.001)
    result = compile_plan(problem, 0.0)
    assert isinstance(result, Infeasible)
    assert result.reasons[-1] == "the other limits conflict with each other as well"


def test_a_node_without_a_column_names_its_patterns_and_the_least_change() -> None:
    problem = costly_or_good(pinned={"a": (LARGE,)}, forbidden={"*": (f"{LARGE}/none", "*/debate")}, max_cost=1.0)
    result = compile_plan(problem, 0.0)
    assert isinstance(result, Infeasible)
    assert [(c.limit, c.needed) for c in result.conflicts] == [
        ("pin.a", f"{MIDDLE}/none/h200-{MIDDLE}"),
        ("forbid.*", f"{LARGE}/none/h200-{LARGE}"),
    ]
    assert result.reasons[0].startswith(f"node a has no implementation left by pin.a={LARGE} and forbid.*={LARGE}/none")


def test_without_time_the_conflict_is_unproved_or_less_precise_and_never_wrong() -> None:
    problem = linked_problem(30)
    free = planned(compile_plan(problem, 0.0))
    tight = Limits(max_cost=0.8 * free.cost, min_quality=free.estimated_quality)
    coefficients = coefficients_of(replace(problem, limits=tight))
    hurried, patient = (conflicts.explained(coefficients, time.perf_counter() + s) for s in (-1.0, 60.0))
    assert {c.limit for c in hurried.conflicts} == {"max_cost", "min_quality"}
    exact = {conflict.limit: conflict.needed for conflict in patient.conflicts}
    for conflict in hurried.conflicts:
        assert not conflict.least
        if conflict.needed is not None:
            assert (conflict.needed >= exact[conflict.limit]) == (conflict.limit == "max_cost")  # type: ignore[operator]


def test_past_the_grace_nothing_more_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conflicts, "GRACE_S", -3600.0)
    limits = Limits(max_cost=6.0, min_quality=0.9, max_tokens=1e6, pinned={"a": (LARGE,)})
    problem = replace(costly_or_good(), limits=limits)
    result = conflicts.explained(coefficients_of(problem), time.perf_counter())
    assert {c.limit: c.needed for c in result.conflicts} == dict.fromkeys(limits.values())
    assert result.proved


def test_hundreds_of_pins_are_left_out_in_halves() -> None:
    """Two hundred nodes in a row, each pinned: one of them alone is too dear."""
    nodes = [llm(f"n{i}") for i in range(200)]
    pairs = [pair(model=MIDDLE, quality=0.5), pair(model=LARGE, quality=0.9)]
    problem = PlanningProblem(
        workflow=workflow(*nodes, edges=[(f"n{i}", f"n{i + 1}") for i in range(199)]),
        catalog=h200_catalog(),
        profiles=profile_set(pairs),
    )
    pinned = {f"n{i}": (MIDDLE if i != 77 else LARGE,) for i in range(200)}
    result = compile_plan(replace(problem, limits=Limits(pinned=pinned, max_model_calls={LARGE: 0})), 0.0)
    assert isinstance(result, Infeasible)
    assert {(c.limit, c.needed) for c in result.conflicts} == {
        ("pin.n77", f"{MIDDLE}/none/h200-{MIDDLE}"),
        (f"calls.{LARGE}", 1.0),
    }


def test_the_quality_of_many_nodes_is_tiny_and_still_the_greatest() -> None:
    """Sixty equal nodes in parallel, of which the cost allows ten to use the large class."""
    pairs = [pair(model=MIDDLE, quality=0.5), pair(model=LARGE, quality=0.99)]
    problem = PlanningProblem(
        workflow=workflow(*(llm(f"n{i}") for i in range(61)), edges=[(f"n{i}", "n60") for i in range(60)]),
        catalog=h200_catalog(),
        profiles=profile_set(pairs, vulnerability=0.9),
    )
    coefficients = coefficients_of(problem)
    cheap, good = sorted(coefficients.nodes["n60"].columns, key=lambda column: column.cost)
    after = [1 - coefficients.nodes["n0"].residual_risk(column) for column in (cheap, good)]
    greatest = after[0] ** 51 * after[1] ** 10
    cost = 51 * cheap.cost + 10 * good.cost
    result = compile_plan(replace(problem, limits=Limits(max_cost=cost, min_quality=2 * greatest)), 0.0)
    assert isinstance(result, Infeasible)
    assert greatest < 1e-12
    assert {c.limit: c.needed for c in result.conflicts}["min_quality"] == pytest.approx(greatest, rel=1e-9)


def test_a_quality_that_no_plan_has_at_all() -> None:
    """Pinned to a class that is always wrong where it matters: the only quality left is 0."""
    pairs = [pair(model=MIDDLE, quality=0.0), pair(model=LARGE, quality=0.9)]
    problem = PlanningProblem(
        workflow=workflow(llm("a")),
        catalog=h200_catalog(),
        profiles=profile_set(pairs, vulnerability=1.0),
        limits=Limits(min_quality=0.5, pinned={"*": (MIDDLE,)}),
    )
    result = compile_plan(problem, 0.0)
    assert isinstance(result, Infeasible)
    assert {c.limit: c.needed for c in result.conflicts} == {
        "min_quality": 0.0,
        "pin.*": f"{LARGE}/none/h200-{LARGE}",
    }
