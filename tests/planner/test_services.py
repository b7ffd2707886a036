"""Stored workflows: content is recognised, versions are numbered, nothing is stored of a bad document."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from django.db import connection

from planner.data import load_profiles
from planner.importers.problems import WorkflowRejected
from planner.models import ProfileVersion, Workflow, WorkflowVersion
from planner.selectors import active_profiles, workflow_value
from planner.services import activate_profiles, ensure_profiles, inline_version, record_profiles, store_workflow
from tests.planner.rows import data, user


@pytest.mark.django_db
class TestWorkflows:
    def test_first_upload(self) -> None:
        stored = store_workflow(owner=user(), data=data(description="Two steps"), filename="pair.json")
        assert stored.created
        workflow = stored.workflow
        assert (workflow.name, workflow.slug, workflow.description) == ("Pair", "pair", "Two steps")
        version = stored.version
        assert (version.number, version.node_count, version.source_format) == (1, 3, "native")
        assert (version.source_name, version.source) == ("pair.json", data(description="Two steps").decode())

    def test_same_content_is_the_same_version_whatever_the_syntax(self) -> None:
        first = store_workflow(owner=user(), data=data())
        again = store_workflow(owner=user(), data=b"\n  " + data() + b"\n")
        assert not again.created
        assert again.version == first.version
        assert WorkflowVersion.objects.count() == 1

    def test_other_content_is_the_next_version(self) -> None:
        store_workflow(owner=user(), data=data())
        second = store_workflow(owner=user(), data=data(deadline_s=30))
        assert (second.created, second.version.number) == (True, 2)
        back = store_workflow(owner=user(), data=data())
        assert (back.created, back.version.number) == (False, 1)

    def test_a_name_of_ones_own(self) -> None:
        stored = store_workflow(owner=user(), data=data(), name="Mine")
        assert stored.workflow.name == "Mine"
        assert workflow_value(stored.version).name == "Mine"

    def test_names_that_make_one_slug_stay_apart(self) -> None:
        slugs = [store_workflow(owner=user(), data=data(name)).workflow.slug for name in ("A b", "a-b", "数", "字")]
        assert slugs == ["a-b", "a-b-2", "workflow", "workflow-2"]

    def test_owners_stay_apart(self) -> None:
        mine = store_workflow(owner=user("olga"), data=data())
        yours = store_workflow(owner=user("ivan"), data=data())
        assert mine.workflow != yours.workflow
        assert yours.created

    def test_an_archived_workflow_comes_back_with_an_upload(self) -> None:
        Workflow.objects.filter(pk=store_workflow(owner=user(), data=data()).workflow.pk).update(archived=True)
        assert not store_workflow(owner=user(), data=data()).workflow.archived
        assert not Workflow.objects.get().archived

    def test_overruled_skills_are_stored_and_noted(self) -> None:
        version = store_workflow(owner=user(), data=data(), skills={"draft": "code"}).version
        assert [node.skill for node in workflow_value(version).llm_nodes] == ["code", "answer"]
        assert version.notes == [{"code": "skill", "message": "skill code: given by the user", "node": "draft"}]

    @pytest.mark.parametrize("bad", [b"", b"{", b"\xff", data(output="nobody"), b'{"hello": 1}'])
    def test_nothing_is_stored_of_a_bad_document(self, bad: bytes) -> None:
        owner = user()
        with pytest.raises(WorkflowRejected):
            store_workflow(owner=owner, data=bad)
        with pytest.raises(WorkflowRejected):
            inline_version(owner=owner, data=bad)
        assert not Workflow.objects.exists()
        assert not WorkflowVersion.objects.exists()

    def test_inline_versions_are_shared_by_content_and_belong_to_no_workflow(self) -> None:
        first, again = inline_version(owner=user(), data=data()), inline_version(owner=user(), data=data())
        assert first == again
        assert (first.workflow, first.number) == (None, None)
        assert inline_version(owner=user("ivan"), data=data()) != first


@pytest.mark.django_db(transaction=True)
def test_uploads_at_the_same_moment_lose_nothing() -> None:
    owner = user()
    together = threading.Barrier(6)

    def upload(number: int) -> bool:
        together.wait()
        try:
            return store_workflow(owner=owner, data=data(deadline_s=1 + number // 2)).created
        finally:
            connection.close()

    with ThreadPoolExecutor(6) as threads:
        created = list(threads.map(upload, range(6)))
    assert Workflow.objects.count() == 1
    assert set(WorkflowVersion.objects.values_list("number", flat=True)) == {1, 2, 3}
    assert WorkflowVersion.objects.count() == 3
    assert created.count(True) == 3


@pytest.mark.django_db
class TestProfiles:
    def test_shipped_profiles_are_loaded_once_and_marked(self) -> None:
        row = ensure_profiles()
        assert ensure_profiles() == row
        assert (row.version, row.active, row.illustrative) == (1, True, True)
        assert active_profiles() == load_profiles()

    def test_an_active_version_is_left_alone(self) -> None:
        shipped = load_profiles()
        mine = record_profiles(replace(shipped, pairs=shipped.pairs[:40], illustrative=False), name="mine")
        assert ensure_profiles() == mine
        assert not active_profiles().illustrative

    def test_without_an_active_one_the_latest_becomes_active(self) -> None:
        ensure_profiles()
        ProfileVersion.objects.update(active=False)
        assert ensure_profiles().active
        assert ProfileVersion.objects.get().active

    def test_new_profiles_are_the_next_version_and_old_ones_stay(self) -> None:
        first = ensure_profiles()
        shipped = load_profiles()
        second = record_profiles(replace(shipped, pairs=shipped.pairs[:40]), name="fewer")
        assert second.version == 2
        assert ProfileVersion.objects.get(active=True) == second
        activate_profiles(first)
        assert ProfileVersion.objects.get(active=True) == first
        assert active_profiles() == shipped

    def test_the_same_profiles_are_the_same_version(self) -> None:
        assert record_profiles(load_profiles(), name="again") == ensure_profiles()
        assert ProfileVersion.objects.count() == 1
