from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from runtime.engine.events import NodeState, RunState
from runtime.errors import RunNotFound
from runtime.models import Run
from runtime.selectors import calls_of, events_after, invocations_of, ledger_of, node_rows, run_for, runs_for
from tests.runtime import rows
from tests.runtime.engine.samples import snapshot
from tests.runtime.engine.store_contract import FLOW, FULL, decision, intent, outcome
from tests.runtime.test_store import a_commit, claim, write


@pytest.fixture
def run(transactional_db: None) -> Run:
    """Node a is committed, t is in flight, b waits; one switch and one refusal."""
    claimed = claim(rows.accept(snapshot(FLOW, FULL)).pk)
    write(a_commit(claimed, bundle=FULL, intents=(intent("a"),)))
    both = (decision(None, "no_candidate"), decision(1, "congested"))
    write(a_commit(claimed, outcomes=(outcome("a"),), decisions=both, intents=(intent("t"),)))
    return Run.objects.get(pk=claimed.run_id)


def test_runs_belong_to_their_owner(run: Run) -> None:
    stranger = User.objects.create_user("bob", is_superuser=True)
    assert list(runs_for(run.owner)) == [run]
    assert not runs_for(stranger).exists()
    assert run_for(run.owner, run.pk) == run
    for user, run_id in ((stranger, run.pk), (run.owner, "run_none")):
        with pytest.raises(RunNotFound):
            run_for(user, run_id)


def test_events_follow_a_cursor(run: Run) -> None:
    everything = events_after(run.pk, 0)
    assert [event["seq"] for event in everything] == list(range(1, run.last_seq + 1))
    assert set(everything[0]) == {"seq", "kind", "at", "data"}
    assert events_after(run.pk, 3) == everything[3:]
    assert events_after(run.pk, 1, limit=2) == everything[1:3]
    assert events_after(run.pk, run.last_seq) == []


def test_the_node_table_shows_every_node(run: Run) -> None:
    table = {row.node: row for row in node_rows(run)}
    assert list(table) == ["a", "t", "b"]
    assert [(row.kind, row.state) for row in table.values()] == [
        ("llm", NodeState.COMMITTED),
        ("tool", NodeState.DISPATCHED),
        ("llm", NodeState.WAITING),
    ]
    assert (table["a"].attempt, table["a"].calls, table["a"].output_tokens) == (1, 2, 10)
    assert table["a"].binding is not None


def test_a_node_is_ready_once_its_predecessors_are_committed(run: Run) -> None:
    run.invocations.filter(node="t").update(state=NodeState.COMMITTED)
    assert node_rows(run)[2].state == NodeState.READY
    run.state, run.finished_at = RunState.CANCELLED, 5.0
    assert node_rows(run)[2].state == NodeState.WAITING


def test_an_invocation_with_its_calls(run: Run) -> None:
    assert [row.output for row in invocations_of(run, "a")] == ["done"]
    assert [call.copy for call in calls_of(run, "a", 1)] == [0, 1]
    assert calls_of(run, "a").count() == 2
    assert not calls_of(run, "a", 2).exists()


def test_the_ledger_with_and_without_refusals(run: Run) -> None:
    assert [entry.reason for entry in ledger_of(run)] == ["no_candidate", "congested"]
    assert [entry.to_variant for entry in ledger_of(run, switches_only=True)] == [1]
