"""Questions about stored plans, on the demo fleet and the shipped profiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from fleet.models import Fleet, Replica
from planner import insights
from planner.bundling import compile_version, prepare_variants
from planner.compiler.explain import Explanation, explain_plan
from planner.compiler.pareto import Axis
from planner.compiler.plan import Plan
from planner.compiler.problem import PlanningProblem
from planner.data import load_profiles
from planner.errors import NoAnswer, Outdated
from planner.insights import explanation_of, front_of, planned, ranges_of, stability_of
from planner.models import PlanBundle, ProfileVersion, WorkflowVersion
from planner.options import PlanOptions
from planner.outbox import outbox
from planner.services import record_profiles
from tests.planner.rows import demo, document, version

AXES: tuple[Axis, ...] = ("makespan_s", "cost")


@pytest.fixture
def fleet(valkey: str, transactional_db: None) -> Iterator[Fleet]:
    for answers in (insights.QUICK, insights.SLOW):
        answers.clear()
    yield demo()
    assert outbox().flush(60), "every message was tried before the rows go away"


def bundle_of(fleet: Fleet, asked: WorkflowVersion, **options: object) -> PlanBundle:
    """Ready, as the plans worker leaves it."""
    chosen = PlanOptions.of(**options)  # type: ignore[arg-type]
    bundle = compile_version(asked, fleet=fleet, options=chosen).bundle
    prepare_variants(bundle.pk)
    bundle.refresh_from_db()
    return bundle


def test_every_question_is_answered_for_every_variant(fleet: Fleet) -> None:
    asked = version()
    bundle = bundle_of(fleet, asked)
    for index, variant in enumerate(bundle.variants.order_by("index")):
        found = explanation_of(asked, bundle, index)
        assert found.level == variant.level
        assert found.objective == pytest.approx(variant.objective)
        assert [node.node for node in found.nodes] == ["draft", "answer"]
        assert [found.parameter for found in ranges_of(asked, bundle, index)] == ["lambda_l", "effort", "level"]
        assert stability_of(asked, bundle, index, draws=3).draws_asked == 3
        for axis in AXES:
            assert front_of(asked, bundle, axis, index).exact


def test_a_plan_comes_with_its_problem(fleet: Fleet) -> None:
    asked = version()
    bundle = bundle_of(fleet, asked, effort=0.9, weights="fast", limits={"pin": {"draft": ["*/none"]}})
    problem, plan = planned(asked, bundle)
    assert (problem.effort, dict(problem.versions)) == (0.9, dict(plan.versions))
    assert problem.limits.pinned == {"draft": ("*/none",)}
    assert plan.assignment["draft"].policy == "none"


def test_a_bundle_of_another_request_is_told_in_the_versions_own_words(fleet: Fleet) -> None:
    asked, other = version(), version("Other", prefix="my_")
    compiled = compile_version(
        asked, fleet=fleet, options=PlanOptions.of(levels=[0.0]), known_prompt_tokens={"draft": 900}
    )
    problem, plan = planned(other, compiled.bundle)
    assert dict(problem.known_prompt_tokens) == {"my_draft": 900}
    assert set(plan.assignment) == {"my_draft", "my_answer"}
    mine, others = explanation_of(asked, compiled.bundle), explanation_of(other, compiled.bundle)
    assert ([n.node for n in mine.nodes], [n.node for n in others.nodes]) == (
        ["draft", "answer"],
        ["my_draft", "my_answer"],
    )


def test_an_answer_is_computed_once(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = version()
    bundle = bundle_of(fleet, asked)
    plans: list[Plan] = []

    def noted(problem: PlanningProblem, plan: Plan) -> Explanation:
        plans.append(plan)
        return explain_plan(problem, plan)

    monkeypatch.setattr(insights, "explain_plan", noted)
    assert explanation_of(asked, bundle) is explanation_of(asked, bundle)
    assert explanation_of(asked, bundle, 1) is not explanation_of(asked, bundle, 0)
    assert len(plans) == 2


@pytest.mark.parametrize("index", [-1, 7])
def test_a_variant_that_is_not_there(fleet: Fleet, index: int) -> None:
    asked = version()
    bundle = bundle_of(fleet, asked, levels=[0.0])
    with pytest.raises(IndexError, match="1 variants"):
        planned(asked, bundle, index)


def test_a_bundle_of_another_structure(fleet: Fleet) -> None:
    bundle = bundle_of(fleet, version(), levels=[0.0])
    single = version("Single", nodes=document()["nodes"][:1], output="draft")
    with pytest.raises(ValueError, match="does not fit"):
        planned(single, bundle)


# --- Outdated --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["levels", "priced"])
def test_a_fleet_that_has_changed(fleet: Fleet, kind: str) -> None:
    asked = version()
    bundle = bundle_of(fleet, asked, bundle=kind)
    assert explanation_of(asked, bundle)
    Replica.objects.filter(backend__name=Replica.objects.order_by("name")[0].backend.name).update(state="disabled")
    with pytest.raises(Outdated, match="the fleet") as raised:
        explanation_of(asked, bundle)
    assert str(raised.value).endswith("changed since this plan was made: compile it again")
    # Compiling again makes another bundle.
    again = bundle_of(fleet, asked, bundle=kind)
    assert again.pk != bundle.pk
    assert explanation_of(asked, again)


@pytest.mark.parametrize("name", ["measured-2", "illustrative-1"])
def test_profiles_that_have_changed(fleet: Fleet, name: str) -> None:
    asked = version()
    bundle = bundle_of(fleet, asked)
    shipped = load_profiles()
    first, *others = shipped.pairs
    worse = replace(shipped, pairs=(replace(first, quality=first.quality / 2, interval=(0.0, 1.0)), *others))
    record_profiles(replace(worse, version=name), name="mine")
    with pytest.raises(Outdated, match="the profiles have changed"):
        front_of(asked, bundle, "cost")
    ProfileVersion.objects.update(active=False)
    ProfileVersion.objects.filter(digest=shipped.digest).update(active=True)
    assert front_of(asked, bundle, "cost").points


# --- No answer -------------------------------------------------------------------------------------------------------


def test_stability_refuses_caps_on_the_whole_plan(fleet: Fleet) -> None:
    asked = version()
    with pytest.raises(NoAnswer, match="caps on the whole plan"):
        stability_of(asked, bundle_of(fleet, asked, limits={"max_calls": 4}))
    pinned = bundle_of(fleet, asked, limits={"forbid": {"*": ["*/debate"]}})
    assert stability_of(asked, pinned, draws=2).draws == 2


def test_a_plan_that_is_not_the_best_has_no_ranges(fleet: Fleet) -> None:
    asked = version()
    bundle = bundle_of(fleet, asked)
    best = bundle.variants.order_by("-index")[0]
    assert best.index > 0
    # pi(0)'s row gets the last variant's implementations: legal, and not the best at level 0.
    plan = {**best.plan, "level": 0.0}
    bundle.variants.filter(index=0).update(plan=plan, level=0.0)
    with pytest.raises(NoAnswer, match="not the best one"):
        ranges_of(asked, bundle)
    assert explanation_of(asked, bundle).level == 0.0


def test_a_workflow_without_llm_nodes_has_answers_without_nodes(fleet: Fleet) -> None:
    tool = {"id": "t", "kind": "tool", "tool": "template", "arguments": {"template": "{{ inputs.topic }}"}}
    asked = version("Tools", nodes=[tool], output="t")
    bundle = bundle_of(fleet, asked)
    assert explanation_of(asked, bundle).nodes == ()
    assert ranges_of(asked, bundle)[0].proved
    assert stability_of(asked, bundle, draws=2).nodes == ()
    assert [len(front_of(asked, bundle, axis).points) for axis in AXES] == [1, 1]
