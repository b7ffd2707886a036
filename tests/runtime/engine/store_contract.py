"""The contract of every run store, as tests that an adapter inherits.

Subclass `StoreContract` (name the class `Test...`) and provide a `harness` fixture that yields a `StoreHarness`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import pytest

from runtime.engine.events import EventKind, NodeState, RunState
from runtime.engine.ports import (
    CallRecord,
    Candidate,
    ClassLoad,
    Commit,
    CommitRefused,
    Decision,
    Intent,
    LeaseLost,
    NodeSnapshot,
    Outcome,
    RunEnd,
    RunSnapshot,
    RunStore,
)
from tests.runtime.engine.samples import BIG, SMALL, START, bundle, impl, llm, plan, snapshot, tool, workflow


class StoreHarness(Protocol):
    """What the contract needs around a store. Runs are accepted at `START` (or report their own `accepted_at`)."""

    @property
    def store(self) -> RunStore: ...

    async def accept(self, snapshot: RunSnapshot) -> str:
        """Take the run in and return its id in this store."""
        ...

    async def claim(self, run_id: str) -> RunSnapshot:
        """Own the run under a new epoch, whoever owned it before."""
        ...

    async def request_cancel(self, run_id: str) -> None: ...

    async def events(self, run_id: str) -> Sequence[tuple[int, str, dict[str, Any]]]:
        """The whole log: (seq, kind, data)."""
        ...

    async def ledger(self, run_id: str) -> Sequence[tuple[int, int | None, str]]:
        """The whole ledger: (id, to_variant, reason)."""
        ...


FLOW = workflow([llm("a"), tool("t"), llm("b")], [("a", "t"), ("t", "b")])
FIRST = plan({"a": impl(BIG), "b": impl(BIG, "self_check")}, quality=0.9)
SECOND = plan({"a": impl(SMALL), "b": impl(SMALL)}, level=1.5, quality=0.85)
FULL = bundle(FIRST, SECOND)
FULL_ONLY_FIRST = bundle(FIRST, complete=False)


def intent(node: str = "a", attempt: int = 1) -> Intent:
    if node == "t":
        return Intent(node="t", attempt=attempt, kind="tool", at=START, predicted_s=1.0, arguments={"template": "x"})
    return Intent(
        node=node,
        attempt=attempt,
        kind="llm",
        at=START,
        binding=FIRST.assignment[node],
        variant=0,
        predicted_s=2.5,
    )


def call(role: str = "generate", copy: int = 0) -> CallRecord:
    return CallRecord(
        stage=0,
        role=role,
        copy=copy,
        model=BIG,
        backend=f"{BIG}@h200",
        replica="r0",
        request_id=f"a.1.0.{copy}",
        messages=({"role": "user", "content": "Do it, «please» \n now"},),
        text="done",
        reasoning="",
        prompt_tokens=11,
        output_tokens=5,
        finish_reason="stop",
        started_at=START,
        finished_at=START + 2,
    )


def outcome(node: str = "a", output: Any = "done", error: dict[str, Any] | None = None, attempt: int = 1) -> Outcome:
    return Outcome(
        node=node,
        attempt=attempt,
        started_at=START,
        finished_at=START + 2,
        output=output,
        error=error,
        calls=(call(), call(copy=1)) if node != "t" else (),
    )


def decision(to_variant: int | None, reason: str) -> Decision:
    load = ClassLoad(model=BIG, load=float("inf"), state="overloaded")
    return Decision(
        at=START + 3,
        active_variant=0,
        to_variant=to_variant,
        reason=reason,
        text="A sentence.",
        loads={BIG: load},
        thresholds={"high": 0.85},
        candidates=(
            Candidate(
                variant=1,
                level=1.5,
                dominant_model=SMALL,
                estimated_quality=0.85,
                verdict="accepted" if to_variant else "skipped",
                reason="accepted" if to_variant else "overloaded",
                text="Another.",
            ),
        ),
        changed=("b",) if to_variant else (),
        kept=("a",),
    )


class StoreContract:
    """Inherited by one test class per store."""

    async def start(self, harness: StoreHarness, **changes: Any) -> tuple[RunSnapshot, int]:
        """An accepted and claimed run, and the log's length."""
        run_id = await harness.accept(replace(snapshot(FLOW, FULL), **changes))
        claimed = await harness.claim(run_id)
        return claimed, len(await harness.events(run_id))

    def commit(self, claimed: RunSnapshot, **parts: Any) -> Commit:
        return Commit(run_id=claimed.run_id, epoch=claimed.epoch, at=START + 1, **parts)

    async def kinds(self, harness: StoreHarness, claimed: RunSnapshot, after: int = 0) -> list[str]:
        return [str(kind) for _, kind, _ in (await harness.events(claimed.run_id))[after:]]

    async def data(self, harness: StoreHarness, claimed: RunSnapshot, kind: EventKind) -> list[dict[str, Any]]:
        return [data for _, found, data in await harness.events(claimed.run_id) if found == kind]

    async def test_a_log_starts_with_acceptance_and_claim(self, harness: StoreHarness) -> None:
        claimed, _ = await self.start(harness)
        assert await self.kinds(harness, claimed) == ["run_accepted", "run_claimed"]
        assert (claimed.epoch, claimed.active_variant, dict(claimed.nodes)) == (1, 0, {})

    async def test_the_first_commit_records_plan_then_intents(self, harness: StoreHarness) -> None:
        claimed, before = await self.start(harness)
        answer = await harness.store.commit(self.commit(claimed, bundle=FULL_ONLY_FIRST, intents=(intent("a"),)))
        assert await self.kinds(harness, claimed, before) == ["plan_ready", "node_dispatched"]
        assert answer.barred is None
        assert answer.seq == (await harness.events(claimed.run_id))[-1][0]
        dispatched = await self.data(harness, claimed, EventKind.NODE_DISPATCHED)
        assert dispatched == [
            {
                "node": "a",
                "kind": "llm",
                "attempt": 1,
                "variant": 0,
                "binding": FIRST.assignment["a"].to_json(),
                "predicted_s": 2.5,
            }
        ]

    async def test_one_commit_keeps_its_order(self, harness: StoreHarness) -> None:
        claimed, before = await self.start(harness)
        await harness.store.commit(self.commit(claimed, bundle=FULL_ONLY_FIRST, intents=(intent("a"),)))
        everything = self.commit(
            claimed,
            outcomes=(outcome("a"),),
            bundle=FULL,
            decisions=(decision(None, "no_candidate"), decision(1, "congested")),
            intents=(intent("t"),),
        )
        await harness.store.commit(everything)
        assert (await self.kinds(harness, claimed, before))[2:] == [
            "node_committed",
            "bundle_ready",
            "switch_refused",
            "switched",
            "node_dispatched",
        ]
        events = await harness.events(claimed.run_id)
        assert [seq for seq, _, _ in events] == list(range(1, len(events) + 1))
        committed = await self.data(harness, claimed, EventKind.NODE_COMMITTED)
        assert committed[0] == {
            "node": "a",
            "attempt": 1,
            "duration_s": 2.0,
            "calls": 2,
            "prompt_tokens": 22,
            "output_tokens": 10,
            "head": "done",
        }

    async def test_the_ledger_is_numbered_by_its_events(self, harness: StoreHarness) -> None:
        claimed, _ = await self.start(harness)
        both = (decision(None, "no_candidate"), decision(1, "congested"))
        await harness.store.commit(self.commit(claimed, bundle=FULL, decisions=both))
        refused = await self.data(harness, claimed, EventKind.SWITCH_REFUSED)
        switched = await self.data(harness, claimed, EventKind.SWITCHED)
        assert list(await harness.ledger(claimed.run_id)) == [
            (refused[0]["decision"], None, "no_candidate"),
            (switched[0]["decision"], 1, "congested"),
        ]
        seqs = {data["decision"]: seq for seq, _, data in await harness.events(claimed.run_id) if "decision" in data}
        assert all(number == seq for number, seq in seqs.items())

    async def test_a_bundle_is_announced_once(self, harness: StoreHarness) -> None:
        claimed, _ = await self.start(harness)
        await harness.store.commit(self.commit(claimed, bundle=FULL))
        again = await harness.claim(claimed.run_id)
        await harness.store.commit(self.commit(again, bundle=FULL))
        kinds = await self.kinds(harness, claimed)
        assert (kinds.count("plan_ready"), kinds.count("bundle_ready")) == (1, 1)
        assert again.bundle.complete
        assert len(again.bundle.variants) == 2

    async def test_an_older_epoch_can_commit_nothing(self, harness: StoreHarness) -> None:
        claimed, _ = await self.start(harness)
        await harness.claim(claimed.run_id)
        before = await harness.events(claimed.run_id)
        with pytest.raises(LeaseLost):
            await harness.store.commit(self.commit(claimed, bundle=FULL, intents=(intent("a"),)))
        assert await harness.events(claimed.run_id) == before

    async def test_an_ended_run_takes_no_commit(self, harness: StoreHarness) -> None:
        claimed, _ = await self.start(harness)
        end = RunEnd(state=RunState.CANCELLED, at=START + 2)
        await harness.store.commit(self.commit(claimed, bundle=FULL, end=end))
        before = await harness.events(claimed.run_id)
        with pytest.raises(LeaseLost):
            await harness.store.commit(self.commit(claimed, intents=(intent("a"),)))
        assert await harness.events(claimed.run_id) == before

    async def test_a_cancel_bars_intents_and_keeps_outcomes(self, harness: StoreHarness) -> None:
        claimed, before = await self.start(harness)
        await harness.store.commit(self.commit(claimed, bundle=FULL, intents=(intent("a"),)))
        await harness.request_cancel(claimed.run_id)
        answer = await harness.store.commit(
            self.commit(
                claimed, outcomes=(outcome("a"),), decisions=(decision(1, "congested"),), intents=(intent("t"),)
            )
        )
        assert answer.barred == "cancel"
        assert (await self.kinds(harness, claimed, before))[3:] == ["cancel_requested", "node_committed"]
        again = await harness.claim(claimed.run_id)
        assert set(again.nodes) == {"a"}
        assert again.active_variant == 0

    async def test_a_commit_without_intents_is_never_barred(self, harness: StoreHarness) -> None:
        claimed, _ = await self.start(harness)
        await harness.store.commit(self.commit(claimed, bundle=FULL, intents=(intent("a"),)))
        await harness.request_cancel(claimed.run_id)
        end = RunEnd(state=RunState.SUCCEEDED, at=START + 2, output="done")
        answer = await harness.store.commit(self.commit(claimed, outcomes=(outcome("a"),), end=end))
        assert answer.barred is None
        assert (await self.kinds(harness, claimed))[-1] == "run_succeeded"

    async def test_one_outcome_per_invocation(self, harness: StoreHarness) -> None:
        claimed, _ = await self.start(harness)
        await harness.store.commit(self.commit(claimed, bundle=FULL, intents=(intent("a"),)))
        await harness.store.commit(self.commit(claimed, outcomes=(outcome("a"),)))
        before = await harness.events(claimed.run_id)
        with pytest.raises(CommitRefused):
            await harness.store.commit(self.commit(claimed, outcomes=(outcome("a", "other"),), intents=(intent("t"),)))
        assert await harness.events(claimed.run_id) == before
        assert (await harness.claim(claimed.run_id)).nodes["a"].output == "done"

    async def test_no_outcome_without_its_intent(self, harness: StoreHarness) -> None:
        claimed, before = await self.start(harness)
        with pytest.raises(CommitRefused):
            await harness.store.commit(self.commit(claimed, bundle=FULL, outcomes=(outcome("a"),)))
        assert await self.kinds(harness, claimed, before) == []

    async def test_no_second_intent_for_a_node_in_flight(self, harness: StoreHarness) -> None:
        claimed, _ = await self.start(harness)
        await harness.store.commit(self.commit(claimed, bundle=FULL, intents=(intent("a"),)))
        with pytest.raises(CommitRefused):
            await harness.store.commit(self.commit(claimed, intents=(intent("a"),)))

    async def test_a_claim_returns_what_was_committed(self, harness: StoreHarness) -> None:
        claimed, _ = await self.start(harness)
        await harness.store.commit(
            self.commit(claimed, bundle=FULL, intents=(intent("a"),), decisions=(decision(1, "congested"),))
        )
        await harness.store.commit(self.commit(claimed, outcomes=(outcome("a"),), intents=(intent("t"),)))
        again = await harness.claim(claimed.run_id)
        assert again.epoch == claimed.epoch + 1
        assert (again.active_variant, again.last_switch_at) == (1, START + 3)
        assert again.workflow == FLOW
        assert again.nodes["a"] == NodeSnapshot(
            state=NodeState.COMMITTED,
            attempt=1,
            binding=FIRST.assignment["a"],
            variant=0,
            dispatched_at=START,
            output="done",
        )
        assert again.nodes["t"].state is NodeState.DISPATCHED
        assert (again.nodes["t"].attempt, again.nodes["t"].binding) == (1, None)
        assert "b" not in again.nodes

    @pytest.mark.parametrize(
        "output",
        ["", "text", "ä \N{SNOWMAN}", 0, -1.5, True, None, [], {"a": [1, {"b": None}]}, "x" * 1_500_000],
        ids=["empty", "text", "unicode", "zero", "float", "true", "null", "list", "object", "large"],
    )
    async def test_outputs_come_back_as_they_were(self, harness: StoreHarness, output: Any) -> None:
        claimed, _ = await self.start(harness)
        await harness.store.commit(self.commit(claimed, bundle=FULL, intents=(intent("a"),)))
        await harness.store.commit(self.commit(claimed, outcomes=(outcome("a", output),)))
        node = (await harness.claim(claimed.run_id)).nodes["a"]
        assert node.state is NodeState.COMMITTED
        assert node.output == output
        assert type(node.output) is type(output)

    async def test_a_failure_is_kept_with_its_diagnostics(self, harness: StoreHarness) -> None:
        claimed, _ = await self.start(harness)
        error = {"code": "timeout", "message": "no answer within 60 s"}
        await harness.store.commit(self.commit(claimed, bundle=FULL, intents=(intent("a"),)))
        await harness.store.commit(self.commit(claimed, outcomes=(outcome("a", None, error),)))
        node = (await harness.claim(claimed.run_id)).nodes["a"]
        assert (node.state, node.error) == (NodeState.FAILED, error)
        failed = await self.data(harness, claimed, EventKind.NODE_FAILED)
        assert failed == [{"node": "a", "attempt": 1, "error": error, "calls": 2}]

    async def test_a_failed_run_names_its_node(self, harness: StoreHarness) -> None:
        claimed, _ = await self.start(harness)
        error = {"node": "a", "code": "timeout", "message": "no answer"}
        end = RunEnd(state=RunState.FAILED, at=START + 9, error=error)
        await harness.store.commit(self.commit(claimed, bundle=FULL, end=end))
        assert await self.data(harness, claimed, EventKind.RUN_FAILED) == [{"node": "a", "error": error}]

    @pytest.mark.parametrize(("after_s", "late"), [(9.0, False), (11.0, True)])
    async def test_a_run_past_its_deadline_is_marked_late(
        self, harness: StoreHarness, after_s: float, late: bool
    ) -> None:
        claimed, _ = await self.start(harness, deadline_s=10.0)
        end = RunEnd(state=RunState.SUCCEEDED, at=claimed.accepted_at + after_s, output="done")
        await harness.store.commit(self.commit(claimed, bundle=FULL, end=end))
        ended = await self.data(harness, claimed, EventKind.RUN_SUCCEEDED)
        assert ended == [{"duration_s": pytest.approx(after_s), "late": late}]

    async def test_runs_that_commit_at_once_do_not_mix(self, harness: StoreHarness) -> None:
        started = [(await self.start(harness, run_id=f"run_{index}"))[0] for index in range(8)]
        await asyncio.gather(
            *(harness.store.commit(self.commit(one, bundle=FULL, intents=(intent("a"),))) for one in started)
        )
        await asyncio.gather(
            *(harness.store.commit(self.commit(one, outcomes=(outcome("a", one.run_id),))) for one in started)
        )
        for one in started:
            events = await harness.events(one.run_id)
            assert [seq for seq, _, _ in events] == list(range(1, len(events) + 1))
            assert (await harness.claim(one.run_id)).nodes["a"].output == one.run_id

    async def test_one_lost_lease_spoils_no_other_commit(self, harness: StoreHarness) -> None:
        healthy, _ = await self.start(harness, run_id="run_healthy")
        lost, _ = await self.start(harness, run_id="run_lost")
        await harness.claim(lost.run_id)
        answers = await asyncio.gather(
            harness.store.commit(self.commit(lost, bundle=FULL, intents=(intent("a"),))),
            harness.store.commit(self.commit(healthy, bundle=FULL, intents=(intent("a"),))),
            return_exceptions=True,
        )
        assert isinstance(answers[0], LeaseLost)
        assert not isinstance(answers[1], BaseException)
