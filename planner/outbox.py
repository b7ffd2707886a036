"""Sends tasks to the broker without making anyone wait for it (ours): one background thread and a queue.

The database says what has to be done (`PlanBundle.enqueued_at`); a message that could not be sent, or was lost, is
sent again by `planner.services.requeue_lost_bundles`. So a broker that is away costs a request nothing.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import cache
from queue import SimpleQueue

from django.db import close_old_connections
from kombu.exceptions import KombuError, OperationalError
from redis.exceptions import RedisError

logger = logging.getLogger(__name__)

Send = Callable[[], object]
BROKER_ERRORS: tuple[type[Exception], ...] = (OperationalError, KombuError, RedisError, OSError)
"""What sending a task raises when the broker is away."""


class Outbox:
    """A queue of things to send, in order; the thread starts with the first one and ends with the process."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[tuple[str, Send] | threading.Event] = SimpleQueue()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def put(self, name: str, send: Send) -> None:
        """Returns at once; `name` is for the log."""
        self._queue.put((name, send))
        self._start()

    def flush(self, timeout_s: float) -> bool:
        """Waits until everything that was put before was tried once; whether that happened in time."""
        reached = threading.Event()
        self._queue.put(reached)
        self._start()
        return reached.wait(timeout_s)

    def _start(self) -> None:
        with self._starting:
            # A fork copies the object but not its thread: a dead one is replaced.
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="planner outbox", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            item = self._queue.get()
            if isinstance(item, threading.Event):
                item.set()
            else:
                self._try(*item)

    def _try(self, name: str, send: Send) -> None:
        try:
            send()
        except BROKER_ERRORS as error:
            logger.warning("%s could not be sent, it will be tried again: %s", name, error)
        except Exception:  # the thread serves everyone: a bug in one message must not stop the others
            logger.exception("%s could not be sent", name)
        finally:
            close_old_connections()


@cache
def outbox() -> Outbox:
    """This process's outbox."""
    return Outbox()
