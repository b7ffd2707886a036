"""Which implementations are legal for a node."""

from __future__ import annotations

from dataclasses import replace

from fleet.serving.catalog import Backend, Catalog
from planner.compiler.policies import ALL_POLICIES
from planner.compiler.problem import PlanningProblem
from planner.compiler.profile import PairProfile
from planner.compiler.workflow import LlmNode
from tests.planner.compiler.cases import (
    JSON_OUTPUT,
    LARGE,
    MIDDLE,
    SMALL,
    coefficients_of,
    h200_catalog,
    llm,
    pair,
    profile_set,
    rates,
    workflow,
)


def all_pairs() -> list[PairProfile]:
    found = []
    for small, name in enumerate((SMALL, MIDDLE, LARGE)):
        for policy in ALL_POLICIES:
            judges = [None] if not policy.uses_verifier else [SMALL, MIDDLE, LARGE][small + 1 :]
            found += [pair(model=name, policy=policy, verifier_model=judge) for judge in judges]
    return found


def labels(node: LlmNode, catalog: Catalog | None = None, **options: object) -> list[str]:
    problem = PlanningProblem(
        workflow=workflow(node),
        catalog=catalog or h200_catalog(),
        profiles=profile_set(all_pairs()),
        **options,  # type: ignore[arg-type]  # test shorthand
    )
    return [c.implementation.label.replace("qwen3.5-", "") for c in coefficients_of(problem).nodes[node.id].columns]


def test_text_cannot_be_put_to_a_vote_json_can() -> None:
    assert not any("self_consistency" in label for label in labels(llm("a")))
    assert "9b.self_consistency" in labels(llm("a", output=JSON_OUTPUT))
    assert len(labels(llm("a", output=JSON_OUTPUT))) == 3 * 7 + 2


def test_cross_check_takes_the_next_larger_legal_class_and_the_largest_has_none() -> None:
    crossed = [label for label in labels(llm("a")) if "cross" in label]
    assert crossed == ["4b.cross_check@9b", "9b.cross_check@27b"]
    skipping = [label for label in labels(llm("a", models=(SMALL, LARGE))) if "cross" in label]
    assert skipping == ["4b.cross_check@27b"]
    assert not any("cross" in label for label in labels(llm("a", models=(LARGE,))))


def test_the_node_restricts_models_and_policies_none_included() -> None:
    only = labels(llm("a", models=(MIDDLE, "unknown"), policies=("self_check", "debate")))
    assert only == ["9b.self_check", "9b.debate"]


def test_a_context_that_is_too_short_is_not_legal() -> None:
    catalog = h200_catalog()
    models = tuple(replace(m, context_tokens=800) if m.name == SMALL else m for m in catalog.models)
    short = replace(catalog, models=models)
    assert any(label.startswith("4b.none") for label in labels(llm("a", max_tokens=600), short))
    assert not any(label.startswith("4b") for label in labels(llm("a", max_tokens=701), short))
    assert not any(
        label.startswith("4b") for label in labels(llm("a", max_tokens=600), short, known_prompt_tokens={"a": 200})
    )


def test_a_policy_whose_later_calls_do_not_fit_is_not_legal_though_none_is() -> None:
    catalog = h200_catalog(context_tokens=720)
    fitting = labels(llm("a", max_tokens=600), catalog)
    assert "27b.none" in fitting
    assert "27b.self_refine" not in fitting


def test_thinking_needs_its_own_profile() -> None:
    problem = PlanningProblem(
        workflow=workflow(llm("a", thinking=True)),
        catalog=h200_catalog(),
        profiles=profile_set([pair(), pair(model=SMALL, thinking=True)]),
    )
    columns = coefficients_of(problem).nodes["a"].columns
    assert [c.implementation.label for c in columns] == [f"{SMALL}.none"]


def two_pools() -> Catalog:
    catalog = h200_catalog()
    slow = Backend(name="old-27b", model=LARGE, hardware="a100", rates=rates(20, 5000))
    return replace(catalog, backends=(slow, *catalog.backends))


def test_every_backend_of_a_model_is_an_option_and_the_verifier_takes_the_fastest() -> None:
    problem = PlanningProblem(workflow=workflow(llm("a")), catalog=two_pools(), profiles=profile_set(all_pairs()))
    columns = coefficients_of(problem).nodes["a"].columns
    plain = [c.implementation.backend for c in columns if c.implementation.label == f"{LARGE}.none"]
    assert plain == ["old-27b", f"h200-{LARGE}"]
    crossed = [c.implementation for c in columns if c.implementation.verifier_model == LARGE]
    assert [impl.verifier_backend for impl in crossed] == [f"h200-{LARGE}"]


def test_the_reference_plan_is_the_largest_models_cheapest_policy_on_its_fastest_backend() -> None:
    problem = PlanningProblem(workflow=workflow(llm("a")), catalog=two_pools(), profiles=profile_set(all_pairs()))
    coefficients = coefficients_of(problem)
    reference = next(
        c
        for c in coefficients.nodes["a"].columns
        if (c.implementation.backend, c.implementation.policy) == (f"h200-{LARGE}", "none")
    )
    assert coefficients.t_ref == reference.duration_s
    assert (coefficients.k_ref, coefficients.d_ref) == (reference.cost, coefficients.demand(reference))
