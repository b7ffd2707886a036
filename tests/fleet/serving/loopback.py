"""A real uvicorn server on a free loopback port for one ASGI application."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import uvicorn


class _Quiet(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def serving(app: Any) -> AsyncIterator[str]:
    """The server's address; leaving stops it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        config = uvicorn.Config(app, lifespan="off", ws="none", log_config=None, timeout_graceful_shutdown=1)
        server = _Quiet(config)
        async with asyncio.TaskGroup() as group:
            group.create_task(server.serve(sockets=[listener]))
            try:
                yield f"http://127.0.0.1:{listener.getsockname()[1]}"
            finally:
                server.should_exit = True
