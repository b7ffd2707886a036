"""The ASGI application of one emulated replica: vLLM's routes, plain and streamed (protocol: vLLM 0.32's).

A client that goes away frees its slot at once. A replica that stops ends its streams as a dying vLLM does: an error
event, then [DONE], then a clean close.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

from fleet.emulator.engine import QueueFull, Timings, TooLarge
from fleet.emulator.outputs import answer
from fleet.emulator.payloads import DONE, Reply, models_body, sse
from fleet.emulator.replica import EmulatedReplica, EngineStopped, Ticket
from fleet.emulator.requests import ApiError, Job, engine_dead, parse_chat, parse_completion, queue_full
from fleet.emulator.schema import SchemaUnsupported

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

VERSION = "0.32.0"
DELTA_SPACING_S = 1 / 3
"""Wall seconds between two deltas of a stream: with the last one, never more than four in any second."""
MAX_BODY_BYTES = 16 * 1024 * 1024
JSON_TYPE = "application/json"
EVENTS_TYPE = "text/event-stream; charset=utf-8"
TEXT_TYPE = "text/plain; version=1.0.0; charset=utf-8"


class ClientGone(Exception):
    """The client closed its connection before the answer was complete."""


class EmulatorApp:
    """Answers for one replica."""

    def __init__(self, replica: EmulatedReplica) -> None:
        self._replica = replica
        self._created = int(time.time())
        self._routes: dict[tuple[str, str], Callable[[Scope, Receive, Send], Awaitable[None]]] = {
            ("POST", "/v1/chat/completions"): self._chat,
            ("POST", "/v1/completions"): self._completion,
            ("GET", "/v1/models"): self._models,
            ("GET", "/health"): self._health,
            ("GET", "/version"): self._version,
            ("GET", "/metrics"): self._metrics,
            ("GET", "/load"): self._load,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"the emulator speaks HTTP only, not {scope['type']}")
        handler = self._routes.get((scope["method"], scope["path"]), self._unknown)
        try:
            await handler(scope, receive, send)
        except ApiError as error:
            await _reply_json(send, error.status, error.body())
        except ClientGone:
            return

    # --- Probes ---

    async def _unknown(self, scope: Scope, _receive: Receive, send: Send) -> None:
        known = any(path == scope["path"] for _, path in self._routes)
        status, detail = (405, "Method Not Allowed") if known else (404, "Not Found")
        await _reply_json(send, status, {"detail": detail})

    async def _health(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        await _reply(send, 503 if self._replica.stopped else 200, b"", JSON_TYPE)

    async def _version(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        await _reply_json(send, 200, {"version": VERSION})

    async def _load(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        await _reply_json(send, 200, {"server_load": self._replica.load})

    async def _metrics(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        await _reply(send, 200, self._replica.metrics().encode(), TEXT_TYPE)

    async def _models(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        config = self._replica.config
        await _reply_json(send, 200, models_body(config.model, config.max_model_len, self._created))

    # --- Completions ---

    async def _chat(self, scope: Scope, receive: Receive, send: Send) -> None:
        job = parse_chat(await _read_body(receive), self._replica.config)
        await self._complete(job, f"chatcmpl-{_request_id(scope)}", receive, send)

    async def _completion(self, scope: Scope, receive: Receive, send: Send) -> None:
        job = parse_completion(await _read_body(receive), self._replica.config)
        await self._complete(job, f"cmpl-{_request_id(scope)}", receive, send)

    async def _complete(self, job: Job, id_: str, receive: Receive, send: Send) -> None:
        reply, ticket = self._submit(job, id_)
        try:
            async with _watched(receive) as gone:
                if job.stream:
                    await self._stream(reply, ticket, gone, send)
                else:
                    await self._plain(reply, ticket, gone, send)
        finally:
            self._replica.cancel(ticket)

    def _submit(self, job: Job, id_: str) -> tuple[Reply, Ticket]:
        """The reply to come and its ticket. Raises ApiError."""
        emulator = self._replica.emulator
        try:
            output = answer(emulator, job.prompt)
            ticket = self._replica.submit(job.prompt_tokens, output.tokens, output.finish_reason)
        except SchemaUnsupported as error:
            message = f"the emulator has no answer for this JSON schema: {error}"
            raise ApiError(400, message, param="response_format") from error
        except TooLarge as error:
            raise ApiError(400, str(error)) from error
        except QueueFull as error:
            raise queue_full() from error
        except EngineStopped as error:
            raise engine_dead() from error
        reply = Reply(
            id=id_,
            created=int(time.time()),
            job=job,
            output=output,
            scale=emulator.time_scale,
            with_metrics=emulator.request_metrics,
        )
        return reply, ticket

    async def _plain(self, reply: Reply, ticket: Ticket, gone: Gone, send: Send) -> None:
        try:
            timings = await _first(ticket.finished, gone)
        except EngineStopped as error:
            raise engine_dead() from error
        await _reply_json(send, 200, reply.body(timings))

    async def _stream(self, reply: Reply, ticket: Ticket, gone: Gone, send: Send) -> None:
        await _start(send, 200, EVENTS_TYPE)
        try:
            await _send_part(send, reply.first_chunk())
            timings = await self._deltas(reply, ticket, gone, send)
            if reply.job.include_usage:
                await _send_part(send, reply.usage_chunk(timings))
        except EngineStopped:
            await _send_part(send, sse(engine_dead().body()))
        await _send_part(send, DONE)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _deltas(self, reply: Reply, ticket: Ticket, gone: Gone, send: Send) -> Timings:
        """Sends what the engine has generated, DELTA_SPACING_S apart, until the request is finished."""
        await _first(ticket.first_token, gone)
        sent = 0
        while not ticket.finished.done():
            done = self._replica.tokens_done(ticket)
            if done > sent and not ticket.finished.done():
                await _send_part(send, reply.delta_chunk(sent, done, last=False))
                sent = done
            await _either(ticket.finished, gone, DELTA_SPACING_S)
        timings = ticket.finished.result()
        await _send_part(send, reply.delta_chunk(sent, reply.output.tokens, last=True))
        return timings


# --- Waiting for the engine or the client's end ----------------------------------------------------------------------

Gone = asyncio.Task[None]


@asynccontextmanager
async def _watched(receive: Receive) -> AsyncIterator[Gone]:
    """A task that ends when the client has closed its connection."""

    async def disconnected() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    task = asyncio.create_task(disconnected(), name="client watch")
    try:
        yield task
    finally:
        task.cancel()


async def _first(wanted: asyncio.Future[Any], gone: Gone) -> Any:
    """The future's result. Raises ClientGone when the client leaves first."""
    await asyncio.wait({wanted, gone}, return_when=asyncio.FIRST_COMPLETED)
    if not wanted.done():
        raise ClientGone
    return wanted.result()


