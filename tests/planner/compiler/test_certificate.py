"""The certificate accepts what the compiler makes and catches every kind of tampering."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from planner.compiler.bundle import compile_bundle
from planner.compiler.certificate import verify_plan
from planner.compiler.plan import Implementation, Plan
from planner.compiler.pricing import fleet_pricing
from planner.compiler.problem import PlanningProblem
from planner.compiler.solve import compile_plan, plan_digest
from tests.planner.compiler.cases import (
    JSON_OUTPUT,
    LARGE,
    MIDDLE,
    SMALL,
    bundled,
    h200_catalog,
    llm,
    pair,
    planned,
    profile_set,
    tool,
    workflow,
)


def problem() -> PlanningProblem:
    pairs = [
        pair(model=SMALL, policy="none", quality=0.5),
        pair(model=MIDDLE, policy="none", quality=0.7),
        pair(model=MIDDLE, policy="cross_check", quality=0.95, verifier_model=LARGE),
        pair(model=LARGE, policy="none", quality=0.75),
        pair(model=LARGE, policy="self_consistency", quality=0.76),
    ]
    graph = workflow(
        llm("a"), tool("t", 2.34), llm("b", output=JSON_OUTPUT, models=(MIDDLE, LARGE)), llm("c"),
        edges=[("a", "t"), ("t", "b"), ("a", "c")], output="b",
    )  # fmt: skip
    return PlanningProblem(
        workflow=graph, catalog=h200_catalog(), profiles=profile_set(pairs), known_prompt_tokens={"a": 300}
    )


@pytest.fixture(scope="module")
def planning() -> PlanningProblem:
    return problem()


@pytest.fixture(scope="module")
def plan(planning: PlanningProblem) -> Plan:
    return planned(compile_plan(planning, 1.5))


def test_compiled_bundles_are_clean(planning: PlanningProblem) -> None:
    for variant in bundled(compile_bundle(planning)).variants:
        assert verify_plan(planning, variant) == ()
    paper = replace(planning, demand="tau")
    assert verify_plan(paper, planned(compile_plan(paper, 3.0))) == ()


def redigested(plan: Plan) -> Plan:
    return replace(plan, digest=plan_digest(plan))


def scaled(values: dict[str, float], name: str) -> dict[str, float]:
    return {**values, name: values[name] * 1.01 + 0.001}


NUMBERS: list[tuple[str, Callable[[Plan], Plan]]] = [
    ("objective", lambda p: replace(p, objective=p.objective + 1e-3)),
    ("term quality", lambda p: replace(p, terms=scaled(dict(p.terms), "quality"))),
    ("term risk", lambda p: replace(p, terms=scaled(dict(p.terms), "risk"))),
    ("term latency", lambda p: replace(p, terms=scaled(dict(p.terms), "latency"))),
    ("term cost", lambda p: replace(p, terms=scaled(dict(p.terms), "cost"))),
    ("term demand", lambda p: replace(p, terms=scaled(dict(p.terms), "demand"))),
    ("makespan_s", lambda p: replace(p, makespan_s=p.makespan_s - 0.01)),
    ("estimated_quality", lambda p: replace(p, estimated_quality=p.estimated_quality + 0.01)),
    ("cost", lambda p: replace(p, cost=p.cost * 0.9)),
    ("demand", lambda p: replace(p, demand={**p.demand, "other": 1.0})),
    ("duration", lambda p: replace(p, durations_s=scaled(dict(p.durations_s), "t"))),
    ("dominant_model", lambda p: replace(p, dominant_model=SMALL)),
    ("dominant_model", lambda p: replace(p, dominant_model=None)),
    ("versions", lambda p: replace(p, versions={**p.versions, "profiles": "p0"})),
    ("digest", lambda p: replace(p, digest="0" * 16)),
    ("digest", lambda p: replace(p, level=0.0)),
    ("level", lambda p: redigested(replace(p, level=-1.5, terms={**p.terms, "demand": -p.terms["demand"]}))),
    ("level", lambda p: replace(p, level=float("nan"))),
    ("gap", lambda p: replace(p, gap=-0.1)),
    ("gap", lambda p: replace(p, gap=float("nan"))),
    ("solve_s", lambda p: replace(p, solve_s=float("inf"))),
]


@pytest.mark.parametrize(("what", "tamper"), NUMBERS)
def test_a_changed_number_is_named(
    planning: PlanningProblem, plan: Plan, what: str, tamper: Callable[[Plan], Plan]
) -> None:
    found = verify_plan(planning, tamper(plan))
    assert any(line.startswith(what) for line in found), found


def test_a_plan_without_work_has_no_dominant_model_or_one_that_it_uses(planning: PlanningProblem) -> None:
    tools = replace(planning, workflow=workflow(tool("t")), known_prompt_tokens={})
    instant = tuple(
        replace(b, rates=replace(b.rates, prefill_base_s=0.0, prefill_per_token_s=0.0))
        for b in planning.catalog.backends
    )
    silent = profile_set([pair(output_tokens=0)])
    no_time = replace(tools, workflow=workflow(llm("a")), profiles=silent)
    no_time = replace(no_time, catalog=replace(planning.catalog, backends=instant))
    for case, dominant in ((tools, None), (no_time, LARGE)):
        plan = planned(compile_plan(case, 0.0))
        assert (plan.dominant_model, verify_plan(case, plan)) == (dominant, ())
        wrong = verify_plan(case, replace(plan, dominant_model=MIDDLE))
        assert wrong == (f"dominant_model is {MIDDLE}, the largest share of work is {dominant}",)


PRICED: list[tuple[str, Callable[[Plan], Plan]]] = [
    ("objective", lambda p: replace(p, objective=p.objective + 1e-3)),
    ("term log_quality", lambda p: replace(p, terms=scaled(dict(p.terms), "log_quality"))),
    ("term gpu", lambda p: replace(p, terms=scaled(dict(p.terms), "gpu"))),
    ("term latency", lambda p: replace(p, terms=scaled(dict(p.terms), "latency"))),
    ("term cost", lambda p: replace(p, terms={**p.terms, "cost": 0.0})),
    ("versions", lambda p: replace(p, versions={k: v for k, v in p.versions.items() if k != "pricing"})),
]


@pytest.mark.parametrize(("what", "tamper"), PRICED)
def test_a_changed_number_of_a_priced_plan_is_named(
    planning: PlanningProblem, what: str, tamper: Callable[[Plan], Plan]
) -> None:
    priced = replace(planning, pricing=fleet_pricing(planning.catalog))
    plan = planned(compile_plan(priced, 0.04))
    assert verify_plan(priced, plan) == ()
    found = verify_plan(priced, tamper(plan))
    assert any(line.startswith(what) for line in found), found


def test_gpu_seconds_are_derived_with_and_without_a_fit(planning: PlanningProblem) -> None:
    """The two ways differ, so that each plan is wrong under the other's rates."""
    fitted = tuple(
        replace(b, rates=replace(b.rates, step_base_s=0.1, step_per_sequence_s=0.01)) for b in planning.catalog.backends
    )
    pricing = fleet_pricing(planning.catalog)
    cases = [
        replace(planning, pricing=pricing),
        replace(planning, pricing=pricing, catalog=replace(planning.catalog, backends=fitted)),
    ]
    plans = [planned(compile_plan(case, 0.04)) for case in cases]
    for case, own, other in zip(cases, plans, reversed(plans), strict=True):
        assert verify_plan(case, own) == ()
        assert any(line.startswith("term gpu") for line in verify_plan(case, other))


