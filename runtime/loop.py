"""One asyncio loop in a thread of its own, for a process whose other threads block on it (ours)."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from fleet.common.loops import let_cancellation_through

T = TypeVar("T")
logger = logging.getLogger(__name__)

STOP_S = 3.0


class LoopThread:
    """Runs `main` from `start` to `stop`; `main` gets a callback that says that it is ready.

    `on_broken` hears of a `main` that ended by an error: the process cannot go on without its loop.
    """

    def __init__(
        self, main: Callable[[Callable[[], None]], Coroutine[Any, Any, None]], *, on_broken: Callable[[], None]
    ) -> None:
        self._main, self._on_broken = main, on_broken
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._error: BaseException | None = None
        self._submitting = threading.Lock()
        self._pending: set[Future[Any]] = set()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="dyserve-loop", daemon=True)

    def start(self) -> None:
        """Returns once `main` is ready. Raises RuntimeError when it ended before that, and on every later try."""
        if self._thread.ident is not None:
            raise RuntimeError("the worker's event loop is not running") from self._error
        self._thread.start()
        self._ready.wait()
        if self._error is not None:
            raise RuntimeError("the worker's event loop could not start") from self._error

    def stop(self, timeout_s: float = STOP_S) -> None:
        """Cancel `main` and wait for its clean-up, but no longer than `timeout_s`: the thread ends with the process."""
        self.call_soon(lambda: self._task.cancel() if self._task else None)
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            logger.warning("the worker's event loop did not end within %g s", timeout_s)

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Run a callback on the loop; safe from any thread and from signal handlers. Nothing happens after the end."""
        if self._loop is None:
            return
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:
            logger.debug("the event loop has closed")

    def submit(self, coro: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the loop from another thread; its future is cancelled when the loop ends first."""
        with self._submitting:
            if self._loop is None or self._ended:
                coro.close()
                raise RuntimeError("the worker's event loop is not running")
            future = asyncio.run_coroutine_threadsafe(coro, self._loop)
            self._pending.add(future)
        future.add_done_callback(self._pending.discard)
        return future

    def _run(self) -> None:
        try:
            asyncio.run(self._supervised())
        except asyncio.CancelledError:
            logger.debug("the event loop was stopped")
        except BaseException as error:
            # Nobody awaits this thread: the error goes to whoever starts it, or ends the process by `on_broken`.
            self._error = error
            logger.critical("the worker's event loop broke", exc_info=True)
            self._end()
            self._on_broken()
        finally:
            self._end()
            self._ready.set()

    def _end(self) -> None:
        """Nobody shall wait for what the loop can no longer do."""
        with self._submitting:
            self._ended = True
        for future in list(self._pending):
            future.cancel()

    async def _supervised(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        await self._main(self._ready.set)


async def every(
    interval_s: float, name: str, step: Callable[[], Awaitable[None]], expected: tuple[type[Exception], ...]
) -> None:
    """Do one thing again and again. An expected error (a server is away) is said once, and once when it is over."""
    troubled = False
    while True:
        try:
            await step()
        except expected as error:
            let_cancellation_through()
            if not troubled:
                logger.warning("%s does not work at present: %s: %s", name, type(error).__name__, error)
            troubled = True
        else:
            if troubled:
                logger.info("%s works again", name)
            troubled = False
            let_cancellation_through()
        await asyncio.sleep(interval_s)
