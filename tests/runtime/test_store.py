from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from django.db import OperationalError, connection

from runtime import leases
from runtime.database import pair_placeholders, statement
from runtime.engine.events import NodeState, RunState
from runtime.engine.ports import Commit, Committed, Outcome, RunEnd, RunSnapshot
from runtime.models import Call, Invocation, Run
from runtime.services import cancel_run
from runtime.snapshots import load_claimed
from runtime.store import READ_ATTEMPTS, DjangoRunStore, Journal, write_batch
from runtime.writer import Answer, Writer
from tests.runtime import rows
from tests.runtime.databases import in_thread
from tests.runtime.engine.samples import START, snapshot
from tests.runtime.engine.store_contract import FLOW, FULL, StoreContract, call, decision, intent, outcome

WORKER = "host:1:test"


def claim(run_id: str) -> RunSnapshot:
    """Own the run whoever owned it before, as the reaper and a new worker would together."""
    Run.objects.filter(pk=run_id).update(lease_owner="", lease_expires_at=None)
    epoch = leases.claim(run_id, worker=WORKER, lease_s=10)
    assert epoch is not None
    return load_claimed(run_id, epoch).snapshot


class DjangoHarness:
    def __init__(self, writer: Writer) -> None:
        self.store = DjangoRunStore(writer)
        self.writer = writer

    async def accept(self, snapshot: RunSnapshot) -> str:
        run: Run = await in_thread(rows.accept, snapshot)
        return run.pk

    async def claim(self, run_id: str) -> RunSnapshot:
        return await in_thread(claim, run_id)

    async def request_cancel(self, run_id: str) -> None:
        await in_thread(lambda: cancel_run(run=Run.objects.get(pk=run_id), by=rows.user()))

    async def events(self, run_id: str) -> Sequence[tuple[int, str, dict[str, Any]]]:
        return await in_thread(rows.events, run_id)

    async def ledger(self, run_id: str) -> Sequence[tuple[int, int | None, str]]:
        return await in_thread(rows.ledger, run_id)


def new_writer(**changes: Any) -> Writer:
    parts: dict[str, Any] = {"write": write_batch, "new_journal": Journal, "window_s": 0.0, "patience_s": 5.0}
    return Writer(**{**parts, **changes})


@pytest.fixture
def writer(database: str) -> Iterator[Writer]:
    writer = new_writer()
    writer.start()
    yield writer
    writer.stop()


@pytest.fixture
def harness(writer: Writer) -> DjangoHarness:
    return DjangoHarness(writer)


class TestDjangoStore(StoreContract):
    @pytest.fixture
    def harness(self, writer: Writer) -> DjangoHarness:
        return DjangoHarness(writer)


def a_commit(claimed: RunSnapshot, **parts: Any) -> Commit:
    return Commit(run_id=claimed.run_id, epoch=claimed.epoch, at=START + 1, **parts)


def claimed_run(**changes: Any) -> RunSnapshot:
    return claim(rows.accept(replace(snapshot(FLOW, FULL), **changes)).pk)


def write(*commits: Commit) -> list[Answer]:
    return write_batch(commits, Journal())


def test_the_run_keeps_count(database: str) -> None:
    claimed = claimed_run()
    write(a_commit(claimed, bundle=FULL, intents=(intent("a"),), decisions=(decision(1, "congested"),)))
    write(a_commit(claimed, outcomes=(outcome("a"),), intents=(intent("t"),)))
    run = Run.objects.get(pk=claimed.run_id)
    assert (run.nodes_done, run.calls, run.prompt_tokens, run.output_tokens) == (1, 2, 22, 10)
    assert (run.switches, run.active_variant, run.last_switch_at) == (1, 1, START + 3)
    assert run.last_seq == len(rows.events(run.pk))
    assert Call.objects.filter(run=run, node="a", attempt=1).count() == 2


def test_an_end_gives_the_lease_back_and_cancels_what_is_in_flight(database: str) -> None:
    claimed = claimed_run()
    write(a_commit(claimed, bundle=FULL, intents=(intent("a"),)))
    error = {"code": "timeout", "message": "none", "node": "t"}
    write(a_commit(claimed, end=RunEnd(state=RunState.FAILED, at=START + 9, error=error)))
    run = Run.objects.get(pk=claimed.run_id)
    assert (run.state, run.error, run.finished_at, run.late) == (RunState.FAILED, error, START + 9, False)
    assert (run.lease_owner, run.lease_expires_at) == ("", None)
    assert Invocation.objects.get(run=run, node="a").state == NodeState.CANCELLED


