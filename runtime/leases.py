"""Who owns a run: leases with an epoch, on the database's clock (DESIGN.md, Durable execution).

Every function is one short transaction on the calling thread's connection.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper

from planner.models import PlanBundle
from runtime.batch import event_rows
from runtime.database import placeholders, statement
from runtime.engine.events import EventKind, RunState
from runtime.store import INSERT_EVENT

_CLAIM = (
    "UPDATE runtime_run SET epoch = epoch + 1, last_seq = last_seq + 1, state = 'running', lease_owner = %s, "
    "lease_expires_at = {now} + %s, started_at = COALESCE(started_at, {now}) "
    "WHERE id = %s AND state IN ('queued', 'running') AND (lease_expires_at IS NULL OR lease_expires_at < {now})"
)
_CLAIMED = "SELECT epoch, last_seq, {now} FROM runtime_run WHERE id = %s"
_RENEW = (
    "UPDATE runtime_run SET lease_expires_at = {now} + %s "
    "WHERE id IN ({ids}) AND lease_owner = %s AND state = 'running'"
)
_READ_HELD = (
    "SELECT r.id, r.epoch, r.lease_owner, r.state, r.cancel_requested_at, r.bundle_id, b.state "
    "FROM runtime_run r LEFT JOIN planner_planbundle b ON b.id = r.bundle_id WHERE r.id IN ({ids})"
)
_FREE = "UPDATE runtime_run SET lease_owner = '', lease_expires_at = NULL, enqueued_at = NULL WHERE state = 'running' "
_RELEASE = _FREE + "AND id = %s AND epoch = %s AND lease_owner = %s"
_EXPIRE = _FREE + "AND substr(lease_owner, 1, %s) = %s"
_HAND_BACK = "UPDATE runtime_run SET enqueued_at = NULL WHERE id = %s AND state = 'queued'"
_MARK_ENQUEUED = "UPDATE runtime_run SET enqueued_at = {now} WHERE id IN ({ids})"


def worker_prefix(pid: int | None = None) -> str:
    """What the ids of a process's workers start with, so that whoever saw the process die can expire its leases."""
    return f"{socket.gethostname()[:60]}:{pid or os.getpid()}:"


def new_worker_id() -> str:
    """Unique over hosts, processes and restarts that reuse a process number."""
    return worker_prefix() + secrets.token_hex(4)


def claim(run_id: str, *, worker: str, lease_s: float) -> int | None:
    """Own the run under a new epoch and record it; None when it has ended or somebody's lease still runs."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement(_CLAIM), [worker, lease_s, run_id])
        if cursor.rowcount != 1:
            return None
        cursor.execute(statement(_CLAIMED), [run_id])
        epoch, last_seq, at = cursor.fetchone()
        claimed = (EventKind.RUN_CLAIMED, {"worker": worker, "epoch": epoch})
        cursor.executemany(INSERT_EVENT, event_rows(run_id, last_seq - 1, at, [claimed]))
        return int(epoch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What the database says of a run that a worker believes to own."""

    run_id: str
    epoch: int
    owned: bool
    cancel_requested: bool
    bundle_id: int | None
    bundle_ready: bool


def renew(run_ids: Sequence[str], *, worker: str, lease_s: float) -> list[Held]:
    """Renew all leases of a worker in one statement, then read what became of its runs."""
    if not run_ids:
        return []
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement(_RENEW, ids=placeholders(len(run_ids))), [lease_s, *run_ids, worker])
        return _held(cursor, run_ids, worker)


def _held(cursor: CursorWrapper, run_ids: Sequence[str], worker: str) -> list[Held]:
    cursor.execute(statement(_READ_HELD, ids=placeholders(len(run_ids))), run_ids)
    return [
        Held(
            run_id=run_id,
            epoch=epoch,
            # An ended run has no lease any more; its engine is about to return and need not be told.
            owned=owner == worker or RunState(state).ended,
            cancel_requested=cancelled_at is not None,
            bundle_id=bundle_id,
            bundle_ready=bundle_state == PlanBundle.State.READY,
        )
        for run_id, epoch, owner, state, cancelled_at, bundle_id, bundle_state in cursor.fetchall()
    ]


def release(run_id: str, *, worker: str, epoch: int) -> bool:
    """Give a run back before its end, for anybody to claim; False when it was no longer this worker's."""
    return _update(_RELEASE, [run_id, epoch, worker]) == 1


def hand_back(run_id: str) -> None:
    """A run that came from the broker and was not claimed: the reaper shall enqueue it again."""
    _update(_HAND_BACK, [run_id])


def expire(prefix: str) -> int:
    """End the leases of all workers whose id starts so (their process has died); how many runs that freed."""
    if not prefix:
        raise ValueError("an empty prefix would expire every worker's leases")
    return _update(_EXPIRE, [len(prefix), prefix])


def mark_enqueued(run_ids: Sequence[str]) -> None:
    """Record that the broker has these runs; a run that was claimed meanwhile is past caring."""
    if run_ids:
        _update(statement(_MARK_ENQUEUED, ids=placeholders(len(run_ids))), run_ids)


def _update(sql: str, parameters: Sequence[str | int]) -> int:
    """Changed rows."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return int(cursor.rowcount)
