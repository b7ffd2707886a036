"""One writer thread per worker process: group commit (DESIGN.md; measured in the prototype: 148 ms a commit alone
against 5.6 ms a batch on PostgreSQL).

An idle writer writes at once; one that is busy lets commits gather for `window_s` before the next batch. The thread has
the process's only writing connection, so leases are claimed and renewed on it as well (`call`).
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar

from django.db import connection

from runtime.database import CONNECTION_ERRORS
from runtime.engine.ports import Commit, Committed, LeaseLost
from runtime.threads import Job, perform_together

T = TypeVar("T")
logger = logging.getLogger(__name__)

Answer = Committed | Exception
Written = Sequence[tuple[str, int]]
"""(run, last sequence number) of every commit that became durable."""

MAX_ITEMS = 2000
"""Outcomes and intents of one batch: bounds the parameters of its statements (SQLite takes 32,766)."""
FIRST_DELAY_S, LONGEST_DELAY_S = 0.05, 1.0


class WriteBatch(Protocol):
    """Makes commits durable in one transaction. `journal` is one batch's memory over its tries."""

    def __call__(self, commits: Sequence[Commit], journal: Any, /) -> list[Answer]: ...


@dataclass(frozen=True, slots=True)
class _Item:
    commit: Commit
    future: asyncio.Future[Committed]

    @property
    def size(self) -> int:
        return 1 + len(self.commit.outcomes) + len(self.commit.intents)


class Writer:
    """`patience_s`: how long a batch is tried again while the database is away; a lease does not live longer."""

    def __init__(
        self,
        *,
        write: WriteBatch,
        new_journal: Callable[[], Any],
        window_s: float,
        patience_s: float,
        on_written: Callable[[Written], None] = lambda written: None,
    ) -> None:
        self._write_batch, self._new_journal = write, new_journal
        self._window_s, self._patience_s = window_s, patience_s
        self._on_written = on_written
        self._queue: SimpleQueue[_Item | Job | None] = SimpleQueue()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dyserve-writer", daemon=True)
        self.batches = 0
        self.commits = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Write what is queued, then end; no commit is accepted after it."""
        self._stopping.set()
        self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join()

    def submit(self, commit: Commit, future: asyncio.Future[Committed]) -> None:
        """Queue a commit; its future, of any running loop, gets the answer or the refusal."""
        self._queue.put(_Item(commit, future))

    def call(self, function: Callable[[], T]) -> Future[T]:
        """Run a short function on the writer's connection, in one transaction with others that came meanwhile."""
        future: Future[T] = Future()
        self._queue.put(Job(function, future))
        return future

    # --- The thread ---

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        finally:
            connection.close()

    def _turn(self) -> bool:
        """One batch and the jobs that came with it; False when there is nothing more to do."""
        found, ended = self._gather()
        perform_together([item for item in found if isinstance(item, Job)])
        self._write([item for item in found if isinstance(item, _Item)])
        return not ended

    def _gather(self) -> tuple[list[_Item | Job], bool]:
        found: list[_Item | Job] = []
        try:
            first = self._queue.get_nowait()
            deadline = time.monotonic() + self._window_s
        except Empty:
            first, deadline = self._queue.get(), None
        size = 0
        while first is not None:
            found.append(first)
            size += first.size if isinstance(first, _Item) else 0
            if size >= MAX_ITEMS:
                return found, False
            try:
                first = self._next(deadline)
            except Empty:
                return found, False
        return found, True

    def _next(self, deadline: float | None) -> _Item | Job | None:
        left = 0.0 if deadline is None else deadline - time.monotonic()
        return self._queue.get(timeout=left) if left > 0 else self._queue.get_nowait()

    def _write(self, items: Sequence[_Item]) -> None:
        if not items:
            return
        answers = self._answers([item.commit for item in items])
        written = [
            (item.commit.run_id, answer.seq)
            for item, answer in zip(items, answers, strict=True)
            if isinstance(answer, Committed)
        ]
        _deliver(items, answers)
        if written:
            self._on_written(written)

    def _answers(self, commits: Sequence[Commit]) -> list[Answer]:
        try:
            return self._persistently(commits)
        except Exception as error:
            # Delivered to whoever awaits the commit. One bad commit must not cost the others of its batch.
            if len(commits) == 1:
                logger.exception("commit of run %s failed", commits[0].run_id)
                return [error]
            return [answer for commit in commits for answer in self._answers([commit])]

    def _persistently(self, commits: Sequence[Commit]) -> list[Answer]:
        """Try a batch again, on a new connection, while the database cannot be reached."""
        journal = self._new_journal()
        deadline, delay_s = time.monotonic() + self._patience_s, FIRST_DELAY_S
        while True:
            try:
                answers = self._write_batch(commits, journal)
            except CONNECTION_ERRORS as error:
                connection.close()
                if time.monotonic() + delay_s > deadline:
                    logger.error("giving up %d commits: %s", len(commits), error)
                    return [LeaseLost(f"the database was away for longer than the lease: {error}") for _ in commits]
                logger.warning("the database is away, trying again in %.2f s: %s", delay_s, error)
                self._stopping.wait(delay_s)
                delay_s = min(2 * delay_s, LONGEST_DELAY_S)
            else:
                self.batches += 1
                self.commits += len(commits)
                return answers


def _deliver(items: Sequence[_Item], answers: Sequence[Answer]) -> None:
    """Wake every loop once for all its futures."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Committed], Answer]]] = {}
    for item, answer in zip(items, answers, strict=True):
        by_loop.setdefault(item.future.get_loop(), []).append((item.future, answer))
    for loop, pairs in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, pairs)
        except RuntimeError:
            logger.warning("%d commits are durable, but their event loop has closed", len(pairs))


def _resolve(pairs: Sequence[tuple[asyncio.Future[Committed], Answer]]) -> None:
    for future, answer in pairs:
        if future.done():
            continue
        if isinstance(answer, Committed):
            future.set_result(answer)
        else:
            future.set_exception(answer)
