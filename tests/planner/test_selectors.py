"""Reading workflows and plans: owners stay apart, values are cached by content, stored plans fit other node ids."""

from __future__ import annotations

from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries

from planner.models import Workflow, WorkflowVersion
from planner.options import PlanOptions
from planner.selectors import (
    active_profiles,
    bundle_value,
    name_problems,
    options_of_bundle,
    problem_for,
    version_for,
    versions_of,
    workflow_value,
    workflows_for,
)
from planner.services import compile_version, store_workflow
from tests.planner.rows import data, demo, document, user, version

pytestmark = pytest.mark.django_db


def test_workflows_of_one_user_with_their_counts() -> None:
    store_workflow(owner=user(), data=data("B"))
    store_workflow(owner=user(), data=data("A"))
    store_workflow(owner=user(), data=data("A", deadline_s=5))
    store_workflow(owner=user("ivan"), data=data("C"))
    found: list[Any] = list(workflows_for(user()))
    assert [(row.name, row.version_count, row.last_number) for row in found] == [("A", 2, 2), ("B", 1, 1)]


def test_archived_workflows_are_listed_apart() -> None:
    workflow = store_workflow(owner=user(), data=data()).workflow
    Workflow.objects.filter(pk=workflow.pk).update(archived=True)
    assert not workflows_for(user()).exists()
    assert workflows_for(user(), archived=True).get() == workflow


def test_versions_newest_first_and_by_number() -> None:
    first = store_workflow(owner=user(), data=data())
    second = store_workflow(owner=user(), data=data(deadline_s=5))
    assert list(versions_of(first.workflow)) == [second.version, first.version]
    assert version_for(user(), first.workflow.pk) == second.version
    assert version_for(user(), first.workflow.pk, 1) == first.version


def test_other_peoples_versions_do_not_exist() -> None:
    workflow = store_workflow(owner=user(), data=data()).workflow
    for number in (None, 1):
        with pytest.raises(WorkflowVersion.DoesNotExist):
            version_for(user("ivan"), workflow.pk, number)


def test_a_version_is_parsed_once_per_content() -> None:
    first = version()
    again = WorkflowVersion.objects.get(pk=first.pk)
    assert workflow_value(again) is workflow_value(first)
    assert workflow_value(version(deadline_s=5)).deadline_s == 5


def test_active_profiles_are_read_once(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    demo()
    profiles = active_profiles()
    with django_assert_num_queries(1):
        assert active_profiles() is profiles


def test_a_problem_holds_what_the_request_chose() -> None:
    fleet = demo()
    options = PlanOptions.of(effort=0.9, weights="fast")
    problem = problem_for(version(), fleet, options, {"draft": 100})
    assert (problem.effort, problem.weights) == (0.9, options.weights)
    assert dict(problem.known_prompt_tokens) == {"draft": 100}
    assert problem.profiles.illustrative


def test_prompt_lengths_of_unknown_nodes_are_refused() -> None:
    with pytest.raises(ValueError, match="nobody"):
        problem_for(version(), demo(), PlanOptions(), {"nobody": 100})


def test_a_bundle_is_bound_to_any_workflow_of_its_structure_and_no_other() -> None:
    bundle = compile_version(version(), fleet=demo(), options=PlanOptions()).bundle
    renamed = bundle_value(bundle, workflow_value(version(prefix="n")))
    assert set(renamed.variants[0].assignment) == {"ndraft", "nanswer"}
    other = version("Other", nodes=[{"id": "a", "kind": "llm", "skill": "answer", "prompt": "Hi."}], output="a")
    with pytest.raises(ValueError, match="does not fit"):
        bundle_value(bundle, workflow_value(other))


def test_limits_of_a_stored_bundle_follow_the_positions_where_two_workflows_swap_their_names() -> None:
    """A pin of the first node makes another bundle than a pin of the last, whatever the two are called."""
    fleet = demo()
    one, tool, other = document()["nodes"]
    template = {"template": "{{ nodes.answer.output }}"}
    nodes = [
        {**one, "id": "answer"},
        {**tool, "arguments": template},
        {**other, "id": "draft"},
    ]
    swapped = version("Swapped", nodes=nodes, output="draft")
    ids = [node.id for node in workflow_value(swapped).nodes]
    assert ids == ["answer", "pick", "draft"]
    limits = {"pin": {"draft": ["qwen3.5-9b"], "*": ["*/none"]}, "forbid": {"answer": ["qwen3.5-4b"]}}
    bundle = compile_version(version(), fleet=fleet, options=PlanOptions.of(limits=limits)).bundle
    mirrored = {"pin": {"answer": ["qwen3.5-9b"], "*": ["*/none"]}, "forbid": {"draft": ["qwen3.5-4b"]}}
    assert options_of_bundle(bundle, workflow_value(version())).limits.to_json() == limits
    assert options_of_bundle(bundle, workflow_value(swapped)).limits.to_json() == mirrored
    same = compile_version(swapped, fleet=fleet, options=PlanOptions.of(limits=mirrored)).bundle
    assert same.pk == bundle.pk
    assert compile_version(swapped, fleet=fleet, options=PlanOptions.of(limits=limits)).bundle.pk != bundle.pk


def test_names_that_do_not_exist_here_are_found() -> None:
    nodes = [{"id": "a", "kind": "llm", "skill": "juggling", "prompt": "Hi.", "models": ["gpt-9"]}]
    odd = workflow_value(version("Odd", nodes=nodes, output="a"))
    codes = {problem.code for problem in name_problems(odd, fleet=demo(), tools=["template"])}
    assert codes == {"unknown_skill", "unknown_model"}
    assert name_problems(workflow_value(version()), fleet=demo(), tools=["template"]) == ()
    assert [p.code for p in name_problems(workflow_value(version()), fleet=demo(), tools=[])] == ["unknown_tool"]
