"""Limits as values: what is refused, both text forms, pins and prohibitions, and where limits count."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from planner.compiler.bundle import structural_key
from planner.compiler.certificate import verify_plan
from planner.compiler.limits import NO_LIMITS, Limits, LimitsInvalid, check_limits, parse_limits
from planner.compiler.limits.patterns import matches
from planner.compiler.plan import Implementation, Infeasible
from planner.compiler.problem import PlanningProblem
from planner.compiler.solve import compile_plan
from tests.planner.compiler.cases import (
    LARGE,
    MIDDLE,
    SMALL,
    coefficients_of,
    limited_problems,
    linked_problem,
    planned,
    problems,
    used,
    workflow,
)
from tests.sampling import sampled

NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("fields", "name", "message"),
    [
        ({"max_cost": -1.0}, "max_cost", "must not be negative"),
        ({"max_cost": NAN}, "max_cost", "finite"),
        ({"max_tokens": INFINITE}, "max_tokens", "finite"),
        ({"max_makespan_s": "5"}, "max_makespan_s", "finite number, got '5'"),
        ({"max_calls": True}, "max_calls", "finite number, got True"),
        ({"max_calls": 2.5}, "max_calls", "whole number"),
        ({"max_calls": 10**400}, "max_calls", "finite number, at most 1.8e+308"),
        ({"max_cost": -(10**5000)}, "max_cost", "finite number, at most 1.8e+308"),
        ({"min_quality": 1.1}, "min_quality", "between 0 and 1"),
        ({"min_quality": -0.1}, "min_quality", "between 0 and 1"),
        ({"max_model_work_s": {LARGE: -2}}, f"work_s.{LARGE}", "must not be negative"),
        ({"max_model_calls": {LARGE: 1.5}}, f"calls.{LARGE}", "whole number"),
        ({"pinned": {"a": ()}}, "pin.a", "at least one pattern"),
        ({"pinned": {"a": "qwen"}}, "pin.a", "at least one pattern"),
        ({"forbidden": {"a": ("m/p/b/x",)}}, "forbid.a", "is no pattern: write MODEL"),
        ({"forbidden": {"*": ("m//b",)}}, "forbid.*", "is no pattern"),
        ({"forbidden": {"*": (7,)}}, "forbid.*", "is no pattern"),
        ({"pinned": {"a": (" m",)}}, "pin.a", "is no pattern"),
    ],
)
def test_an_impossible_limit_is_refused_by_its_name(fields: dict[str, Any], name: str, message: str) -> None:
    with pytest.raises(LimitsInvalid, match="limit ") as caught:
        Limits(**fields)
    assert list(caught.value.problems) == [name]
    assert message in caught.value.problems[name]
    assert isinstance(caught.value, ValueError)


def test_all_impossible_limits_are_named_at_once_and_hostile_text_is_cut() -> None:
    with pytest.raises(LimitsInvalid) as caught:
        Limits(max_cost=-1, pinned={"a": ("\n" * 500,)}, forbidden={"*": ("x/" * 5000,)})
    assert list(caught.value.problems) == ["max_cost", "pin.a", "forbid.*"]
    assert max(map(len, caught.value.problems.values())) < 200
    assert "\n" not in str(caught.value)


def test_limits_of_zero_and_one_are_limits() -> None:
    limits = Limits(max_cost=0, max_calls=0, min_quality=1)
    assert limits.to_json() == {"max_cost": 0, "max_calls": 0, "min_quality": 1}
    assert (limits.is_empty, limits.coupled) == (False, True)
    assert (NO_LIMITS.is_empty, NO_LIMITS.coupled, NO_LIMITS.to_json()) == (True, False, {})
    assert (Limits(pinned={"a": ("m",)}).is_empty, Limits(pinned={"a": ("m",)}).coupled) == (False, False)
    assert Limits(max_model_calls={"m": 0}).coupled
    assert (Limits(min_quality=0.0).coupled, Limits(min_quality=0.1).coupled) == (False, True)


FULL = Limits(
    max_cost=1.5,
    max_calls=7,
    max_tokens=9000.0,
    max_makespan_s=12.5,
    min_quality=0.8,
    max_model_work_s={LARGE: 30.0},
    max_model_calls={LARGE: 2, SMALL: 0},
    pinned={"*": (MIDDLE, f"{LARGE}/none")},
    forbidden={"a": ("*/debate", f"{LARGE}/*/h200-{LARGE}")},
)
TEXTS = (
    "max_cost=1.5",
    "max_calls=7",
    "max_tokens=9e3",
    "max_makespan_s=12.5",
    "min_quality=0.8",
    f"work_s.{LARGE}=30",
    f"calls.{LARGE}=2",
    f"calls.{SMALL}=0",
    f"pin.*={MIDDLE},{LARGE}/none",
    f"forbid.a=*/debate,{LARGE}/*/h200-{LARGE}",
)


def test_json_and_command_line_say_the_same() -> None:
    assert parse_limits(TEXTS) == FULL
    assert Limits.from_json(FULL.to_json()) == FULL
    assert parse_limits([]) == Limits.from_json({}) == Limits.from_json({"max_cost": None, "pin": None}) == NO_LIMITS
    assert parse_limits(["pin.a=b=c=m"]).pinned == {"a=b=c": ("m",)}


@pytest.mark.parametrize(
    ("texts", "name", "message"),
    [
        (["max_cost"], "max_cost", "write NAME=VALUE"),
        (["=5"], "=5", "write NAME=VALUE"),
        (["max_cost="], "max_cost", "finite number"),
        (["max_cost=cheap"], "max_cost", "finite number, got 'cheap'"),
        (["max_cost=1e999"], "max_cost", "finite"),
        (["max_calls=" + "9" * 400], "max_calls", "finite"),
        (["max_calls=" + "9" * 5000], "max_calls", "finite"),
        (["max_cost=1", "max_cost=2"], "max_cost", "given twice"),
        (["pin.a=m", "pin.a=n"], "pin.a", "separated by commas"),
        (["pin=m"], "pin", "must be an object"),
        (["pin=m", "pin.a=n"], "pin.a", "given twice"),
        (["speed=3"], "speed", "is unknown; limits: max_cost"),
        (["max_cost.a=3"], "max_cost", "finite number"),
        (["pin.a=m,,n"], "pin.a", "'' is no pattern"),
        (["calls.m=1.5"], "calls.m", "whole number"),
        (["calls.=3"], "calls.=3", "write NAME=VALUE"),
        (["pin.=m"], "pin.=m", "write NAME=VALUE"),
        ([".a=m"], ".a=m", "write NAME=VALUE"),
    ],
)
def test_a_wrong_text_is_named_with_a_remedy(texts: list[str], name: str, message: str) -> None:
    with pytest.raises(LimitsInvalid) as caught:
        parse_limits(texts)
    assert message in caught.value.problems[name]


@pytest.mark.parametrize(
    "data", [{"pin": ["m"]}, {"pin": {"a": "m"}}, {"calls": 3}, {"calls": False}, {"max_cost": [1]}, {3: 4}]
)
def test_json_of_another_form_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(LimitsInvalid):
        Limits.from_json(data)


@sampled(60)
@given(case=limited_problems())
def test_limits_survive_json(case: tuple[PlanningProblem, Limits]) -> None:
    assert Limits.from_json(case[1].to_json()) == case[1]


def test_a_limit_that_names_nothing_is_named_with_what_there_is() -> None:
    problem = replace(
        linked_problem(12),
        limits=parse_limits(
            f"pin.nope=* work_s.gpt-9=1 calls.gpt-9=1 forbid.n1=gpt-9 pin.n2={LARGE}/*/h200-{SMALL} "
            f"forbid.*=*/none,*/magic pin.n3={LARGE} max_cost=1".split()
        ),
    )
    wrong = check_limits(problem)
    assert list(wrong) == ["work_s.gpt-9", "calls.gpt-9", "pin.nope", "pin.n2", "forbid.n1", "forbid.*"]
    assert "no LLM node of the workflow; LLM nodes: n0, n1" in wrong["pin.nope"]
    assert f"classes: {SMALL}" in wrong["work_s.gpt-9"]
    assert "'*/magic' matches nothing in the fleet" in wrong["forbid.*"]
    assert "policies: none, self_check" in wrong["forbid.*"]
    assert check_limits(linked_problem(2)) == {}


def test_a_pin_of_no_llm_node_is_never_ignored() -> None:
    problem = replace(linked_problem(2), limits=Limits(pinned={"nope": ("*",)}))
    with pytest.raises(LimitsInvalid, match=r"pin.nope: 'nope' is no LLM node of the workflow; LLM nodes: n0, n1"):
        compile_plan(problem, 0.0)


def test_patterns() -> None:
    """Names are whole names, and a verifier is not looked at."""
    implementation = Implementation(model="m", backend="b", policy="p", verifier_model="v", verifier_backend="w")
    for pattern in ("*", "m", "m/p", "m/p/b", "*/p", "*/*/b", "m/*/b"):
        assert matches(pattern, implementation)
    for pattern in ("x", "*/x", "m/p/x", "M", "m*", "v", "*/*/w"):
        assert not matches(pattern, implementation)


@sampled(60)
@given(case=limited_problems())
def test_pins_change_neither_references_nor_the_value_of_a_plan(case: tuple[PlanningProblem, Limits]) -> None:
    problem, limits = case
    free = coefficients_of(problem)
    pinned = replace(problem, limits=Limits(pinned=limits.pinned, forbidden=limits.forbidden))
    if isinstance(pinned.coefficients, Infeasible):
        assert pinned.coefficients.conflicts
        return
    ours = pinned.coefficients
    assert (ours.t_ref, ours.k_ref, ours.d_ref) == (free.t_ref, free.k_ref, free.d_ref)
    plan, best = planned(compile_plan(pinned, 1.5)), planned(compile_plan(problem, 1.5))
    assert plan.objective <= best.objective + 1e-9
    assert verify_plan(pinned, plan) == ()


@sampled(40)
@given(problem=problems())
def test_a_pin_to_the_optimal_implementation_changes_nothing(problem: PlanningProblem) -> None:
    best = planned(compile_plan(problem, 0.0))
    pinned = {n: (f"{i.model}/{i.policy}/{i.backend}",) for n, i in best.assignment.items()}
    plan = planned(compile_plan(replace(problem, limits=Limits(pinned=pinned)), 0.0))
    assert (plan.assignment, plan.objective, plan.terms) == (best.assignment, best.objective, best.terms)


def test_limits_that_overlap_all_hold() -> None:
    problem = linked_problem(3)
    limits = Limits(pinned={"*": (LARGE, MIDDLE), "n1": (f"{LARGE}/none", "*/debate")}, forbidden={"*": ("*/debate",)})
    plan = planned(compile_plan(replace(problem, limits=limits), 0.0))
    assert (plan.assignment["n1"].model, plan.assignment["n1"].policy) == (LARGE, "none")


CHANGES = [
    {"max_cost": 1.0},
    {"max_cost": 2.0},
    {"max_tokens": 1.0},
    {"max_model_calls": {LARGE: 1}},
    {"max_model_work_s": {LARGE: 1}},
    {"pinned": {"n0": (LARGE,)}},
    {"pinned": {"n1": (LARGE,)}},
    {"pinned": {"*": (LARGE,)}},
    {"forbidden": {"n0": (LARGE,)}},
    {"forbidden": {"n0": (LARGE, MIDDLE)}},
]


def test_every_limit_changes_the_key_and_node_ids_do_not() -> None:
    problem = linked_problem(3)
    keys = {structural_key(replace(problem, limits=Limits(**fields))) for fields in CHANGES}  # type: ignore[arg-type]
    assert len(keys | {structural_key(problem)}) == len(CHANGES) + 1
    names = {"n0": "z", "n1": "y", "n2": "x"}
    other = replace(
        problem,
        workflow=workflow(
            *(replace(node, id=names[node.id]) for node in problem.workflow.llm_nodes),
            edges=[(names[a], names[b]) for a, b in problem.workflow.edges],
        ),
    )
    one = structural_key(replace(problem, limits=Limits(pinned={"n0": (LARGE, MIDDLE)})))
    assert one == structural_key(replace(other, limits=Limits(pinned={"z": (MIDDLE, LARGE)})))


def test_the_certificate_reports_every_limit_that_a_plan_breaks() -> None:
    problem = linked_problem(4)
    plan = planned(compile_plan(problem, 0.0))
    coefficients = coefficients_of(problem)
    amounts = used(coefficients, {n: coefficients.nodes[n].column(i) for n, i in plan.assignment.items()})  # type: ignore[misc]
    for name, amount in amounts.items():
        whole = name == "max_calls" or name.startswith("calls.")
        if amount == 0:
            continue
        exact = Limits.from_json({}) if whole else parse_limits([f"{name}={amount!r}"])
        assert verify_plan(replace(problem, limits=exact), plan) == ()
        tight = amount - 1 if whole else amount * (1 + 1e-6) if name == "min_quality" else amount * (1 - 1e-6)
        said = verify_plan(replace(problem, limits=parse_limits([f"{name}={tight!r}"])), plan)
        assert len(said) == 1
        assert f"limit {name}=" in said[0]
    used_by_n0 = plan.assignment["n0"]
    said = verify_plan(replace(problem, limits=Limits(forbidden={"n0": (f"*/{used_by_n0.policy}",)})), plan)
    assert said == (
        f"node n0: {used_by_n0.model}/{used_by_n0.policy}/{used_by_n0.backend} breaks limit "
        f"forbid.n0=*/{used_by_n0.policy}",
    )
    assert len(verify_plan(replace(problem, limits=Limits(pinned={"*": ("other",)})), plan)) == 4
