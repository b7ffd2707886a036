"""The baselines against the optimum, and each rule on a problem whose answer is known."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.compiler.baselines import BASELINES, exhaustive
from planner.compiler.baselines.collapsed import collapsed
from planner.compiler.certificate import verify_plan
from planner.compiler.evaluate import evaluate
from planner.compiler.limits import Limits
from planner.compiler.plan import Infeasible, Plan
from planner.compiler.pricing import fleet_pricing
from planner.compiler.problem import PlanningProblem
from planner.compiler.profile import PairProfile
from planner.compiler.solve import compile_plan
from planner.compiler.vulnerability import VulnerabilityCell, VulnerabilityTable
from planner.compiler.weights import Weights
from planner.compiler.workflow import LlmNode, Workflow
from tests.planner.compiler.cases import (
    LARGE,
    MIDDLE,
    POLICIES_IN_CASES,
    SMALL,
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

few = sampled(25)
NAMES = tuple(BASELINES)


def chosen(name: str, problem: PlanningProblem, level: float = 0.0) -> dict[str, str]:
    """The labels a baseline chooses, by node."""
    return {node: impl.label for node, impl in planned(BASELINES[name](problem, level)).assignment.items()}


@st.composite
def any_problems(draw: st.DrawFn) -> PlanningProblem:
    problem = draw(problems())
    return replace(problem, pricing=fleet_pricing(problem.catalog)) if draw(st.booleans()) else problem


@few
@given(problem=any_problems(), level=st.sampled_from([0.0, 0.04, 3.0]))
def test_no_baseline_is_better_than_the_optimum_and_the_exhaustive_one_is_it(
    problem: PlanningProblem, level: float
) -> None:
    best = planned(compile_plan(problem, level)).objective
    for name, baseline in BASELINES.items():
        plan = planned(baseline(problem, level))
        assert plan.objective <= best + 1e-9
        assert plan.objective + plan.gap * max(abs(plan.objective), 1e-9) >= best - 1e-9
        assert plan.solver == f"baseline:{name}"
        assert verify_plan(problem, plan) == ()
    found = planned(BASELINES["exhaustive"](problem, level))
    assert found.objective == pytest.approx(best, abs=1e-9)
    assert found.gap == 0.0


@few
@given(problem=any_problems())
def test_the_same_problem_gives_the_same_plan(problem: PlanningProblem) -> None:
    for baseline in BASELINES.values():
        first, again = (planned(baseline(problem, 1.5)) for _ in range(2))
        assert (first.digest, first.objective) == (again.digest, again.objective)


# --- The single rules ------------------------------------------------------------------------------------------------


def problem_of(*pairs: PairProfile, graph: Workflow | None = None, vulnerability: float = 0.4) -> PlanningProblem:
    return PlanningProblem(
        workflow=graph or workflow(llm("a"), llm("b"), edges=[("a", "b")]),
        catalog=h200_catalog(),
        profiles=profile_set(pairs, vulnerability),
    )


def test_fixed_model_takes_the_largest_legal_class_without_verification() -> None:
    graph = workflow(llm("a"), llm("b", models=(SMALL, MIDDLE)), llm("c", policies=("debate", "self_check")))
    problem = problem_of(
        *(pair(model=model, policy="none", quality=0.9 if model == SMALL else 0.5) for model in (SMALL, MIDDLE, LARGE)),
        pair(policy="self_check", quality=0.9),
        pair(policy="debate", quality=0.99),
        graph=graph,
    )
    expected = {"a": f"{LARGE}.none", "b": f"{MIDDLE}.none", "c": f"{LARGE}.self_check"}
    for level in (0.0, 3.0):
        assert chosen("fixed_model", problem, level) == expected


def test_verify_all_takes_the_verifier_of_the_highest_profiled_quality_even_where_none_helps() -> None:
    graph = workflow(llm("a"), llm("b", policies=("none",)), llm("c", "code"))
    problem = problem_of(
        pair(policy="none", quality=0.9), pair(policy="self_check", quality=0.6), pair(policy="debate", quality=0.8),
        pair(model=MIDDLE, policy="debate", quality=0.95), pair("code", policy="none", quality=0.5),
        pair("code", policy="debate", quality=0.7), pair("code", policy="self_check", quality=0.7),
        graph=graph,
    )  # fmt: skip
    assert chosen("verify_all", problem) == {"a": f"{LARGE}.debate", "b": f"{LARGE}.none", "c": f"{LARGE}.self_check"}


def exposed(role_flips: dict[str, int]) -> VulnerabilityTable:
    """Flips of 1,000 pairs by role; of one skill only, so that skills make no difference to the position."""
    cells = [
        VulnerabilityCell(role=role, skill="plan", fan_in=fan_in, pairs=1000, flips=role_flips[role])  # type: ignore[arg-type]
        for role, fan_in in (("source", "0"), ("intermediate", "1-2"), ("terminal", "1-2"))
    ]
    return VulnerabilityTable(cells=tuple(cells), pseudo_pairs=0)


def test_sherlock_style_verifies_by_position_within_half_of_what_verify_all_adds() -> None:
    """Four equal nodes, so that the budget is that of two: the most exposed positions get it, in file order."""
    graph = workflow(*(llm(n) for n in "abcd"), edges=[("a", "b"), ("b", "c"), ("c", "d")])
    problem = problem_of(pair(policy="none", quality=0.6), pair(policy="self_check", quality=0.8), graph=graph)
    for flips, verified in (
        ({"source": 100, "intermediate": 200, "terminal": 900}, "bd"),
        ({"source": 100, "intermediate": 900, "terminal": 200}, "bc"),
        ({"source": 900, "intermediate": 100, "terminal": 200}, "ad"),
    ):
        profiles = replace(problem.profiles, vulnerability=exposed(flips))
        found = chosen("sherlock_style", replace(problem, profiles=profiles))
        assert {n for n, label in found.items() if label == f"{LARGE}.self_check"} == set(verified)


def test_sherlock_style_knows_no_skills_and_wants_an_error_saved() -> None:
    """By skill only `code` is exposed; by position both nodes are equal, and `plan` gains more a second."""
    graph = workflow(llm("x"), llm("y", "code"), tool("t"), edges=[("x", "t"), ("y", "t")])
    cells = (
        VulnerabilityCell(role="source", skill="plan", fan_in="0", pairs=1000, flips=0),
        VulnerabilityCell(role="source", skill="code", fan_in="0", pairs=1000, flips=900),
    )
    problem = problem_of(
        pair(policy="none", quality=0.5), pair(policy="self_check", quality=0.9),
        pair("code", policy="none", quality=0.5), pair("code", policy="self_check", quality=0.8),
        graph=graph,
    )  # fmt: skip
    profiles = replace(problem.profiles, vulnerability=VulnerabilityTable(cells=cells, pseudo_pairs=0))
    assert chosen("sherlock_style", replace(problem, profiles=profiles)) == {
        "x": f"{LARGE}.self_check",
        "y": f"{LARGE}.none",
    }
    useless = [replace(p, quality=0.5) if p.skill == "plan" else p for p in profiles.pairs]
    assert chosen("sherlock_style", replace(problem, profiles=replace(profiles, pairs=tuple(useless)))) == {
        "x": f"{LARGE}.none",
        "y": f"{LARGE}.self_check",
    }
    harmful = tuple(replace(p, quality=0.5 if p.policy == "none" else 0.4) for p in profiles.pairs)
    assert set(chosen("sherlock_style", replace(problem, profiles=replace(profiles, pairs=harmful))).values()) == {
        f"{LARGE}.none"
    }


def best_among(problem: PlanningProblem, level: float, allowed: dict[str, set[tuple[str, str]]]) -> float:
    """The best objective of the assignments whose (model, policy) pairs are allowed."""
    coefficients = coefficients_of(problem)
    return max(
        evaluate(coefficients, choice, level).objective
        for choice in all_choices(coefficients)
        if all((c.implementation.model, c.implementation.policy) in allowed[n] for n, c in choice.items())
    )


def menu_pairs(problem: PlanningProblem) -> dict[str, set[tuple[str, str]]]:
    return {
        n: {(c.implementation.model, c.implementation.policy) for c in node.columns}
        for n, node in coefficients_of(problem).nodes.items()
    }


def only(pairs: dict[str, set[tuple[str, str]]], part: int, values: dict[str, str]) -> dict[str, set[tuple[str, str]]]:
    return {n: {p for p in of_node if p[part] == values[n]} for n, of_node in pairs.items()}


@few
@given(problem=any_problems(), level=st.sampled_from([0.0, 0.04, 3.0]))
def test_each_stage_of_the_sequential_methods_is_the_best_for_the_whole_workflow(
    problem: PlanningProblem, level: float
) -> None:
    """All three policies are profiled for both classes here, so that `none` is legal everywhere."""
    pairs = menu_pairs(problem)
    everywhere = dict.fromkeys(pairs)
    verifier_only = planned(BASELINES["verifier_only"](problem, level))
    assert verifier_only.objective == pytest.approx(
        best_among(problem, level, only(pairs, 0, dict.fromkeys(everywhere, LARGE))), abs=1e-9
    )
    policies = {n: i.policy for n, i in verifier_only.assignment.items()}
    second = planned(BASELINES["verification_first"](problem, level))
    assert second.objective == pytest.approx(best_among(problem, level, only(pairs, 1, policies)), abs=1e-9)
    models = {n: i.model for n, i in planned(BASELINES["model_first"](problem, level)).assignment.items()}
    plain = only(pairs, 1, dict.fromkeys(everywhere, "none"))
    first_stage = best_among(problem, level, plain)
    assert best_among(problem, level, only(plain, 0, models)) == pytest.approx(first_stage, abs=1e-9)
    both = planned(BASELINES["model_first"](problem, level)).objective
    assert both == pytest.approx(best_among(problem, level, only(pairs, 0, models)), abs=1e-9)


def test_model_first_goes_through_the_cheapest_policy_where_verification_is_compulsory() -> None:
    graph = workflow(llm("a", policies=("self_check", "debate")))
    problem = problem_of(
        pair(policy="self_check", quality=0.6), pair(policy="debate", quality=0.7),
        pair(model=MIDDLE, policy="self_check", quality=0.4), pair(model=MIDDLE, policy="debate", quality=0.99),
        graph=graph,
    )  # fmt: skip
    assert chosen("model_first", problem) == {"a": f"{LARGE}.debate"}
    assert chosen("exhaustive", problem) == {"a": f"{MIDDLE}.debate"}


@few
@given(problem=any_problems(), level=st.sampled_from([0.0, 0.04, 3.0]))
def test_model_only_fixes_the_policy_that_is_best_on_the_mean_of_the_classes(
    problem: PlanningProblem, level: float
) -> None:
    """All three policies are profiled for both classes here."""
    best: dict[str, str] = {}
    plan = planned(BASELINES["model_only"](problem, level))
    for n, node in coefficients_of(problem).nodes.items():
        mean = {
            policy: sum(c.quality for c in node.columns if c.implementation.policy == policy) / 2
            for policy in POLICIES_IN_CASES
        }
        best[n] = plan.assignment[n].policy
        assert mean[best[n]] == pytest.approx(max(mean.values()))
    assert plan.objective == pytest.approx(best_among(problem, level, only(menu_pairs(problem), 1, best)), abs=1e-9)


def test_model_only_prefers_a_policy_that_leaves_models_to_choose_from() -> None:
    """The best profiled pair alone would fix the model too."""
    problem = problem_of(
        pair(model=MIDDLE, quality=0.6), pair(quality=0.7), pair(policy="debate", quality=0.99),
        pair(model=MIDDLE, policy="self_check", quality=0.65), pair(policy="self_check", quality=0.66),
        graph=workflow(llm("a")),
    )  # fmt: skip
    assert chosen("model_only", problem)["a"].endswith(".self_check")


@few
@given(problem=problems(), level=st.sampled_from([0.0, 3.0]))
def test_without_vulnerability_means_without_the_risk_term(problem: PlanningProblem, level: float) -> None:
    riskless = replace(problem, weights=replace(problem.weights, lambda_r=0.0))
    plan = planned(BASELINES["no_vulnerability"](problem, level))
    assert value_in(riskless, plan) == pytest.approx(planned(compile_plan(riskless, level)).objective, abs=1e-9)


@few
@given(problem=problems(), level=st.sampled_from([0.0, 0.04]))
def test_in_a_priced_problem_every_error_counts_whole_without_vulnerability(
    problem: PlanningProblem, level: float
) -> None:
    priced = replace(problem, pricing=fleet_pricing(problem.catalog))
    plan = planned(BASELINES["no_vulnerability"](priced, level))
    coefficients = coefficients_of(priced)
    certain = replace(coefficients, nodes={n: replace(c, vulnerability=1.0) for n, c in coefficients.nodes.items()})
    best = max(evaluate(certain, choice, level).objective for choice in all_choices(certain))
    assert value_with(certain, plan) == pytest.approx(best, abs=1e-9)


def value_in(problem: PlanningProblem, plan: Plan) -> float:
    return value_with(coefficients_of(problem), plan)


def value_with(coefficients: object, plan: Plan) -> float:
    columns = {n: coefficients.nodes[n].column(i) for n, i in plan.assignment.items()}  # type: ignore[attr-defined]
    return evaluate(coefficients, columns, plan.level).objective  # type: ignore[arg-type]


@few
@given(problem=any_problems(), level=st.sampled_from([0.0, 0.04, 3.0]))
def test_uniform_weights_give_every_node_the_mean_of_the_workflow(problem: PlanningProblem, level: float) -> None:
    coefficients = coefficients_of(problem)
    count = len(coefficients.nodes)
    rho = sum(node.rho for node in coefficients.nodes.values()) / count
    v = sum(node.vulnerability for node in coefficients.nodes.values()) / count
    nodes = {n: replace(node, rho=rho, vulnerability=v) for n, node in coefficients.nodes.items()}
    uniform = replace(coefficients, nodes=nodes)
    best = max(evaluate(uniform, choice, level).objective for choice in all_choices(uniform))
    assert value_with(uniform, planned(BASELINES["uniform_weights"](problem, level))) == pytest.approx(best, abs=1e-9)


def test_collapsed_profiles_are_the_means_over_the_skills_of_each_pair() -> None:
    one = pair("plan", quality=0.9, output_tokens=100, prompt_tokens=300)
    two = pair("code", quality=0.5, output_tokens=300, prompt_tokens=100)
    alone = pair("code", MIDDLE, quality=0.7)
    found = collapsed(profile_set([one, two, alone]))
    assert {p.key for p in found.pairs} == {p.key for p in (one, two, alone)}
    for skill in ("plan", "code"):
        mean = found.by_key[(skill, LARGE, "none", None, False)]
        assert mean.quality == pytest.approx(0.7)
        assert (mean.prompt_tokens, mean.samples) == (200, 200)
        assert (mean.call("generate").output_tokens, mean.call("generate").probability) == (200, 1.0)
    assert found.by_key[alone.key] == alone
    assert found.vulnerability == profile_set([one]).vulnerability


def test_collapsed_skills_cannot_tell_who_needs_the_larger_model() -> None:
    pairs = [
        pair("plan", LARGE, quality=0.99), pair("plan", MIDDLE, quality=0.30),
        pair("code", LARGE, quality=0.30), pair("code", MIDDLE, quality=0.90),
    ]  # fmt: skip
    beside = workflow(llm("p"), llm("c", "code"), tool("t"), edges=[("p", "t"), ("c", "t")])
    problem = problem_of(*pairs, graph=beside)
    assert chosen("exhaustive", problem) == {"p": f"{LARGE}.none", "c": f"{MIDDLE}.none"}
    assert len(set(chosen("collapsed_skills", problem).values())) == 1


@few
@given(problem=any_problems(), level=st.sampled_from([0.0, 0.04, 3.0]))
def test_with_one_skill_there_is_nothing_to_collapse(problem: PlanningProblem, level: float) -> None:
    nodes = [replace(node, skill="plan") if isinstance(node, LlmNode) else node for node in problem.workflow.nodes]
    pairs = tuple(p for p in problem.profiles.pairs if p.skill == "plan")
    same = replace(
        problem,
        workflow=replace(problem.workflow, nodes=tuple(nodes)),
        profiles=replace(problem.profiles, pairs=pairs),
    )
    plan = planned(BASELINES["collapsed_skills"](same, level))
    assert plan.objective == pytest.approx(planned(compile_plan(same, level)).objective, abs=1e-9)


def test_a_node_that_the_mean_leaves_nothing_legal_keeps_its_own_profiles() -> None:
    """The other skill's prompts do not fit the context; their mean does not either."""
    pairs = [pair("plan", quality=0.8), pair("code", quality=0.8, prompt_tokens=70000)]
    problem = problem_of(*pairs, graph=workflow(llm("p")))
    assert chosen("collapsed_skills", problem) == {"p": f"{LARGE}.none"}


