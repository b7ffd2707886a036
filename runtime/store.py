"""The engine's run store on Django's database: one transaction for a batch of commits (DESIGN.md, Durable execution).

Raw SQL, the same on SQLite and PostgreSQL, because `executemany` costs half the CPU of the ORM's bulk methods here.
Rows are locked in the order of their ids and compared with the commits' epochs before anything is inserted: a
conditional INSERT without the lock would race with a worker that takes the run over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper

from runtime.batch import LockedRun, Row, Rows, apply
from runtime.database import pair_placeholders, placeholders, statement
from runtime.engine.events import EventKind
from runtime.engine.log import Event
from runtime.engine.ports import Commit, CommitRefused, Committed, LeaseLost
from runtime.writer import Answer, Writer

_RUN_COLUMNS = (
    "id, epoch, state, cancel_requested_at, last_seq, accepted_at, deadline_s, active_variant, last_switch_at, "
    "nodes_done, calls, prompt_tokens, output_tokens, switches"
)
UPDATE_RUN = (
    "UPDATE runtime_run SET last_seq = %s, nodes_done = %s, calls = %s, prompt_tokens = %s, output_tokens = %s, "
    "switches = %s, active_variant = %s, last_switch_at = %s WHERE id = %s"
)
_END_RUN = (
    "UPDATE runtime_run SET state = %s, output = %s, error = %s, finished_at = %s, late = %s, lease_owner = '', "
    "lease_expires_at = NULL WHERE id = %s"
)
_CANCEL_REST = "UPDATE runtime_invocation SET state = 'cancelled' WHERE run_id = %s AND state = 'dispatched'"
_END_INVOCATION = (
    "UPDATE runtime_invocation SET state = %s, finished_at = %s, output = %s, error = %s, calls = %s, "
    "prompt_tokens = %s, output_tokens = %s WHERE run_id = %s AND node = %s AND attempt = %s"
)


_LOCK_RUNS = "SELECT {columns} FROM runtime_run WHERE id IN ({ids}) ORDER BY id {row_lock}"
READ_ATTEMPTS = (
    "SELECT i.run_id, i.node, i.attempt, i.state FROM (VALUES {pairs}) AS v "
    "JOIN runtime_invocation i ON i.run_id = v.column1 AND i.node = v.column2 ORDER BY i.attempt"
)
_READ_ANNOUNCED = "SELECT run_id, kind FROM runtime_runevent WHERE run_id IN ({ids}) AND kind IN (%s, %s)"
_READ_DURABLE = (
    "SELECT e.run_id, e.seq, e.kind, e.at FROM (VALUES {pairs}) AS v "
    "JOIN runtime_runevent e ON e.run_id = v.column1 AND e.seq = v.column2"
)
_INSERT = "INSERT INTO {table} ({columns}) VALUES ({values})"


def _insert(table: str, columns: str, rest: str = "") -> str:
    """`rest`: constants for columns that a new row does not set."""
    values = placeholders(columns.count(",") + 1 - rest.count(",")) + rest
    return _INSERT.format(table=table, columns=columns, values=values)


INSERT_EVENT = _insert("runtime_runevent", "run_id, seq, kind, schema, at, data")
_INSERT_INTENT = _insert(
    "runtime_invocation",
    "run_id, node, attempt, kind, state, variant, binding, arguments, predicted_s, dispatched_at, "
    "calls, prompt_tokens, output_tokens",
    ", 0, 0, 0",
)
_INSERT_CALL = _insert(
    "runtime_call",
    "run_id, node, attempt, stage, role, copy, model, backend, replica, request_id, messages, text, reasoning, "
    "verdict, error, finish_reason, prompt_tokens, output_tokens, tries, started_at, finished_at, queue_s, ttft_s",
)
_INSERT_LEDGER = _insert(
    "runtime_ledgerentry",
    "run_id, seq, at, active_variant, to_variant, reason, text, loads, thresholds, candidates, changed, kept",
)


class DjangoRunStore:
    """`RunStore` of one worker: every commit goes through its writer's group commits."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def commit(self, commit: Commit) -> Committed:
        future: asyncio.Future[Committed] = asyncio.get_running_loop().create_future()
        self._writer.submit(commit, future)
        return await future


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tried:
    """What an earlier try at a commit would have appended first, and its answer."""

    seq: int
    kind: str
    answer: Committed


