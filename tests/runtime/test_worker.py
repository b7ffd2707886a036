from __future__ import annotations

import asyncio
import threading
from collections import Counter

import pytest
from channels.layers import get_channel_layer

from fleet.models import Fleet
from planner.compiler.plan import Bundle
from planner.errors import PlanInfeasible
from planner.models import PlanBundle, WorkflowVersion
from planner.options import PlanOptions
from runtime import leases
from runtime.database import database_now
from runtime.engine.events import NodeState, RunState
from runtime.engine.ports import ClassLoad, RunSnapshot
from runtime.models import Invocation, Run
from runtime.pokes import CONTROL_GROUP, control_message
from runtime.services import cancel_run, submit_run
from runtime.snapshots import Compiled
from tests.runtime import rows
from tests.runtime.engine.samples import (
    BIG,
    SMALL,
    bundle,
    impl,
    llm,
    plan,
    snapshot,
    tool,
    walkthrough,
    walkthrough_bundle,
    workflow,
)
from tests.runtime.rows import World
from tests.runtime.workers import GatedDispatcher, TestLink, running

DIAMOND = workflow(
    [llm("a"), llm("b"), tool("t", "{{ nodes.a.output }}"), llm("c", "{{ nodes.b.output }} {{ nodes.t.output }}")],
    [("a", "b"), ("a", "t"), ("b", "c"), ("t", "c")],
)
PLANS = bundle(plan({node: impl(BIG, "self_check") for node in "abc"}))


def accepted(run: RunSnapshot | None = None) -> str:
    return rows.accept(run or snapshot(DIAMOND, PLANS)).pk


def holding(*nodes: str) -> TestLink:
    return TestLink(dispatcher=GatedDispatcher(lambda request: request.node in nodes))


def state(run_id: str) -> str:
    return Run.objects.get(pk=run_id).state


def test_a_run_is_executed_to_its_end(database: str) -> None:
    run_id = accepted()
    with running() as one:
        one.execute(run_id).result()
    run = Run.objects.get(pk=run_id)
    assert (run.state, run.nodes_done, run.lease_owner) == (RunState.SUCCEEDED, 4, "")
    assert run.output == "c/generate0 by qwen3.5-27b"
    assert [seq for seq, _, _ in rows.events(run_id)] == list(range(1, run.last_seq + 1))
    # Three LLM nodes with a base call and a verdict each, which accepts.
    assert run.calls == 6 == len(one.dispatcher.sent)


def test_a_worker_that_vanishes_is_followed_by_another(database: str) -> None:
    run_id = accepted()
    with running("host:1:first", link=holding("b")) as first, running("host:2:second") as second:
        lost = first.execute(run_id)
        first.dispatcher.wait_for_held()
        bound = {row.node: (row.attempt, row.binding) for row in Invocation.objects.filter(run_id=run_id)}
        assert leases.expire("host:1:") == 1
        second.execute(run_id).result()
        sent = {request.node for request in second.dispatcher.sent}
        first.dispatcher.open()
        lost.result()
    log = rows.events(run_id)
    commits = Counter(data["node"] for _, kind, data in log if kind == "node_committed")
    assert commits == {"a": 1, "b": 1, "t": 1, "c": 1}
    assert [data["epoch"] for _, kind, data in log if kind == "run_claimed"] == [1, 2]
    assert "a" not in sent, "a committed node was executed again"
    assert "b" in sent, "the invocation in flight was not issued again"
    after = {row.node: (row.attempt, row.binding) for row in Invocation.objects.filter(run_id=run_id)}
    assert after["b"] == bound["b"]
    assert first.published == [], "the loser gave back a run that was not its own"
    assert state(run_id) == RunState.SUCCEEDED


def test_a_worker_that_lost_its_lease_stops_calling(database: str) -> None:
    run_id = accepted()
    with running("host:1:first", link=holding("b")) as first:
        lost = first.execute(run_id)
        first.dispatcher.wait_for_held()
        leases.expire("host:1:")
        lost.result()
    assert first.dispatcher.cancelled == ["b"]
    assert Invocation.objects.get(run_id=run_id, node="b").state == NodeState.DISPATCHED


def test_two_claims_make_one_execution(database: str) -> None:
    run_id = accepted()
    with running("host:1:a", link=holding("a")) as one, running("host:2:b") as two:
        first = one.execute(run_id)
        one.dispatcher.wait_for_held()
        two.execute(run_id).result()
        assert two.dispatcher.sent == []
        one.dispatcher.open()
        first.result()
        two.execute(run_id).result()
    assert two.dispatcher.sent == []
    assert rows.kinds(run_id).count("run_claimed") == 1


