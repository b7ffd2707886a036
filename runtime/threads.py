"""A few threads that keep their database connections open between jobs, and close them when they end (ours).

Django closes a thread's connection with the request or task that used it. A worker has neither: opening one for every
job would cost more than the job, and an executor's threads never close theirs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, TypeVar

from django.db import connection, transaction

from runtime.database import CONNECTION_ERRORS, DATABASE_ERRORS, in_database

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Job:
    """A function to call, and where its result or its error goes."""

    function: Callable[[], Any]
    future: Future[Any]

    def perform(self) -> None:
        """Call the function in whatever transactions it makes itself."""
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            self.future.set_result(in_database(self.function))
        except Exception as error:
            self.future.set_exception(error)


def perform_together(jobs: Sequence[Job]) -> None:
    """Call several functions in one transaction, since each commit of its own waits for the disk.

    An error undoes its own job alone. When the transaction fails as a whole, every job is done by itself.
    """
    outcomes: list[Any] = []
    try:
        if len(jobs) > 1:
            with transaction.atomic():
                outcomes = [_attempt(job.function) for job in jobs]
    except DATABASE_ERRORS:
        connection.close()
        outcomes = []
    if not outcomes:
        for job in jobs:
            job.perform()
        return
    for job, (result, error) in zip(jobs, outcomes, strict=True):
        if not job.future.set_running_or_notify_cancel():
            continue
        if error is None:
            job.future.set_result(result)
        else:
            job.future.set_exception(error)


def _attempt(function: Callable[[], Any]) -> tuple[Any, Exception | None]:
    try:
        with transaction.atomic():
            return function(), None
    except CONNECTION_ERRORS:
        # What the others did in this transaction is lost as well.
        raise
    except Exception as error:
        return None, error


class DatabaseThreads:
    """`count` threads, started with the first job."""

    def __init__(self, count: int, name: str) -> None:
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}-{index}", daemon=True) for index in range(count)
        ]
        self._lock = threading.Lock()
        self._started = False

    def call(self, function: Callable[[], T]) -> Future[T]:
        """Queue a job; its error comes out of the future."""
        with self._lock:
            if not self._started:
                self._started = True
                for thread in self._threads:
                    thread.start()
        future: Future[T] = Future()
        self._queue.put(Job(function, future))
        return future

    def stop(self) -> None:
        """Do what is queued, then end; no job is taken after it."""
        with self._lock:
            threads = self._threads if self._started else []
        for _ in threads:
            self._queue.put(None)
        for thread in threads:
            thread.join()

    def _work(self) -> None:
        try:
            while (job := self._queue.get()) is not None:
                job.perform()
        finally:
            connection.close()
