"""The real web process's application behind a real uvicorn, on a free port of the test's own loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client


class _Server(uvicorn.Server):
    """Tells when it listens, and leaves the test's signals alone."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self.listening.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def served() -> AsyncIterator[str]:
    """`127.0.0.1:port`, once it listens; stopped, with everything that still runs in it, on the way out."""
    from dyserve_site.asgi import application

    config = uvicorn.Config(
        application,
        lifespan="on",
        ws="websockets-sansio",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=3,
    )
    server = _Server(config)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        task = asyncio.create_task(server.serve(sockets=[listener]), name="uvicorn")
        listening = asyncio.create_task(server.listening.wait())
        await asyncio.wait({task, listening}, return_when=asyncio.FIRST_COMPLETED)
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await task


async def until(condition: Callable[[], bool]) -> None:
    """Returns once the condition holds; the suite's own time-out bounds the wait."""
    while not condition():  # noqa: ASYNC110  what is waited for happens inside servers, which set no event
        await asyncio.sleep(0.005)


def session_cookie(user: User) -> str:
    """The Cookie header of a browser that is logged in as this user."""
    browser = Client()
    browser.force_login(user)
    name = settings.SESSION_COOKIE_NAME
    return f"{name}={browser.cookies[name].value}"