# --- Edges -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_workflow_without_llm_nodes_gets_the_empty_plan(name: str) -> None:
    problem = problem_of(pair(), graph=workflow(tool("x", 2.0), tool("y", 3.0), edges=[("x", "y")]))
    plan = planned(BASELINES[name](problem, 0.0))
    assert (dict(plan.assignment), plan.makespan_s, plan.gap) == ({}, 5.0, 0.0)
    assert verify_plan(problem, plan) == ()


@pytest.mark.parametrize("name", NAMES)
def test_one_column_leaves_no_choice(name: str) -> None:
    problem = problem_of(pair(), graph=workflow(llm("x\n'; drop \u202e"), tool("t")))
    assert list(chosen(name, problem).values()) == [f"{LARGE}.none"]


@pytest.mark.parametrize("name", NAMES)
def test_what_has_no_plan_is_infeasible_with_the_reason(name: str) -> None:
    found = BASELINES[name](problem_of(pair("other")), 0.0)
    assert isinstance(found, Infeasible)
    assert "node a" in found.text


@pytest.mark.parametrize("name", NAMES)
def test_a_negative_level_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="level must not be negative, got -1"):
        BASELINES[name](problem_of(pair()), -1.0)


@pytest.mark.parametrize("name", NAMES)
def test_pins_are_kept_and_caps_ignored(name: str) -> None:
    pairs = [pair(model=model, policy=p) for model in (MIDDLE, LARGE) for p in ("none", "self_check")]
    limits = Limits(pinned={"a": (MIDDLE,)}, max_cost=1e-6)
    plan = planned(BASELINES[name](replace(problem_of(*pairs), limits=limits), 0.0))
    assert plan.assignment["a"].model == MIDDLE
    assert plan.cost > 1e-6


