"""Emulated replicas on free ports, in the test's own loop, spoken to over real HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from fleet.emulator.config import EmulatorConfig, ReplicaConfig
from fleet.emulator.server import serve


def replica(name: str, model: str = "qwen3.5-9b", *, max_num_seqs: int = 8) -> ReplicaConfig:
    return ReplicaConfig(name=name, model=model, max_num_seqs=max_num_seqs)


@asynccontextmanager
async def emulated(*replicas: ReplicaConfig, time_scale: float = 20.0) -> AsyncIterator[Mapping[str, str]]:
    """URL by replica name, once all of them listen; stopped on the way out."""
    stop = asyncio.Event()
    ready: asyncio.Future[Mapping[str, str]] = asyncio.get_running_loop().create_future()
    config = EmulatorConfig(replicas=replicas, time_scale=time_scale, seed=1)
    server = asyncio.create_task(serve(config, ready.set_result, stop=stop), name="emulator")
    try:
        first: set[asyncio.Future[Any]] = {server, ready}
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        if server.done():
            server.result()
        yield ready.result()
    finally:
        stop.set()
        await server
