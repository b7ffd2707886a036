"""A few threads that keep their database connections open between jobs, and close them when they end (ours).

Django closes a thread's connection with the request or task that used it. A worker has neither: opening one for every
job would cost more than the job, and an executor's threads never close theirs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, TypeVar

from django.db import connection

from runtime.database import in_database

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Job:
    """A function to call, and where its result or its error goes."""

    function: Callable[[], Any]
    future: Future[Any]

    def perform(self) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            self.future.set_result(in_database(self.function))
        except Exception as error:
            self.future.set_exception(error)


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
