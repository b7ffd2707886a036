"""A document that is made once a second while anybody watches, and shared by all who watch."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Mapping
from contextlib import aclosing
from contextvars import Context
from typing import Any

from fleet.common.loops import forget, of_loop

logger = logging.getLogger(__name__)

Produce = Callable[[], Awaitable[Mapping[str, Any]]]

INTERVAL_S = 1.0


class Feed:
    """The latest document as JSON text. A slow watcher skips documents; none are queued."""

    def __init__(self, produce: Produce, *, interval_s: float = INTERVAL_S) -> None:
        self.watchers = 0
        self._produce, self._interval_s = produce, interval_s
        self._text: str | None = None
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def documents(self) -> AsyncGenerator[str, None]:
        """The latest document at once, if there is one, and then each newer one. Ends never; the watcher leaves."""
        self._enter()
        try:
            last: str | None = None
            while True:
                changed = self._changed
                if self._text is not None and self._text is not last:
                    last = self._text
                    yield last
                else:
                    await changed.wait()
        finally:
            self._leave()

    def _enter(self) -> None:
        self.watchers += 1
        if self._task is None:
            # A context of its own: the first watcher's request, with its threads, ends before the feed does.
            self._task = asyncio.create_task(self._run(), name="feed", context=Context())

    def _leave(self) -> None:
        self.watchers -= 1
        if self.watchers == 0 and self._task is not None:
            self._task.cancel()
            self._task, self._text = None, None

    async def _run(self) -> None:
        while True:
            try:
                self._text = json.dumps(await self._produce(), separators=(",", ":"))
            except Exception:  # a source that is away for a while must not end the feed; its watchers see the age grow
                logger.warning("a feed's document could not be made", exc_info=True)
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()
            await asyncio.sleep(self._interval_s)


async def shared(key: Hashable, produce: Produce) -> AsyncGenerator[str, None]:
    """The documents of this loop's feed `key`; it is made for its first watcher and forgotten after its last."""
    feed = of_loop(key, lambda: Feed(produce))
    try:
        async with aclosing(feed.documents()) as documents:
            async for text in documents:
                yield text
    finally:
        if feed.watchers == 0:
            forget(key)
