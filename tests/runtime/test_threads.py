from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

import pytest
from django.db import IntegrityError, OperationalError, connection

from runtime.models import Run, RunEvent
from runtime.threads import DatabaseThreads, Job, perform_together
from tests.runtime import rows
from tests.runtime.engine.samples import snapshot
from tests.runtime.engine.store_contract import FLOW, FULL


def job(function: Any) -> Job:
    return Job(function, Future())


def a_run() -> str:
    return rows.accept(snapshot(FLOW, FULL)).pk


def mark(run_id: str, effort: float) -> Any:
    return lambda: Run.objects.filter(pk=run_id).update(effort=effort)


def test_jobs_share_a_transaction_and_an_error_undoes_its_own_alone(database: str) -> None:
    first, second, third = (a_run() for _ in range(3))

    def broken() -> None:
        mark(second, 0.2)()
        raise KeyError("a defect")

    def refused() -> None:
        RunEvent.objects.create(run_id=first, seq=1, kind="run_accepted", at=0.0, data={})

    inside: list[bool] = []
    jobs = [
        job(mark(first, 0.1)),
        job(broken),
        job(refused),
        job(mark(third, 0.3)),
        job(lambda: inside.append(connection.in_atomic_block)),
    ]
    perform_together(jobs)
    assert [jobs[0].future.result(), jobs[3].future.result()] == [1, 1]
    assert isinstance(jobs[1].future.exception(), KeyError)
    assert isinstance(jobs[2].future.exception(), IntegrityError)
    assert dict(Run.objects.values_list("pk", "effort")) == {first: 0.1, second: 0.5, third: 0.3}
    assert inside == [True]


def test_a_lost_connection_leaves_each_job_to_itself(database: str) -> None:
    first, second = a_run(), a_run()
    calls: list[str] = []

    def good() -> int:
        calls.append("good")
        return int(mark(first, 0.1)())

    def lost_once() -> int:
        calls.append("lost")
        if calls.count("lost") == 1:
            raise OperationalError("the connection was lost")
        return int(mark(second, 0.2)())

    jobs = [job(good), job(lost_once)]
    perform_together(jobs)
    assert calls == ["good", "lost", "good", "lost"], "the first went down with the transaction"
    assert [one.future.result() for one in jobs] == [1, 1]
    assert set(Run.objects.values_list("effort", flat=True)) == {0.1, 0.2}


def test_a_cancelled_job_is_not_done(database: str) -> None:
    run_id = a_run()
    one = job(mark(run_id, 0.1))
    one.future.cancel()
    perform_together([one])
    assert Run.objects.get(pk=run_id).effort == 0.5


def test_threads_keep_their_connections_and_close_them_at_the_end(database: str) -> None:
    threads = DatabaseThreads(1, "test")
    opened: list[Any] = []

    def look() -> int:
        connection.ensure_connection()
        opened.append(connection.connection)
        return threading.get_ident()

    assert threads.call(look).result() == threads.call(look).result()
    assert opened[0] is opened[1]
    threads.stop()
    with pytest.raises(Exception, match="closed"):
        opened[0].execute("SELECT 1")


def test_a_lost_connection_is_replaced(database: str) -> None:
    threads = DatabaseThreads(1, "test")

    def lose() -> None:
        raise OperationalError("the connection is closed")

    with pytest.raises(OperationalError):
        threads.call(lose).result()
    assert threads.call(Run.objects.count).result() == 0
    threads.stop()


def test_threads_that_never_worked_end_at_once() -> None:
    DatabaseThreads(3, "test").stop()