def test_two_commits_of_one_run_in_one_batch_apply_in_order(database: str) -> None:
    claimed = claimed_run()
    answers = write(
        a_commit(claimed, bundle=FULL, intents=(intent("a"),)),
        a_commit(claimed, bundle=FULL, outcomes=(outcome("a"),), intents=(intent("t"),)),
        a_commit(claimed, outcomes=(outcome("a"),)),
    )
    assert [type(answer).__name__ for answer in answers] == ["Committed", "Committed", "CommitRefused"]
    assert [kind for kind in rows.kinds(claimed.run_id) if kind.startswith(("plan", "node"))] == [
        "plan_ready",
        "node_dispatched",
        "node_committed",
        "node_dispatched",
    ]


def test_an_unknown_run_has_no_lease(database: str) -> None:
    (answer,) = write(Commit(run_id="run_none", epoch=1, at=START, intents=(intent("a"),)))
    assert type(answer).__name__ == "LeaseLost"


def test_what_no_database_can_hold_does_not_spoil_a_commit(database: str) -> None:
    claimed = claimed_run()
    write(a_commit(claimed, bundle=FULL, intents=(intent("a"), intent("t"))))
    dirty = replace(call(), text="a\x00b\ud800", reasoning="\x00", finish_reason="stop" * 20)
    tool = replace(outcome("t"), output={"x\x00": [float("nan"), float("inf"), "\udfff", 1.5]})
    write(a_commit(claimed, outcomes=(replace(outcome("a"), output="a\x00b", calls=(dirty,)), tool)))
    assert Invocation.objects.get(run_id=claimed.run_id, node="a").output == "a\ufffdb"
    assert Invocation.objects.get(run_id=claimed.run_id, node="t").output == {"x\ufffd": [None, None, "\ufffd", 1.5]}
    assert Call.objects.get(run_id=claimed.run_id).text == "a\ufffdb\ufffd"


def test_a_batch_is_one_transaction(database: str, django_assert_max_num_queries: Any) -> None:
    claimed = [claimed_run() for _ in range(20)]
    commits = [a_commit(one, bundle=FULL, intents=(intent("a"),)) for one in claimed]
    # BEGIN (SQLite only), lock, attempts, announced, then one executemany per table: never one statement per run.
    with django_assert_max_num_queries(9):
        answers = write(*commits)
    assert all(isinstance(answer, Committed) for answer in answers)


@pytest.mark.parametrize("first", [True, False], ids=["cancel first", "commit first"])
def test_a_cancel_and_a_commit_that_race_are_put_in_order(database: str, first: bool) -> None:
    claimed = claimed_run()
    write(a_commit(claimed, bundle=FULL, intents=(intent("a"),)))
    step = a_commit(claimed, outcomes=(outcome("a"),), intents=(intent("t"),))
    run = Run.objects.get(pk=claimed.run_id)
    if first:
        cancel_run(run=run, by=rows.user())
        (answer,) = write(step)
    else:
        (answer,) = write(step)
        cancel_run(run=run, by=rows.user())
    assert isinstance(answer, Committed)
    assert answer.barred == ("cancel" if first else None)
    assert Invocation.objects.filter(run=run, node="t").exists() is not first
    log = [kind for kind in rows.kinds(run.pk) if kind in ("cancel_requested", "node_committed")]
    assert log == (["cancel_requested", "node_committed"] if first else ["node_committed", "cancel_requested"])


async def test_no_intent_is_committed_after_a_cancel_whatever_the_interleaving(harness: DjangoHarness) -> None:
    runs = [await harness.claim(await harness.accept(snapshot(FLOW, FULL))) for _ in range(12)]
    await asyncio.gather(*(harness.store.commit(a_commit(one, bundle=FULL, intents=(intent("a"),))) for one in runs))
    steps = [harness.store.commit(a_commit(one, outcomes=(outcome("a"),), intents=(intent("t"),))) for one in runs]
    answers, _ = await asyncio.gather(
        asyncio.gather(*steps), asyncio.gather(*(harness.request_cancel(one.run_id) for one in runs))
    )
    for one, answer in zip(runs, answers, strict=True):
        log = [kind for _, kind, _ in await harness.events(one.run_id)]
        dispatched_after = log[log.index("cancel_requested") :].count("node_dispatched")
        assert dispatched_after == 0
        assert log.count("node_committed") == 1
        assert log.count("node_dispatched") == (1 if answer.barred else 2)


# --- The writer ------------------------------------------------------------------------------------------------------


