"""Waits for what no event announces: another task's state, a value in Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object]) -> None:
    """Returns once the condition holds; the limit is only there to end a test that would never pass."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  nobody sets an event for it
            await asyncio.sleep(0.005)
