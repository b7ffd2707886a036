"""Whole runs in virtual time: order, parallelism, results, failures, bundles."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from planner.compiler.policies import ALL_POLICIES, Policy
from runtime.engine.engine import Released
from runtime.engine.events import EventKind, NodeState, RunState
from runtime.engine.ports import CallFailed, CallRequest, Commit, LeaseLost, RunEnd, SwitchSettings
from tests.runtime.engine.fakes import (
    Crash,
    FakePressure,
    SimDispatcher,
    SlowTool,
    World,
    WrappedStore,
    plain_answer,
    serve,
)
from tests.runtime.engine.samples import (
    BIG,
    SMALL,
    START,
    bundle,
    impl,
    json_llm,
    llm,
    plan,
    snapshot,
    tool,
    walkthrough,
    walkthrough_bundle,
    workflow,
)

CHAIN = workflow([llm("a"), llm("b", "Continue {{ nodes.a.output }}.")], [("a", "b")])


def fails(node: str) -> SimDispatcher:
    def answers(request: CallRequest) -> str | BaseException:
        if request.node == node:
            return CallFailed("overloaded", "503 from all replicas", retryable=True, replica="r1", tries=3)
        return plain_answer(request)

    return SimDispatcher(answers=answers)


def test_a_chain_runs_in_order_and_feeds_its_successor() -> None:
    world = World()
    finished = serve(world, snapshot(CHAIN))
    assert finished.end == RunEnd(state=RunState.SUCCEEDED, at=START + 2, output=f"b/generate0 by {SMALL}")
    assert world.dispatcher.sent[1].messages == ({"role": "user", "content": f"Continue a/generate0 by {SMALL}."},)
    assert finished.kinds() == [
        "run_accepted",
        "run_claimed",
        "plan_ready",
        "bundle_ready",
        "node_dispatched",
        "node_committed",
        "node_dispatched",
        "node_committed",
        "run_succeeded",
    ]


def test_an_error_that_quotes_a_server_can_be_stored() -> None:
    quoted = CallFailed("bad_request", "no \0 and \ud800", retryable=False)
    finished = serve(World(dispatcher=SimDispatcher(answers=lambda request: quoted)), snapshot(CHAIN))
    assert isinstance(finished.end, RunEnd)
    assert (finished.end.error or {})["message"] == "no \ufffd and \ufffd"
    (outcome,) = finished.run.outcomes
    assert outcome.calls[0].error == "bad_request: no \ufffd and \ufffd"


def test_parallel_branches_take_as_long_as_the_longest() -> None:
    seconds = {"P": 1.0, "C": 10.0, "D": 7.0, "A": 1.0}
    world = World(dispatcher=SimDispatcher(seconds=lambda request: seconds[request.node]))
    finished = serve(world, snapshot(walkthrough()))
    assert finished.seconds == 12.0
    assert finished.run.state is RunState.SUCCEEDED


def test_all_ready_nodes_of_a_step_are_committed_together_before_any_call_leaves() -> None:
    world = World()
    sent_when_committed: list[int] = []
    store = WrappedStore(world.store, after=lambda *_: sent_when_committed.append(len(world.dispatcher.sent)))
    world.wrapped = store
    serve(world, snapshot(workflow([llm("a"), llm("b"), llm("c")])))
    assert [intent.node for intent in store.commits[0].intents] == ["a", "b", "c"]
    assert sent_when_committed[0] == 0


def test_a_run_ends_when_all_nodes_are_committed_not_only_the_output() -> None:
    flow = workflow([llm("out"), llm("side")], output="out")
    world = World(dispatcher=SimDispatcher(seconds=lambda request: 1.0 if request.node == "out" else 9.0))
    finished = serve(world, snapshot(flow))
    assert finished.seconds == 9.0
    assert isinstance(finished.end, RunEnd)
    assert finished.end.output == f"out/generate0 by {SMALL}"


def test_a_workflow_of_tools_alone_runs_without_a_dispatcher_or_a_decision() -> None:
    flow = workflow([tool("t", "{{ inputs.who }}!"), tool("u", "{{ nodes.t.output }}?")], [("t", "u")])
    world = World()
    finished = serve(world, snapshot(flow, inputs={"who": "you"}))
    assert isinstance(finished.end, RunEnd)
    assert finished.end.output == "you!?"
    assert (world.dispatcher.sent, world.pressure.reads) == ([], 0)


def test_a_json_output_feeds_fields() -> None:
    flow = workflow([json_llm("a"), tool("t", "{{ nodes.a.output.answer }}")], [("a", "t")])
    finished = serve(World(), snapshot(flow))
    assert isinstance(finished.end, RunEnd)
    assert finished.end.output == "42"


def test_a_late_run_continues_and_is_marked() -> None:
    finished = serve(World(), snapshot(CHAIN, deadline_s=1.5))
    assert finished.data(EventKind.RUN_SUCCEEDED) == [{"duration_s": 2.0, "late": True}]


@pytest.mark.parametrize("policy", ALL_POLICIES, ids=lambda policy: policy.name)
def test_a_node_makes_the_calls_that_its_policy_declares(policy: Policy) -> None:
    verifier = BIG if policy.uses_verifier else None
    flow = workflow([json_llm("a")])
    world = World()
    finished = serve(world, snapshot(flow, bundle(plan({"a": impl(SMALL, policy.name, verifier)}))))
    unconditional = [stage for stage in policy.stages if stage.when == "always"]
    assert len(world.dispatcher.sent) == sum(call.count for stage in unconditional for call in stage.calls)
    assert finished.data(EventKind.NODE_COMMITTED)[0]["calls"] == len(world.dispatcher.sent)
    assert finished.seconds == len(unconditional)


# --- Failures ---


def test_a_failing_node_ends_the_run_and_stops_its_other_calls() -> None:
    flow = workflow([llm("bad"), llm("long"), llm("after")], [("bad", "after"), ("long", "after")])
    world = World(dispatcher=fails("bad"))
    world.dispatcher.seconds = lambda request: 1.0 if request.node == "bad" else 100.0
    finished = serve(world, snapshot(flow))
    assert finished.seconds == 1.0
    assert isinstance(finished.end, RunEnd)
    assert finished.end.state is RunState.FAILED
    assert finished.end.error == {
        "node": "bad",
        "attempt": 1,
        "code": "overloaded",
        "message": "503 from all replicas",
        "retryable": True,
        "replica": "r1",
        "tries": 3,
    }
    assert (world.dispatcher.cancelled, world.dispatcher.in_flight) == (1, 0)
    assert finished.kinds()[-2:] == ["node_failed", "run_failed"]
    assert finished.run.snapshot.nodes["long"].state is NodeState.CANCELLED


def test_a_failing_run_keeps_partial_results_and_waits_for_tools_in_flight() -> None:
    slow = SlowTool(5.0)
    flow = workflow([llm("ok"), llm("bad"), tool("t", tool="slow")], [("ok", "bad")])
    world = World(dispatcher=fails("bad"), tools=(slow,))
    finished = serve(world, snapshot(flow))
    assert finished.seconds == 5.0
    assert (slow.finished, slow.cut_off) == (1, 0)
    nodes = finished.run.snapshot.nodes
    assert [nodes[node].state for node in ("ok", "bad", "t")] == ["committed", "failed", "committed"]
    failed_at = [event.at for event in finished.run.events if event.kind is EventKind.NODE_FAILED]
    assert failed_at == [START + 2], "the failure is durable before the tool has ended"


def test_a_tool_past_its_time_limit_fails_the_run() -> None:
    flow = workflow([tool("t", tool="slow", timeout_s=2.0)])
    finished = serve(World(tools=(SlowTool(5.0),)), snapshot(flow))
    assert finished.seconds == 2.0
    assert finished.data(EventKind.RUN_FAILED)[0]["error"]["code"] == "timeout"


def test_an_unknown_tool_and_a_missing_field_are_named() -> None:
    nowhere = serve(World(), snapshot(workflow([tool("t", tool="nowhere")])))
    assert "the tools are: json_select, template" in nowhere.data(EventKind.NODE_FAILED)[0]["error"]["message"]
    flow = workflow([json_llm("a"), tool("t", "{{ nodes.a.output.missing }}")], [("a", "t")])
    missing = serve(World(), snapshot(flow))
    error = missing.data(EventKind.NODE_FAILED)[0]["error"]
    assert (error["code"], "its fields: answer" in error["message"]) == ("malformed_arguments", True)
    prompt = workflow([json_llm("a"), llm("b", "{{ nodes.a.output.missing }}")], [("a", "b")])
    unresolved = serve(World(), snapshot(prompt))
    assert unresolved.data(EventKind.NODE_FAILED)[0]["error"]["code"] == "unresolved_reference"


def test_a_defect_in_an_adapter_ends_the_run_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    world = World(dispatcher=SimDispatcher(answers=lambda request: KeyError("oops")))
    finished = serve(world, snapshot(CHAIN))
    assert finished.data(EventKind.RUN_FAILED)[0]["error"]["message"] == "KeyError: 'oops'"
    assert "invocation run_1/a#1 broke" in caplog.text


# --- Lease, drain, store outage ---


def test_a_lost_lease_stops_all_calls_and_commits_nothing_more() -> None:
    world = World(dispatcher=SimDispatcher(seconds=lambda request: 1.0 if request.node == "a" else 50.0))
    flow = workflow([llm("a"), llm("b"), llm("c")], [("a", "c")])

    def take_over(number: int, commit: Commit) -> None:
        if number == 2:
            world.store.claim("run_1")

    world.wrapped = WrappedStore(world.store, before=take_over)
    finished = serve(world, snapshot(flow))
    assert finished.end == Released(reason="lease_lost")
    assert (world.dispatcher.in_flight, world.dispatcher.cancelled) == (0, 1)
    assert finished.kinds()[-1] == "run_claimed"


def test_a_drained_run_is_released_without_an_end_and_keeps_what_has_ended() -> None:
    world = World(dispatcher=SimDispatcher(seconds=lambda request: 1.0 if request.node == "a" else 50.0))

    async def drain() -> None:
        await asyncio.sleep(3)
        world.control.release()

    finished = serve(world, snapshot(workflow([llm("a"), llm("b")])), drain)
    assert finished.end == Released(reason="drain")
    assert finished.seconds == 3.0
    assert not finished.run.state.ended
    assert (world.dispatcher.in_flight, finished.run.snapshot.nodes["a"].state) == (0, NodeState.COMMITTED)


async def test_a_broken_store_is_raised_and_leaves_nothing_running() -> None:
    def broken(number: int, commit: Commit) -> None:
        if number == 2:
            raise Crash("the database is gone")

    world = World()
    world.wrapped = WrappedStore(world.store, before=broken)
    world.dispatcher.seconds = lambda request: 0.0 if request.node == "a" else 1000.0
    with pytest.raises(Crash, match="the database is gone"):
        await world.serve(snapshot(workflow([llm("a"), llm("b")])))
    assert world.dispatcher.in_flight == 0


async def test_an_ended_run_cannot_be_served_again() -> None:
    world = World()
    world.dispatcher.seconds = lambda request: 0.0
    await world.serve(snapshot(CHAIN))
    with pytest.raises(LeaseLost):
        world.store.claim("run_1")


# --- Bundles ---


def test_switching_waits_for_the_completed_bundle() -> None:
    full = walkthrough_bundle()
    partial = replace(full, variants=full.variants[:1], complete=False)
    world = World(pressure=FakePressure({BIG: 1.31, SMALL: 0.2}))
    world.dispatcher.seconds = lambda request: 4.0

    async def deliver() -> None:
        await asyncio.sleep(2)
        world.control.deliver(full)

    finished = serve(world, snapshot(walkthrough(), partial), deliver)
    refused = finished.data(EventKind.SWITCH_REFUSED)
    assert refused[0]["reason"] == "bundle_pending"
    delivered = [event.at for event in finished.run.events if event.kind is EventKind.BUNDLE_READY]
    assert delivered == [START + 2], "recorded as soon as it is there"
    assert finished.data(EventKind.SWITCHED)[0]["changed"] == ["C", "D"]
    assert finished.kinds().count("plan_ready") == 1


def test_a_bundle_is_committed_once() -> None:
    world = World()
    store = world.wrapped = WrappedStore(world.store)
    serve(world, snapshot(CHAIN))
    assert [commit.bundle is not None for commit in store.commits] == [True, False, False]


def test_the_controller_can_be_off() -> None:
    world = World(pressure=FakePressure({BIG: 9.0, SMALL: 0.1}))
    finished = serve(world, snapshot(walkthrough(), walkthrough_bundle(), settings=SwitchSettings(controller="off")))
    assert world.pressure.reads == 0
    assert finished.run.decisions == []
    assert finished.bindings()["C"] == f"{BIG}.none"