async def test_commits_gather_while_the_writer_is_busy(database: str) -> None:
    import threading

    sizes: list[int] = []
    first_is_in, go_on = threading.Event(), threading.Event()

    def slow_first(commits: Sequence[Commit], journal: Journal) -> list[Answer]:
        sizes.append(len(commits))
        if len(sizes) == 1:
            first_is_in.set()
            go_on.wait()
        return write_batch(commits, journal)

    written: list[tuple[str, int]] = []
    writer = new_writer(write=slow_first, on_written=written.extend)
    writer.start()
    harness = DjangoHarness(writer)
    try:
        runs = [await harness.claim(await harness.accept(snapshot(FLOW, FULL))) for _ in range(9)]
        commits = [a_commit(one, bundle=FULL, intents=(intent("a"),)) for one in runs]
        alone = asyncio.ensure_future(harness.store.commit(commits[0]))
        await asyncio.to_thread(first_is_in.wait)
        together = [asyncio.ensure_future(harness.store.commit(one)) for one in commits[1:]]
        await asyncio.sleep(0)
        go_on.set()
        answers = await asyncio.gather(alone, *together)
    finally:
        go_on.set()
        writer.stop()
    assert sizes == [1, 8]
    assert (writer.batches, writer.commits) == (2, 9)
    assert dict(written) == {one.run_id: answer.seq for one, answer in zip(runs, answers, strict=True)}


class Flaky:
    """Fails like a lost connection: before anything happened, or after the database had committed."""

    def __init__(self, failures: int, *, after: bool) -> None:
        self.left, self.after, self.tries = failures, after, 0

    def __call__(self, commits: Sequence[Commit], journal: Journal) -> list[Answer]:
        self.tries += 1
        fails = self.left > 0
        self.left -= fails
        if fails and not self.after:
            raise OperationalError("the connection is closed")
        answers = write_batch(commits, journal)
        if fails:
            raise OperationalError("the connection was lost")
        return answers


@pytest.mark.parametrize("after", [False, True], ids=["before the commit", "after the commit"])
async def test_a_lost_connection_costs_no_commit_and_doubles_none(database: str, after: bool) -> None:
    flaky = Flaky(2, after=after)
    writer = new_writer(write=flaky)
    writer.start()
    harness = DjangoHarness(writer)
    try:
        one = await harness.claim(await harness.accept(snapshot(FLOW, FULL)))
        answer = await harness.store.commit(a_commit(one, bundle=FULL, intents=(intent("a"),)))
        second = await harness.store.commit(a_commit(one, outcomes=(outcome("a"),)))
    finally:
        writer.stop()
    assert flaky.tries == 4
    log = await harness.events(one.run_id)
    assert [seq for seq, _, _ in log] == list(range(1, len(log) + 1))
    assert (answer.seq, second.seq) == (log[-2][0], log[-1][0])
    assert [kind for _, kind, _ in log][2:] == ["plan_ready", "bundle_ready", "node_dispatched", "node_committed"]


async def test_an_outage_longer_than_the_lease_loses_it(database: str) -> None:
    from runtime.engine.ports import LeaseLost

    writer = new_writer(write=Flaky(1000, after=False), patience_s=0.0)
    writer.start()
    try:
        with pytest.raises(LeaseLost, match="longer than the lease"):
            await DjangoRunStore(writer).commit(Commit(run_id="run_1", epoch=1, at=START))
    finally:
        writer.stop()


async def test_one_impossible_commit_does_not_cost_the_others(harness: DjangoHarness) -> None:
    good = await harness.claim(await harness.accept(snapshot(FLOW, FULL)))
    bad = await harness.claim(await harness.accept(snapshot(FLOW, FULL)))
    await asyncio.gather(
        *(harness.store.commit(a_commit(one, bundle=FULL, intents=(intent("a"),))) for one in (good, bad))
    )
    unwritable: Outcome = replace(outcome("a"), output=object())
    answers = await asyncio.gather(
        harness.store.commit(a_commit(bad, outcomes=(unwritable,))),
        harness.store.commit(a_commit(good, outcomes=(outcome("a"),))),
        return_exceptions=True,
    )
    assert isinstance(answers[0], TypeError)
    assert isinstance(answers[1], Committed)


def test_pairs_are_found_by_index(database: str) -> None:
    explain = "EXPLAIN QUERY PLAN" if database == "sqlite" else "EXPLAIN"
    with connection.cursor() as cursor:
        if database == "postgresql":
            cursor.execute("SET enable_seqscan = off")
        sql = statement(READ_ATTEMPTS, pairs=pair_placeholders(2))
        cursor.execute(f"{explain} {sql}", ["r", "a", "r", "b"])
        found = " ".join(str(row) for row in cursor.fetchall())
        if database == "postgresql":
            cursor.execute("RESET enable_seqscan")
    assert "SCAN i " not in found
    assert "Seq Scan on runtime_invocation" not in found
    assert "ndex" in found