def test_a_lease_is_renewed_while_the_run_goes_on(database: str) -> None:
    run_id = accepted()
    with running(link=holding("a"), lease_s=30.0) as one:
        going = one.execute(run_id)
        one.dispatcher.wait_for_held()
        before = Run.objects.get(pk=run_id).lease_expires_at
        while Run.objects.get(pk=run_id).lease_expires_at == before:
            one.writer.call(lambda: None).result()
        after = Run.objects.get(pk=run_id).lease_expires_at
        one.dispatcher.open()
        going.result()
    assert before is not None
    assert after is not None
    assert after > before
    assert after == pytest.approx(database_now() + 30.0, abs=15)


def test_a_drained_worker_gives_its_runs_back_at_once(database: str) -> None:
    run_ids = [accepted() for _ in range(5)]
    with running(link=holding("b")) as one:
        going = [one.execute(run_id) for run_id in run_ids]
        one.dispatcher.wait_for_held(5)
        one.worker.drain()
        for future in going:
            future.result()
        assert sorted(one.published) == sorted(run_ids)
        late = accepted()
        Run.objects.filter(pk=late).update(enqueued_at=1.0)
        one.execute(late).result()
    given_back = Run.objects.filter(pk__in=run_ids)
    assert {(run.state, run.lease_owner, run.lease_expires_at) for run in given_back} == {("running", "", None)}
    assert all(run.enqueued_at is None for run in given_back), "the publisher marks what the broker took"
    assert (state(late), Run.objects.get(pk=late).enqueued_at) == (RunState.QUEUED, None)
    with running("host:2:next") as two:
        for run_id in run_ids:
            two.execute(run_id).result()
        assert "a" not in {request.node for request in two.dispatcher.sent}
    assert {state(run_id) for run_id in run_ids} == {RunState.SUCCEEDED}


def test_a_cancel_is_found_without_a_message(database: str) -> None:
    run_id = accepted()
    with running(link=holding("b")) as one:
        going = one.execute(run_id)
        one.dispatcher.wait_for_held()
        cancel_run(run=Run.objects.get(pk=run_id), by=rows.user())
        one.dispatcher.open()
        going.result()
    assert state(run_id) == RunState.CANCELLED
    assert rows.kinds(run_id)[-1] == "run_cancelled"
    assert not Invocation.objects.filter(run_id=run_id, node="c").exists()


def test_a_control_message_cancels_before_anybody_looks(world: World, valkey: str) -> None:
    run_id = accepted()
    with running(link=holding("b"), layer=get_channel_layer(), look_s=600.0) as one:
        going = one.execute(run_id)
        one.dispatcher.wait_for_held()
        cancel_run(run=Run.objects.get(pk=run_id), by=rows.user())
        message = control_message(cancel=[run_id])
        # Pub/sub has no memory: the message is repeated until the worker listens.
        while not going.done():
            asyncio.run(get_channel_layer().group_send(CONTROL_GROUP, message))
        going.result()
    assert state(run_id) == RunState.CANCELLED
    assert one.dispatcher.cancelled == ["b"]


def test_a_bundle_that_becomes_ready_is_delivered_and_switched_to(database: str) -> None:
    full = walkthrough_bundle()
    waiting = Bundle(key=full.key, variants=full.variants[:1], complete=False)
    run = rows.accept(snapshot(walkthrough(), waiting))
    loads = {
        BIG: ClassLoad(model=BIG, load=2.0, state="ok", outstanding=2, capacity=1),
        SMALL: ClassLoad(model=SMALL, load=0.1, state="ok", outstanding=0.1, capacity=1),
    }
    link = TestLink(dispatcher=GatedDispatcher(lambda request: request.node == "P"), loads=loads)
    with running(link=link) as one:
        going = one.execute(run.pk)
        one.dispatcher.wait_for_held()
        complete(run, full)
        while "bundle_ready" not in rows.kinds(run.pk):
            one.writer.call(lambda: None).result()
        one.dispatcher.open()
        going.result()
    done = Run.objects.get(pk=run.pk)
    assert (done.state, done.active_variant, done.switches) == (RunState.SUCCEEDED, 1, 1)
    assert [to for _, to, _ in rows.ledger(run.pk) if to is not None] == [1]
    assert (Invocation.objects.get(run=run, node="C").binding or {}).get("model") == SMALL


def complete(run: Run, full: Bundle) -> None:
    """What the plans worker does once it has solved the further levels."""
    stored = rows.plan_bundle(full, walkthrough(), "scratch")
    assert run.bundle is not None
    stored.variants.filter(index=1).update(bundle=run.bundle)
    PlanBundle.objects.filter(pk=run.bundle.pk).update(state=PlanBundle.State.READY)