@dataclass(slots=True)
class Journal:
    """What earlier tries of one batch wrote, in case the connection broke after the database had committed.

    Without it a commit that is durable already would be tried again and refused as a second outcome.
    """

    tried: dict[int, _Tried] = field(default_factory=dict)

    def note(self, position: int, events: Sequence[Event], answer: Committed) -> None:
        if events:
            first = answer.seq - len(events) + 1
            self.tried[position] = _Tried(seq=first, kind=str(events[0][0]), answer=answer)


def write_batch(commits: Sequence[Commit], journal: Journal) -> list[Answer]:
    """Make commits durable in one transaction; the answers in their order. Raises the database's own errors."""
    with transaction.atomic(), connection.cursor() as cursor:
        runs = _lock(cursor, sorted({commit.run_id for commit in commits}))
        durable = _durable(cursor, commits, journal)
        _read_attempts(cursor, commits, runs)
        _read_announced(cursor, commits, runs)
        rows = Rows()
        answers: list[Answer] = []
        for position, commit in enumerate(commits):
            if position in durable:
                answers.append(journal.tried[position].answer)
                continue
            try:
                answer, events = apply(commit, runs.get(commit.run_id), rows)
            except (LeaseLost, CommitRefused) as refusal:
                answers.append(refusal)
                continue
            journal.note(position, events, answer)
            answers.append(answer)
        _write(cursor, rows, runs.values())
    return answers


def _lock(cursor: CursorWrapper, run_ids: Sequence[str]) -> dict[str, LockedRun]:
    cursor.execute(statement(_LOCK_RUNS, columns=_RUN_COLUMNS, ids=placeholders(len(run_ids))), run_ids)
    return {row[0]: _locked(row) for row in cursor.fetchall()}


def _locked(row: Row) -> LockedRun:
    names = _RUN_COLUMNS.split(", ")
    values: dict[str, Any] = dict(zip(names, row, strict=True))
    values["cancel_requested"] = values.pop("cancel_requested_at") is not None
    return LockedRun(**values)


def _durable(cursor: CursorWrapper, commits: Sequence[Commit], journal: Journal) -> set[int]:
    """Positions of commits that an earlier try made durable: the log holds their first event."""
    if not journal.tried:
        return set()
    places = {position: (commits[position].run_id, tried.seq) for position, tried in journal.tried.items()}
    cursor.execute(
        statement(_READ_DURABLE, pairs=pair_placeholders(len(places))),
        [value for place in places.values() for value in place],
    )
    found = {(run_id, seq): (kind, at) for run_id, seq, kind, at in cursor.fetchall()}
    return {
        position
        for position, place in places.items()
        if found.get(place) == (journal.tried[position].kind, commits[position].at)
    }


def _nodes_of(commit: Commit) -> set[str]:
    return {outcome.node for outcome in commit.outcomes} | {intent.node for intent in commit.intents}


def _read_attempts(cursor: CursorWrapper, commits: Sequence[Commit], runs: dict[str, LockedRun]) -> None:
    places = {(commit.run_id, node) for commit in commits if commit.run_id in runs for node in _nodes_of(commit)}
    if not places:
        return
    cursor.execute(
        statement(READ_ATTEMPTS, pairs=pair_placeholders(len(places))),
        [value for place in places for value in place],
    )
    for run_id, node, attempt, state in cursor.fetchall():
        runs[run_id].attempts[node] = (attempt, state)


def _read_announced(cursor: CursorWrapper, commits: Sequence[Commit], runs: dict[str, LockedRun]) -> None:
    run_ids = sorted({commit.run_id for commit in commits if commit.bundle is not None and commit.run_id in runs})
    if not run_ids:
        return
    cursor.execute(
        statement(_READ_ANNOUNCED, ids=placeholders(len(run_ids))),
        [*run_ids, EventKind.PLAN_READY.value, EventKind.BUNDLE_READY.value],
    )
    for run_id, kind in cursor.fetchall():
        runs[run_id].announced.add(kind)


def _write(cursor: CursorWrapper, rows: Rows, runs: Iterable[LockedRun]) -> None:
    statements = (
        (_END_INVOCATION, rows.outcomes),
        (_INSERT_INTENT, rows.intents),
        (_INSERT_CALL, rows.calls),
        (INSERT_EVENT, rows.events),
        (_INSERT_LEDGER, rows.ledger),
        (UPDATE_RUN, [run.counters() for run in runs if run.changed]),
        (_END_RUN, rows.ends),
        (_CANCEL_REST, [(row[-1],) for row in rows.ends]),
    )
    for sql, parameters in statements:
        if parameters:
            cursor.executemany(sql, parameters)