def assigned(plan: Plan, node: str, **change: str | None) -> Plan:
    implementation = replace(plan.assignment[node], **change)  # type: ignore[arg-type]  # fields of Implementation
    return redigested(replace(plan, assignment={**plan.assignment, node: implementation}))


def large(policy: str) -> dict[str, str | None]:
    return {
        "model": LARGE,
        "backend": f"h200-{LARGE}",
        "policy": policy,
        "verifier_model": None,
        "verifier_backend": None,
    }


ILLEGAL: list[tuple[str, Callable[[Plan], Plan]]] = [
    ("policy prayer is not allowed", lambda p: assigned(p, "a", policy="prayer")),
    ("is not allowed", lambda p: assigned(p, "b", model=SMALL, backend=f"h200-{SMALL}")),
    ("is not allowed", lambda p: assigned(p, "a", backend="nowhere")),
    ("cannot be compared", lambda p: assigned(p, "a", **large("self_consistency"))),
    ("not profiled", lambda p: assigned(p, "a", **large("debate"))),
    ("verifier must be a larger class", lambda p: assigned(p, "a", **large("cross_check"))),
    ("verifier must be", lambda p: assigned(p, "a", **{**large("none"), "verifier_model": LARGE})),
    ("needs a model and a backend", lambda p: assigned(p, "a", **{**large("none"), "verifier_backend": "x"})),
    (
        "no LLM node",
        lambda p: replace(p, assignment={**p.assignment, "t": Implementation(model=LARGE, backend="x", policy="none")}),
    ),
    (
        "LLM node c has no implementation",
        lambda p: replace(p, assignment={k: v for k, v in p.assignment.items() if k != "c"}),
    ),
]


@pytest.mark.parametrize(("what", "tamper"), ILLEGAL)
def test_an_illegal_assignment_is_named(
    planning: PlanningProblem, plan: Plan, what: str, tamper: Callable[[Plan], Plan]
) -> None:
    found = verify_plan(planning, tamper(plan))
    assert any(what in line for line in found), found


def test_a_verifier_backend_of_another_model_is_caught(planning: PlanningProblem, plan: Plan) -> None:
    crossed = assigned(
        plan,
        "b",
        model=MIDDLE,
        backend=f"h200-{MIDDLE}",
        policy="cross_check",
        verifier_model=LARGE,
        verifier_backend=f"h200-{SMALL}",
    )
    assert any("does not serve" in line for line in verify_plan(planning, crossed))


def test_another_legal_assignment_is_not_what_the_plan_says(planning: PlanningProblem, plan: Plan) -> None:
    other = assigned(plan, "a", **large("none"))
    if other.assignment == plan.assignment:
        other = assigned(plan, "a", model=MIDDLE, backend=f"h200-{MIDDLE}")
    assert any(line.startswith("objective") for line in verify_plan(planning, other))


def test_a_shorter_context_makes_the_plan_illegal(planning: PlanningProblem, plan: Plan) -> None:
    short = replace(planning, catalog=h200_catalog(context_tokens=512))
    assert any("too short" in line for line in verify_plan(short, plan))
