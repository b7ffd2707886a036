"""The web process: HTTP and WebSockets. Importing it starts nothing; the hub starts with its first watcher."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import warnings
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dyserve_site.settings")
# First of all: it loads the apps that everything below imports.
_django = get_asgi_application()

from channels.auth import AuthMiddlewareStack  # noqa: E402
from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402
from django.conf import settings  # noqa: E402

from dyserve_site.origin import SameOrigin  # noqa: E402
from dyserve_site.routing import websocket_urlpatterns  # noqa: E402
from fleet.common.problems import CONTENT_TYPE, too_large  # noqa: E402
from runtime.live import close_hub  # noqa: E402

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Any, Receive, Any], Awaitable[None]]


# WhiteNoise streams files from a synchronous iterator; Django reads them in a thread, which is what we want.
warnings.filterwarnings(
    "ignore", "StreamingHttpResponse must consume synchronous iterators", module="django.core.handlers"
)


class BodyLimit:
    """Answers 413 to a body over the limit, as soon as it is known to be: announced, or counted while it arrives.

    Django itself looks at the announced length only, and late.
    """

    def __init__(self, app: App, limit_bytes: int) -> None:
        self.app, self.limit_bytes = app, limit_bytes

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if announced.isdigit() and int(announced[:20]) > self.limit_bytes:
            await self._refuse(scope, send)
            return
        body, whole = await self._read(receive)
        if not whole:
            await self._refuse(scope, send)
            return
        await self.app(scope, _replay(body, receive), send)

    async def _read(self, receive: Receive) -> tuple[list[Message], bool]:
        """The body's messages, and whether it is within the limit. Django would read all of it first, too."""
        messages: list[Message] = []
        size = 0
        while True:
            message = await receive()
            messages.append(message)
            size += len(message.get("body", b""))
            if size > self.limit_bytes:
                return messages, False
            if message["type"] != "http.request" or not message.get("more_body", False):
                return messages, True

    async def _refuse(self, scope: Mapping[str, Any], send: Send) -> None:
        problem = too_large(self.limit_bytes)
        headers = [(b"content-type", CONTENT_TYPE.encode()), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": int(problem.status), "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(problem.to_json(scope["path"])).encode()})


def _replay(messages: list[Message], receive: Receive) -> Receive:
    """What was read, then whatever comes next (a disconnect)."""
    waiting = iter(messages)

    async def again() -> Message:
        for message in waiting:
            return message
        return await receive()

    return again


async def lifespan(scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
    """Streams end as soon as the process is told to stop; else they would hold it until the server loses patience."""
    loop = asyncio.get_running_loop()
    await receive()
    with on_stop(lambda: loop.call_soon_threadsafe(_end_streams)):
        await send({"type": "lifespan.startup.complete"})
        await receive()
    await close_hub()
    await send({"type": "lifespan.shutdown.complete"})


_ending: set[asyncio.Task[None]] = set()


def _end_streams() -> None:
    task = asyncio.create_task(close_hub(), name="end streams")
    _ending.add(task)
    task.add_done_callback(_ending.discard)


@contextmanager
def on_stop(call: Callable[[], object]) -> Iterator[None]:
    """Calls `call` at SIGTERM and SIGINT, and then the server's own handler; signals without one are left alone."""
    servers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    handlers = {number: handler for number, handler in servers.items() if callable(handler)}

    def handle(number: int, frame: FrameType | None) -> None:
        call()
        handlers[signal.Signals(number)](number, frame)

    # Python lets the main thread alone set handlers; a server in another thread gets no signals either.
    ours = handlers if threading.current_thread() is threading.main_thread() else {}
    for number in ours:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in ours.items():
            signal.signal(number, handler)


application = ProtocolTypeRouter(
    {
        "http": BodyLimit(_django, settings.DATA_UPLOAD_MAX_MEMORY_SIZE),
        "websocket": SameOrigin(
            AuthMiddlewareStack(URLRouter(websocket_urlpatterns)),
            hosts=settings.ALLOWED_HOSTS,
            trusted=settings.CSRF_TRUSTED_ORIGINS,
        ),
        "lifespan": lifespan,
    }
)
