from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from fleet.errors import NoDefaultFleet
from planner.compiler.workflow import InputSpec
from planner.models import ProfileVersion, WorkflowVersion
from runtime import composition, leases
from runtime.engine.events import RunState
from runtime.errors import IdempotencyConflict, InputsRejected
from runtime.models import IdempotencyKey, Run
from runtime.services import cancel_run, forget_old_keys, submit_run
from tests.runtime import rows
from tests.runtime.databases import in_thread
from tests.runtime.engine.samples import llm, workflow
from tests.runtime.rows import World, make_world

FLOW = replace(
    workflow([llm("a", "{{ inputs.topic }} {{ inputs.count }}")]),
    inputs=(InputSpec(name="topic"), InputSpec(name="count", type="integer", required=False, default=3)),
    deadline_s=90.0,
)


class Recorder:
    """The publisher's face, without a broker."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.cancels: list[str] = []
        self.pokes: list[tuple[str, int]] = []

    def run(self, run_id: str) -> None:
        assert Run.objects.filter(pk=run_id).exists(), "published before it was in the database"
        self.runs.append(run_id)

    def control(self, *, cancel: list[str]) -> None:
        self.cancels += cancel

    def poke(self, written: list[tuple[str, int]]) -> None:
        self.pokes += written


@pytest.fixture
def publisher(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    monkeypatch.setattr(composition, "publisher", lambda: recorder)
    return recorder


@pytest.fixture
def both(database: str) -> World:
    return make_world()


@pytest.fixture
def version(both: World, publisher: Recorder) -> WorkflowVersion:
    return rows.version(FLOW, both.owner)


def submit(version: WorkflowVersion, **changes: Any) -> Run:
    return submit_run(**{"owner": version.owner, "version": version, "inputs": {"topic": "tea"}, **changes}).run


def test_an_accepted_run_is_in_the_database_and_published(version: WorkflowVersion, publisher: Recorder) -> None:
    submitted = submit_run(owner=version.owner, version=version, inputs={"topic": "tea"}, effort=0.25, seed=7)
    run = Run.objects.get(pk=submitted.run.pk)
    assert submitted.created
    assert (run.state, run.inputs) == (RunState.QUEUED, {"topic": "tea", "count": 3})
    assert (run.deadline_s, run.effort, run.seed, run.nodes_total, run.last_seq) == (90.0, 0.25, 7, 1, 1)
    assert run.fleet.is_default
    assert publisher.runs == [run.pk]
    planned = {"effort": 0.25, "bundle": "levels", "limits": {}}
    data = {"workflow": "sample", "version": None, "deadline_s": 90.0, **planned, "controller": ""}
    assert rows.events(run.pk) == [(1, "run_accepted", data)]


def test_every_problem_is_told_at_once_and_nothing_is_stored(version: WorkflowVersion, publisher: Recorder) -> None:
    with pytest.raises(InputsRejected) as caught:
        submit(
            version,
            inputs={"count": "three", "topik": "tea"},
            deadline_s=-1.0,
            effort=2.0,
            controller="magic",
            seed=-5,
            weights={"lambda_x": 1.0},
        )
    pointers = {problem.pointer for problem in caught.value.problems}
    assert pointers == {
        "/inputs",
        "/inputs/topik",
        "/inputs/count",
        "/deadline_s",
        "/effort",
        "/controller",
        "/seed",
        "/weights/lambda_x",
    }
    assert all(problem.remedy for problem in caught.value.problems)
    assert not Run.objects.exists()
    assert publisher.runs == []


def test_limits_are_checked_with_the_fleet_and_kept(version: WorkflowVersion, publisher: Recorder) -> None:
    limits = {"max_calls": 3, "pin": {"a": ["*/none"]}}
    run = Run.objects.get(pk=submit(version, bundle="priced", limits=limits).pk)
    assert (run.bundle_kind, run.limits) == ("priced", limits)
    with pytest.raises(InputsRejected) as raised:
        submit(version, limits={"pin": {"b": ["*"]}, "calls": {"moon": 1}, "max_cost": 3})
    assert {problem.pointer for problem in raised.value.problems} == {"/limits/pin/b", "/limits/calls/moon"}
    assert all("LLM nodes: a" in p.message or "classes: " in p.message for p in raised.value.problems)
    assert publisher.runs == [run.pk]


def test_limits_without_profiles_are_left_to_planning(version: WorkflowVersion, publisher: Recorder) -> None:
    ProfileVersion.objects.all().delete()
    assert submit(version, limits={"max_calls": 3}).limits == {"max_calls": 3}


@pytest.mark.parametrize("effort", [-0.1, 1.5, float("nan")])
def test_effort_is_a_share(version: WorkflowVersion, effort: float) -> None:
    with pytest.raises(InputsRejected, match="effort"):
        submit(version, effort=effort)


@pytest.mark.parametrize("deadline_s", [0.0, -3.0, float("inf"), float("nan"), 1e9])
def test_a_deadline_is_a_time_ahead(version: WorkflowVersion, deadline_s: float) -> None:
    with pytest.raises(InputsRejected, match="deadline"):
        submit(version, deadline_s=deadline_s)


def test_without_a_fleet_there_is_no_run(database: str, publisher: Recorder) -> None:
    version = rows.version(FLOW, rows.user())
    with pytest.raises(NoDefaultFleet):
        submit(version)


# --- Idempotency -----------------------------------------------------------------------------------------------------


def test_the_same_key_and_request_give_the_same_run(version: WorkflowVersion, publisher: Recorder) -> None:
    first = submit_run(
        owner=version.owner, version=version, inputs={"topic": "tea"}, idempotency_key="k", request_digest="d1"
    )
    again = submit_run(
        owner=version.owner, version=version, inputs={"topic": "tea"}, idempotency_key="k", request_digest="d1"
    )
    assert (first.created, again.created) == (True, False)
    assert first.run == again.run
    assert publisher.runs == [first.run.pk]


def test_the_same_key_with_another_request_is_a_conflict(version: WorkflowVersion) -> None:
    submit(version, idempotency_key="k", request_digest="d1")
    with pytest.raises(IdempotencyConflict, match="'k'"):
        submit(version, idempotency_key="k", request_digest="d2")
    assert Run.objects.count() == 1


def test_keys_belong_to_their_owner(version: WorkflowVersion) -> None:
    other = User.objects.create_user("bob")
    mine = submit(version, idempotency_key="k", request_digest="d1")
    theirs = submit(version, owner=other, idempotency_key="k", request_digest="d2")
    assert mine != theirs


def test_a_key_is_forgotten_after_a_day(version: WorkflowVersion) -> None:
    first = submit(version, idempotency_key="k", request_digest="d1")
    IdempotencyKey.objects.update(created_at=timezone.now() - timedelta(hours=25))
    second = submit(version, idempotency_key="k", request_digest="d2")
    assert first != second
    assert IdempotencyKey.objects.get().run == second
    assert forget_old_keys() == 0
    IdempotencyKey.objects.update(created_at=timezone.now() - timedelta(hours=25))
    assert forget_old_keys() == 1


async def test_duplicates_at_the_same_moment_create_one_run(version: WorkflowVersion, publisher: Recorder) -> None:
    barrier = threading.Barrier(4)

    def race() -> tuple[str, bool]:
        barrier.wait()
        submitted = submit_run(
            owner=version.owner, version=version, inputs={"topic": "tea"}, idempotency_key="k", request_digest="d"
        )
        return submitted.run.pk, submitted.created

    results = await asyncio.gather(*(in_thread(race) for _ in range(4)))
    assert len({run_id for run_id, _ in results}) == 1
    assert sorted(created for _, created in results) == [False, False, False, True]
    assert await in_thread(Run.objects.count) == 1
    assert len(publisher.runs) == 1


# --- Cancel ----------------------------------------------------------------------------------------------------------


def test_a_run_that_nobody_claimed_ends_at_once(version: WorkflowVersion, publisher: Recorder) -> None:
    run = submit(version)
    assert cancel_run(run=run, by=version.owner)
    assert (run.state, run.cancelled_by) == (RunState.CANCELLED, "ann")
    assert run.finished_at is not None
    assert rows.kinds(run.pk) == ["run_accepted", "cancel_requested", "run_cancelled"]
    assert publisher.pokes == [(run.pk, 3)]
    assert leases.claim(run.pk, worker="w", lease_s=10) is None
    assert cancel_run(run=run, by=version.owner) is False


def test_a_running_run_is_asked(version: WorkflowVersion, publisher: Recorder) -> None:
    run = submit(version)
    leases.claim(run.pk, worker="w", lease_s=10)
    assert cancel_run(run=run, by=version.owner)
    assert cancel_run(run=run, by=version.owner), "asking twice is no error"
    assert run.state == RunState.RUNNING
    assert rows.kinds(run.pk) == ["run_accepted", "run_claimed", "cancel_requested"]
    assert publisher.cancels == [run.pk]
