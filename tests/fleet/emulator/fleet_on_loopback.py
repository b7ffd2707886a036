"""An emulated fleet on free loopback ports, served as the process serves it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from fleet.emulator.config import EmulatorConfig
from fleet.emulator.server import serve


@asynccontextmanager
async def emulated(config: EmulatorConfig, stop: asyncio.Event | None = None) -> AsyncIterator[Mapping[str, str]]:
    """URLs by replica name; leaving stops the fleet."""
    halt = stop or asyncio.Event()
    ready: asyncio.Future[Mapping[str, str]] = asyncio.get_running_loop().create_future()
    async with asyncio.TaskGroup() as group:
        group.create_task(serve(config, ready.set_result, stop=halt), name="emulated fleet")
        try:
            yield await ready
        finally:
            halt.set()
