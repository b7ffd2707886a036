"""Lists of runs, on both databases."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from fleet.common.pagination import page
from planner.marks import Marks, profile_mark
from planner.services import ensure_profiles, store_workflow
from runtime.api_schemas import RunSummaryOut
from runtime.listing import listed, workflow_name
from runtime.models import Run
from runtime.selectors import runs_for
from tests.runtime.live_runs import DOCUMENT, start_run

LARGE = ('"planner_workflowversion"."source"', '"planner_planbundle"."request"', '"runtime_run"."output"')


def test_runs_tell_their_workflows_name_stored_or_inline(database: str) -> None:
    ann = User.objects.create_user("ann")
    inline, stored = start_run(ann), start_run(ann)
    version = store_workflow(owner=ann, data=DOCUMENT, name="Stored").version
    Run.objects.filter(pk=stored.pk).update(version=version)
    names = {run.pk: workflow_name(run) for run in listed(runs_for(ann))}
    assert names == {inline.pk: "One step", stored.pk: "Stored"}


def test_a_page_costs_the_same_however_many_runs_it_has(database: str) -> None:
    ann = User.objects.create_user("ann")
    ensure_profiles()
    costs = []
    for count in (1, 9):
        for _ in range(count):
            start_run(ann)
        with CaptureQueriesContext(connection) as queries:
            marks = Marks()
            found = [RunSummaryOut.of(run, marks) for run in page(listed(runs_for(ann)), limit=50).items]
        assert all(run.profiles.illustrative for run in found)
        sql = " ".join(query["sql"] for query in queries)
        assert not [column for column in LARGE if column in sql]
        costs.append(len(queries))
    assert costs[0] == costs[1] <= 3


def test_a_profile_that_is_not_known_counts_as_invented(database: str) -> None:
    assert profile_mark().illustrative
    row = ensure_profiles()
    assert profile_mark().version == row.document["version"]
    assert profile_mark("of long ago") == profile_mark("of long ago").model_copy(update={"illustrative": True})
    type(row).objects.update(illustrative=False)
    assert not profile_mark(row.document["version"]).illustrative
