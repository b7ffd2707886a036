"""An emulated replica for code that blocks the test's own thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from tests.fleet.emulated import emulated, replica


@pytest.fixture
def emulated_url() -> Iterator[str]:
    """An emulated 9B whose loop runs in a thread of its own, as the caller blocks this one."""
    url: Future[str] = Future()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def run() -> None:
        async with emulated(replica("9b-0")) as urls:
            url.set_result(urls["9b-0"])
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    try:
        yield url.result(timeout=60)
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
