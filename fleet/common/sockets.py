"""What all WebSockets share: login, one sending task, close codes that a browser can read."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from channels.generic.websocket import AsyncWebsocketConsumer

logger = logging.getLogger(__name__)

BAD_REQUEST = 4400
NOT_LOGGED_IN = 4401
NOT_FOUND = 4404
RUN_ENDED = 1000
TRY_LATER = 1012
SERVER_FAILED = 1011


class SocketRefused(Exception):
    """The socket is closed with this code."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.code, self.reason = code, reason


class StreamConsumer(AsyncWebsocketConsumer):  # type: ignore[misc]  # channels has no types
    """Sends what `messages` yields until it ends; what a client sends is ignored.

    The handshake is accepted before a refusal: browsers do not show the close code of a refused one. Sending waits for
    the client's socket, so that a slow client slows its own task only.
    """

    # No channel of its own: one subscription per process serves all sockets.
    channel_layer_alias = "none"

    _sending: asyncio.Task[None] | None = None

    def messages(self) -> AsyncGenerator[str, None]:
        """JSON texts to send. Raises SocketRefused to close the socket; its end closes it with 1000."""
        raise NotImplementedError

    async def connect(self) -> None:
        await self.accept()
        self._sending = asyncio.create_task(self._send_all(), name=f"socket {self.scope['path']}")

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        return

    async def disconnect(self, code: int) -> None:
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait([self._sending])

    @property
    def user(self) -> Any:
        return self.scope["user"]

    async def _send_all(self) -> None:
        try:
            if not self.user.is_authenticated or not self.user.is_active:
                raise SocketRefused(NOT_LOGGED_IN, "log in first")
            async with aclosing(self.messages()) as messages:
                async for text in messages:
                    await self.send(text_data=text)
            await self.close(code=RUN_ENDED, reason="everything was sent")
        except SocketRefused as refusal:
            await self.close(code=refusal.code, reason=refusal.reason)
        except OSError:
            logger.debug("the client of %s is gone", self.scope["path"])
        except Exception:  # the socket is closed with a code that says so, and the log has the cause
            logger.exception("the socket %s failed", self.scope["path"])
            await self.close(code=SERVER_FAILED, reason="the server failed")


class UnknownConsumer(StreamConsumer):
    """What answers at an address that is nobody's."""

    def messages(self) -> AsyncGenerator[str, None]:
        raise SocketRefused(NOT_FOUND, "no such address")
