"""Publishes accepted runs without ever blocking a request: on_commit -> queue -> one thread -> Celery, channel layer.

With the broker away an enqueue inside the request took 6 s in the prototype. Here the request only appends to a queue.
A run whose message could not be sent keeps `enqueued_at` empty, and the reaper enqueues it: nothing is lost.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Any

from django.db import connection

from planner.outbox import BROKER_ERRORS
from runtime.database import DATABASE_ERRORS
from runtime.leases import mark_enqueued
from runtime.pokes import CONTROL_GROUP, RUNS_GROUP, ChannelLayer, control_message, poke_message, send

logger = logging.getLogger(__name__)

Enqueue = Callable[[str], None]
Message = tuple[str, Mapping[str, Any]]
"""A channel group and what it is told."""


class Publisher:
    """One per process. Its thread starts with the first message, so that a process may fork before."""

    def __init__(self, *, enqueue: Enqueue, layer: ChannelLayer) -> None:
        self._enqueue, self._layer = enqueue, layer
        self._queue: SimpleQueue[str | Message | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def run(self, run_id: str) -> None:
        """Enqueue a run soon."""
        self._put(run_id)

    def poke(self, written: Iterable[tuple[str, int]]) -> None:
        """Tell browsers soon that runs have new events."""
        self._put((RUNS_GROUP, poke_message(written)))

    def control(self, *, cancel: Sequence[str] = (), bundles: Sequence[int] = ()) -> None:
        """Tell workers soon."""
        self._put((CONTROL_GROUP, control_message(cancel=cancel, bundles=bundles)))

    def stop(self, timeout_s: float | None = None) -> None:
        """Publish what is queued, then end the thread; waits no longer than `timeout_s`."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._queue.put(None)
            thread.join(timeout_s)

    def _put(self, item: str | Message) -> None:
        self._queue.put(item)
        with self._lock:
            # A fork copies the object but not its thread: a dead one is replaced.
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._work, name="dyserve-publisher", daemon=True)
                self._thread.start()

    # --- The thread ---

    def _work(self) -> None:
        with asyncio.Runner() as runner:
            while (items := self._next()) is not None:
                try:
                    self._publish_runs([item for item in items if isinstance(item, str)])
                    for group, message in (item for item in items if not isinstance(item, str)):
                        runner.run(send(self._layer, group, message))
                except Exception:  # the thread serves everyone: a bug in one message must not stop the others
                    logger.exception("%d messages were not all published; the reaper follows", len(items))

    def _next(self) -> list[str | Message] | None:
        """Everything that is queued, at least one thing; None at the end."""
        item = self._queue.get()
        found: list[str | Message] = []
        while item is not None:
            found.append(item)
            try:
                item = self._queue.get_nowait()
            except Empty:
                return found
        if not found:
            return None
        self._queue.put(None)
        return found

    def _publish_runs(self, run_ids: Sequence[str]) -> None:
        sent: list[str] = []
        try:
            for run_id in run_ids:
                self._enqueue(run_id)
                sent.append(run_id)
        except BROKER_ERRORS as error:
            # The rest would fail alike, each after a time-out.
            logger.warning("%d runs are left to the reaper, the broker is away: %s", len(run_ids) - len(sent), error)
        try:
            mark_enqueued(sent)
        except DATABASE_ERRORS as error:
            logger.warning("%d runs may be enqueued twice, which is harmless: %s", len(sent), error)
        finally:
            connection.close()