def test_a_run_without_a_plan_is_compiled_first(world: World) -> None:
    version = rows.version(DIAMOND, world.owner)
    run = submit_run(owner=world.owner, version=version, inputs={}).run
    with running() as one:
        one.execute(run.pk).result()
    run.refresh_from_db()
    assert run.state == RunState.SUCCEEDED
    assert run.bundle is not None
    assert run.compile_s is not None
    assert set(run.invocations.exclude(kind="tool").values_list("node", flat=True)) == {"a", "b", "c"}
    assert {request.model for request in one.dispatcher.sent} <= {"qwen3.5-4b", SMALL, BIG}


def test_a_run_that_cannot_be_planned_fails_with_the_reasons(world: World) -> None:
    version = rows.version(workflow([llm("a")]), world.owner)
    run = submit_run(owner=world.owner, version=version, inputs={}).run

    def infeasible(version: WorkflowVersion, *, fleet: Fleet, options: PlanOptions) -> Compiled:
        raise PlanInfeasible(["node a has no legal implementation: allow another model"])

    with running(compile_plan=infeasible) as one:
        one.execute(run.pk).result()
    run.refresh_from_db()
    assert run.state == RunState.FAILED
    assert run.error == {
        "code": "no_plan",
        "message": "node a has no legal implementation: allow another model",
        "node": None,
    }
    assert one.dispatcher.sent == []


def test_a_run_whose_limits_conflict_fails_with_what_would_do(world: World) -> None:
    version = rows.version(workflow([llm("a")]), world.owner)
    limits = {"pin": {"a": ["*/none"]}, "forbid": {"*": ["*/none"]}}
    run = submit_run(owner=world.owner, version=version, inputs={}, limits=limits).run
    with running() as one:
        one.execute(run.pk).result()
    run.refresh_from_db()
    assert run.state == RunState.FAILED
    assert run.error is not None
    assert "pin.a=*/none" in run.error["message"]
    assert {conflict["limit"] for conflict in run.error["conflicts"]} == {"pin.a", "forbid.*"}
    assert all(conflict["text"] in run.error["message"] for conflict in run.error["conflicts"])


def test_a_defect_ends_its_run_with_a_reason(world: World) -> None:
    run = submit_run(owner=world.owner, version=rows.version(DIAMOND, world.owner), inputs={}).run

    def broken(version: WorkflowVersion, *, fleet: Fleet, options: PlanOptions) -> Compiled:
        raise KeyError("a defect")

    with running(compile_plan=broken) as one:
        one.execute(run.pk).result()
    run.refresh_from_db()
    assert run.state == RunState.FAILED
    assert run.error == {"code": "internal_error", "message": "KeyError: 'a defect'", "node": None}


def test_a_bundle_that_does_not_fit_leaves_its_runs_alone(database: str) -> None:
    full = walkthrough_bundle()
    run = rows.accept(snapshot(walkthrough(), Bundle(key="key", variants=full.variants[:1], complete=False)))
    with running(link=holding("P")) as one:
        going = one.execute(run.pk)
        one.dispatcher.wait_for_held()
        assert run.bundle is not None
        other = rows.plan_bundle(bundle(plan({"a": impl()})), workflow([llm("a")]), "another structure")
        other.variants.update(bundle=run.bundle, index=1)
        PlanBundle.objects.filter(pk=run.bundle.pk).update(state=PlanBundle.State.READY)
        one.dispatcher.open()
        going.result()
    assert state(run.pk) == RunState.SUCCEEDED


def test_a_cancel_before_the_claim_needs_no_call(database: str) -> None:
    run_id = accepted()
    epoch = leases.claim(run_id, worker="host:9:gone", lease_s=10)
    assert epoch == 1
    leases.expire("host:9:")
    cancel_run(run=Run.objects.get(pk=run_id), by=rows.user())
    with running() as one:
        one.execute(run_id).result()
    assert one.dispatcher.sent == []
    assert state(run_id) == RunState.CANCELLED


def test_many_runs_share_one_loop_and_one_writer(database: str) -> None:
    run_ids = [accepted() for _ in range(40)]
    with running() as one:
        for future in [one.execute(run_id) for run_id in run_ids]:
            future.result()
    assert {state(run_id) for run_id in run_ids} == {RunState.SUCCEEDED}
    assert one.writer.batches < one.writer.commits, "commits were not grouped"


def test_a_defect_on_the_loop_is_told(database: str) -> None:
    class Defect(TestLink):
        async def run(self) -> None:
            raise ValueError("the fleet cannot be read")

    broken = threading.Event()
    with running(link=Defect(), on_broken=broken.set) as one:
        first = one.execute(accepted())
        assert broken.wait(timeout=30)
        # It came before the loop broke, or after.
        assert isinstance(first.exception(), RuntimeError | None)
        with pytest.raises(RuntimeError, match="not running"):
            one.execute(accepted()).result()