@pytest.mark.parametrize("name", [name for name in NAMES if name != "exhaustive"])
def test_hundreds_of_nodes(name: str) -> None:
    ids = [f"n{i}" for i in range(300)]
    graph = workflow(*map(llm, ids), edges=list(pairwise(ids)))
    pairs = [
        pair(model=model, policy=policy, quality=0.5 + k / 10)
        for k, (model, policy) in enumerate(product((MIDDLE, LARGE), ("none", "self_check")))
    ]
    problem = problem_of(*pairs, graph=graph)
    plan = planned(BASELINES[name](problem, 1.5))
    assert len(plan.assignment) == 300
    assert plan.objective <= planned(compile_plan(problem, 1.5)).objective + 1e-9


def test_too_many_assignments_are_refused_with_their_number() -> None:
    count = 10**7
    assert count > exhaustive.MAX_ASSIGNMENTS
    with pytest.raises(ValueError, match="10,000,000 assignments are too many to try: at most 2,000,000"):
        BASELINES["exhaustive"](linked_problem(7), 0.0)


def test_the_exhaustive_search_waits_for_the_slowest_branch() -> None:
    """The branch that comes first in file order is the slower one."""
    pairs = [pair(model=LARGE, quality=0.9), pair(model=SMALL, quality=0.7), pair("code", SMALL, quality=0.7)]
    problem = problem_of(*pairs, graph=workflow(llm("slow"), llm("quick", "code")))
    for lambda_l, model in ((0.0, LARGE), (5.0, SMALL)):
        hurried = replace(problem, weights=Weights(lambda_l=lambda_l))
        assert chosen("exhaustive", hurried)["slow"] == f"{model}.none"


def test_equal_columns_go_to_the_first_of_the_menu() -> None:
    """Two backends of one class with the same rates differ by name alone."""
    catalog = h200_catalog()
    twin = replace(catalog.backends[2], name="a-second-pool")
    problem = replace(
        problem_of(pair(), pair(policy="self_check", quality=0.9)),
        catalog=replace(catalog, backends=(*catalog.backends, twin)),
    )
    for baseline in BASELINES.values():
        plan = planned(baseline(problem, 0.0))
        assert {impl.backend for impl in plan.assignment.values()} == {f"h200-{LARGE}"}


def test_every_baseline_says_what_it_is() -> None:
    for name, baseline in BASELINES.items():
        assert baseline.name == name
        assert baseline.title
        assert baseline.paper in ("7.1", "7.5", "ours")
        assert baseline.reading.endswith(".")
