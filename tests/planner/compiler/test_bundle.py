"""Bundles: the cache key's grain and what it ignores, and plans stored by position."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from fleet.serving.catalog import Catalog
from planner.compiler.bundle import (
    LEVELS,
    compile_bundle,
    from_positions,
    initial_bundle,
    kind_of,
    structural_key,
    to_positions,
)
from planner.compiler.certificate import verify_plan
from planner.compiler.limits import Limits
from planner.compiler.plan import Infeasible, Plan
from planner.compiler.pricing import PRICE_LEVELS, fleet_pricing
from planner.compiler.problem import PlanningProblem
from planner.compiler.solve import compile_plan
from planner.compiler.weights import Weights
from planner.compiler.workflow import LlmNode, Workflow
from tests.planner.compiler.cases import (
    JSON_OUTPUT,
    LARGE,
    MIDDLE,
    bundled,
    h200_catalog,
    linked_problem,
    llm,
    pair,
    planned,
    profile_set,
    tool,
    workflow,
)

PAIRS = [
    pair(skill, name, policy, quality)
    for skill in ("plan", "code")
    for name, policy, quality in (
        (MIDDLE, "none", 0.7),
        (LARGE, "none", 0.8),
        (MIDDLE, "self_check", 0.75),
        (LARGE, "self_check", 0.85),
    )
]


def diamond(names: str = "abcd", **change: object) -> Workflow:
    a, b, c, d = tuple(names)
    first = replace(llm(a, "plan"), **change)  # type: ignore[arg-type]  # test shorthand
    edges = [(a, b), (a, c), (b, d), (c, d)]
    return workflow(first, llm(b, "code"), tool(c, 1.0), llm(d, "plan"), edges=edges)


def problem(of: Workflow | None = None, **options: object) -> PlanningProblem:
    defaults: dict[str, object] = {
        "workflow": of or diamond(),
        "catalog": h200_catalog(),
        "profiles": profile_set(PAIRS),
    }
    return PlanningProblem(**{**defaults, **options})  # type: ignore[arg-type]  # test shorthand


def test_ids_titles_prompts_tools_and_edge_order_do_not_matter() -> None:
    base = diamond()
    other = diamond("wxyz", prompt="something else", title="First", system="You are", temperature=0.3)
    other = replace(
        other,
        name="other",
        description="text",
        deadline_s=9.0,
        edges=tuple(reversed(other.edges)) + other.edges[:1],
        nodes=tuple(
            n if isinstance(n, LlmNode) else replace(n, tool="json_select", timeout_s=3.0) for n in other.nodes
        ),
    )
    assert structural_key(problem(base)) == structural_key(problem(other))


@pytest.mark.parametrize(("known", "same"), [(513, True), (1024, True), (512, False), (1025, False), (0, False)])
def test_prompt_lengths_are_rounded_up_to_a_power_of_two(known: int, same: bool) -> None:
    keys = [structural_key(problem(known_prompt_tokens={"a": tokens})) for tokens in (700, known)]
    assert (keys[0] == keys[1]) is same
    plans = [planned(compile_plan(problem(known_prompt_tokens={"a": tokens}), 0.0)) for tokens in (700, known)]
    assert (plans[0].durations_s == plans[1].durations_s) is same


@pytest.mark.parametrize(("expected_s", "same"), [(1.04, True), (0.996, True), (1.06, False), (10.0, False)])
def test_tool_times_are_rounded_to_two_digits(expected_s: float, same: bool) -> None:
    other = diamond()
    other = replace(
        other, nodes=tuple(n if isinstance(n, LlmNode) else replace(n, expected_s=expected_s) for n in other.nodes)
    )
    assert (structural_key(problem()) == structural_key(problem(other))) is same
    plan = planned(compile_plan(problem(other), 0.0))
    assert (plan.durations_s["c"] == 1.0) is same


CHANGES: list[Callable[[], PlanningProblem]] = [
    lambda: problem(diamond(skill="code")),
    lambda: problem(diamond(thinking=True)),
    lambda: problem(diamond(max_tokens=999)),
    lambda: problem(diamond(models=(LARGE,))),
    lambda: problem(diamond(policies=("none",))),
    lambda: problem(diamond(output=JSON_OUTPUT)),
    lambda: problem(replace(diamond(), output="b")),
    lambda: problem(replace(diamond(), edges=diamond().edges[:-1])),
    lambda: problem(known_prompt_tokens={"a": 64}),
    lambda: problem(catalog=h200_catalog("test-2")),
    lambda: problem(catalog=h200_catalog(context_tokens=9999)),
    lambda: problem(profiles=profile_set(PAIRS, version="p2")),
    lambda: problem(profiles=profile_set(PAIRS, vulnerability=0.41)),
    lambda: problem(profiles=profile_set(PAIRS[:-1])),
    lambda: problem(policies=dict(list(problem().policies.items())[:3])),
    lambda: problem(weights=Weights(lambda_l=0.06)),
    lambda: problem(effort=0.6),
    lambda: problem(demand="tau"),
    lambda: problem(pricing=fleet_pricing(h200_catalog())),
    lambda: problem(pricing=fleet_pricing(h200_catalog(), {LARGE: 2.0})),
    lambda: problem(pricing=replace(fleet_pricing(h200_catalog()), epsilon=0.001)),
    lambda: problem(catalog=rated(decode_tokens_per_s=1.0)),
    lambda: problem(catalog=rated(step_base_s=0.01, step_per_sequence_s=0.001)),
    lambda: problem(catalog=rated(time_scale=2.0)),
]


def rated(**change: object) -> Catalog:
    """The catalog with other rates on its first backend, under the same version."""
    first, *others = h200_catalog().backends
    changed = replace(first, rates=replace(first.rates, **change))  # type: ignore[arg-type]  # fields of ServiceRates
    return replace(h200_catalog(), backends=(changed, *others))


def test_numbers_and_sources_of_rates_do_not_matter() -> None:
    assert structural_key(problem(catalog=rated(version=7, source="roofline"))) == structural_key(problem())


def test_levels_left_out_are_the_kinds() -> None:
    priced = problem(pricing=fleet_pricing(h200_catalog()))
    assert structural_key(problem()) == structural_key(problem(), LEVELS)
    assert structural_key(priced) == structural_key(priced, PRICE_LEVELS)
    first = planned(compile_plan(priced, PRICE_LEVELS[0]))
    start = initial_bundle(priced, first)
    assert (start.kind, start.complete, start.key) == ("priced", False, structural_key(priced))
    assert (kind_of(problem()), kind_of(priced)) == ("levels", "priced")


def test_everything_that_decides_a_bundle_changes_the_key() -> None:
    keys = {structural_key(problem())} | {structural_key(changed()) for changed in CHANGES}
    keys |= {structural_key(problem(), (0.0, 1.0)), structural_key(problem(), (0.0,))}
    assert len(keys) == len(CHANGES) + 3


def test_a_listed_full_set_is_the_same_as_no_restriction_and_order_does_not_matter() -> None:
    names = (LARGE, MIDDLE, "qwen3.5-4b")
    assert structural_key(problem()) == structural_key(problem(diamond(models=names)))
    assert structural_key(problem(), (3, 0, 1.5)) == structural_key(problem(), LEVELS)


def test_a_stored_plan_serves_another_workflow_of_the_same_structure() -> None:
    source, target = problem(diamond()), problem(diamond("wxyz"))
    plan = planned(compile_plan(source, 0.0))
    stored = Plan.from_json(to_positions(plan, source.workflow).to_json())
    assert set(stored.assignment) == {"0", "1", "3"}
    assert from_positions(stored, source.workflow) == plan
    bound = from_positions(stored, target.workflow)
    assert verify_plan(target, bound) == ()
    assert bound.digest == planned(compile_plan(target, 0.0)).digest


@pytest.mark.parametrize(
    "other", [workflow(llm("a")), workflow(llm("a"), tool("b"), llm("c"), llm("d")), workflow(*map(llm, "abcde"))]
)
def test_a_stored_plan_does_not_fit_another_structure(other: Workflow) -> None:
    stored = to_positions(planned(compile_plan(problem(), 0.0)), diamond())
    with pytest.raises(ValueError, match="does not fit the structure"):
        from_positions(stored, other)


def test_pi0_must_be_of_the_smallest_level() -> None:
    late = planned(compile_plan(problem(), 1.5))
    with pytest.raises(ValueError, match="smallest level"):
        compile_bundle(problem(), first=late)
    with pytest.raises(ValueError, match="at least one level"):
        compile_bundle(problem(), ())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"effort": 1.5}, "effort"),
        ({"known_prompt_tokens": {"c": 5}}, "no LLM node"),
        ({"known_prompt_tokens": {"a": -5}}, "must not be negative"),
    ],
)
def test_impossible_problems(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        problem(None, **wrong)


def test_negative_weights_are_refused() -> None:
    with pytest.raises(ValueError, match="lambda_l"):
        Weights(lambda_l=-0.1)
    with pytest.raises(ValueError, match="beta"):
        Weights(beta=float("nan"))


def test_a_level_without_a_plan_in_time_does_not_lose_the_plan_of_another_one() -> None:
    """Limits hold at every level alike, so pi(0) keeps them at each; only with none at all there is no bundle."""
    free = linked_problem(12)
    best = planned(compile_plan(free, 0.0))
    caps = Limits(max_cost=0.8 * best.cost, min_quality=0.95 * best.estimated_quality, max_makespan_s=best.makespan_s)
    limited = replace(free, limits=caps)
    first = planned(compile_plan(limited, 0.0))
    hurried = compile_plan(limited, 1.5, time_limit_s=0.0)
    assert isinstance(hurried, Infeasible)
    assert not hurried.proved
    assert bundled(compile_bundle(limited, [0.0, 1.5], first=first, time_limit_s=0.0)).variants == (first,)
    assert isinstance(compile_bundle(limited, [0.0, 1.5], time_limit_s=0.0), Infeasible)