async def _either(wanted: asyncio.Future[Any], gone: Gone, timeout_s: float) -> None:
    """Waits for the future, at most so long. Raises ClientGone."""
    await asyncio.wait({wanted, gone}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    if gone.done() and not wanted.done():
        raise ClientGone


# --- ASGI ------------------------------------------------------------------------------------------------------------


def _request_id(scope: Scope) -> str:
    """The client's X-Request-Id, as vLLM returns it in the response's id."""
    for name, value in scope["headers"]:
        if name == b"x-request-id":
            return str(value.decode("latin-1"))
    return uuid.uuid4().hex[:16]


async def _read_body(receive: Receive) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > MAX_BODY_BYTES:
            raise ApiError(400, f"the request is larger than {MAX_BODY_BYTES} bytes")
        if not message.get("more_body", False):
            return b"".join(parts)


async def _start(send: Send, status: int, content_type: str, length: int | None = None) -> None:
    headers = [(b"content-type", content_type.encode())]
    if length is not None:
        headers.append((b"content-length", str(length).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def _send_part(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def _reply(send: Send, status: int, body: bytes, content_type: str) -> None:
    await _start(send, status, content_type, len(body))
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def _reply_json(send: Send, status: int, data: Any) -> None:
    await _reply(send, status, json.dumps(data, ensure_ascii=False).encode(), JSON_TYPE)
