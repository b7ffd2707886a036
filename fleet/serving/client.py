"""HTTP to one replica: httpx's API over aiohttp's connector (ours: httpcore scans its pool quadratically).

Every call has time limits, follows no redirect and ends in a value or in one error of `errors.py`. Cancelling a call
closes its connection, which frees the server's slot.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport

from fleet.serving.addresses import AddressPolicy, PolicyResolver
from fleet.serving.chat import (
    ChatRequest,
    ChatResponse,
    Delta,
    ServedModel,
    StreamReader,
    Timeouts,
    chat_body,
    complete,
    parse_answer,
    parse_models,
    parse_version,
)
from fleet.serving.clock import Clock, WallClock
from fleet.serving.errors import (
    WIRE_ERRORS,
    ClientMisuse,
    FirstTokenTimedOut,
    IdleTimedOut,
    MalformedResponse,
    ServingError,
    TotalTimedOut,
    from_exception,
    from_response,
)
from fleet.serving.metrics import MetricsPage, parse_metrics

KEEPALIVE_S = 4.0
"""Shorter than uvicorn's 5 s: the server never closes a connection that we are about to use."""
MAX_BODY_BYTES = 32 * 1024 * 1024
MAX_LINE_BYTES = 1024 * 1024
MAX_STREAM_BYTES = 128 * 1024 * 1024
"""A stream repeats some 200 bytes around every token: more than this is no answer that was asked for."""
PROBE_TIMEOUT_S = 5.0

OnDelta = Callable[[Delta], None]


def _session(policy: AddressPolicy) -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S, resolver=PolicyResolver(policy))
    return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False)


def _headers(request_id: str | None, api_key: str | None) -> dict[str, str]:
    headers = {"accept-encoding": "identity"}
    if request_id:
        headers["x-request-id"] = _header_value(request_id, "the request id")
    if api_key:
        headers["authorization"] = f"Bearer {_header_value(api_key, 'the API key')}"
    return headers


def _header_value(value: str, what: str) -> str:
    """Raises ClientMisuse, without the value (it may be a secret), for what could end a header or cannot be in one."""
    if not (value.isascii() and value.isprintable()):
        raise ClientMisuse(f"{what} holds a line break or another character that no HTTP header carries: correct it")
    return value


async def _body(response: httpx.Response) -> bytes:
    """The whole body, up to MAX_BODY_BYTES. Raises MalformedResponse beyond."""
    parts: list[bytes] = []
    size = 0
    async for part in response.aiter_raw():
        size += len(part)
        if size > MAX_BODY_BYTES:
            raise MalformedResponse(f"the reply is larger than {MAX_BODY_BYTES} bytes")
        parts.append(part)
    return b"".join(parts)


async def _lines(response: httpx.Response) -> AsyncIterator[str]:
    """Lines split at line feeds alone: model text may hold U+2028 and other characters that end a line for `str`."""
    rest, size = b"", 0
    async for part in response.aiter_raw():
        size += len(part)
        if size > MAX_STREAM_BYTES:
            raise MalformedResponse(f"the stream is larger than {MAX_STREAM_BYTES} bytes")
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            yield line.decode("utf-8", "replace").rstrip("\r")
        if len(rest) > MAX_LINE_BYTES:
            raise MalformedResponse(f"one line of the stream is larger than {MAX_LINE_BYTES} bytes")


def _transport_limits(timeouts: Timeouts) -> httpx.Timeout:
    """Only connecting is limited here: reads are bounded by the call's own limits, which know what they wait for."""
    return httpx.Timeout(None, connect=timeouts.connect_s, pool=timeouts.connect_s)


@asynccontextmanager
async def _typed_errors(timeout_s: float) -> AsyncIterator[None]:
    """Bounds a call and turns every error of the wire into one of our tree."""
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except ServingError:
        raise
    except TimeoutError as error:
        raise TotalTimedOut(f"no complete answer within {timeout_s:g} s") from error
    except WIRE_ERRORS as error:
        raise from_exception(error) from error


class ServingClient:
    """All replicas share one client; use it as an async context manager, or call `aclose()`.

    `policy` says which addresses may be connected. Every method raises ServingError and nothing else of the wire.
    """

    def __init__(self, *, policy: AddressPolicy | None = None, clock: Clock | None = None) -> None:
        self._policy = policy or AddressPolicy()
        self._clock = clock or WallClock()
        transport = AiohttpTransport(client=lambda: _session(self._policy), trust_env=False)
        self._http = httpx.AsyncClient(transport=transport, follow_redirects=False, trust_env=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._http.aclose()

    # --- Chat ---

    async def chat(self, url: str, request: ChatRequest, *, api_key: str | None = None) -> ChatResponse:
        """One plain completion from the replica at `url`."""
        started_at = self._clock.now()
        async with _typed_errors(request.timeout_s), self._post(url, request, api_key, stream=False) as response:
            answer = parse_answer(await _body(response))
        return complete(answer, started_at=started_at, finished_at=self._clock.now())

    async def stream_chat(
        self, url: str, request: ChatRequest, *, api_key: str | None = None, on_delta: OnDelta | None = None
    ) -> ChatResponse:
        """One streamed completion; `on_delta` gets every piece as it comes, the return value is the whole answer."""
        started_at = self._clock.now()
        reader = StreamReader()
        first_token_at: float | None = None

        def arrived(delta: Delta) -> None:
            nonlocal first_token_at
            if first_token_at is None:
                first_token_at = self._clock.now()
            if on_delta is not None:
                on_delta(delta)

        async with _typed_errors(request.timeout_s):
            await self._stream(url, request, api_key, reader, arrived)
            answer = reader.finish()
        first_token_s = None if first_token_at is None else first_token_at - started_at
        return complete(answer, started_at=started_at, finished_at=self._clock.now(), first_token_s=first_token_s)

    async def _stream(
        self, url: str, request: ChatRequest, api_key: str | None, reader: StreamReader, arrived: OnDelta
    ) -> None:
        """Feeds the reader until the server closes; the limit is the first token's until one came, then idle's."""
        loop, limits, seen = asyncio.get_running_loop(), request.timeouts, False
        try:
            async with (
                asyncio.timeout(limits.first_token_s) as limit,
                self._post(url, request, api_key, stream=True) as response,
            ):
                async for line in _lines(response):
                    delta = reader.feed(line)
                    if delta is not None:
                        seen = True
                        arrived(delta)
                    if seen:
                        limit.reschedule(loop.time() + limits.idle_s)
        except TimeoutError as error:
            if seen:
                raise IdleTimedOut(f"no token for {limits.idle_s:g} s in the middle of an answer") from error
            raise FirstTokenTimedOut(f"no first token within {limits.first_token_s:g} s") from error

    @asynccontextmanager
    async def _post(
        self, url: str, request: ChatRequest, api_key: str | None, *, stream: bool
    ) -> AsyncIterator[httpx.Response]:
        """An open response with status 200; leaving closes it. Raises the typed error of any other status."""
        async with self._http.stream(
            "POST",
            self._policy.check_url(url).rstrip("/") + "/v1/chat/completions",
            content=json.dumps(chat_body(request, stream=stream)).encode(),
            headers={"content-type": "application/json", **_headers(request.request_id, api_key)},
            timeout=_transport_limits(request.timeouts),
        ) as response:
            if response.status_code != httpx.codes.OK:
                raise from_response(response.status_code, await _body(response))
            yield response

    # --- Probes ---

    async def metrics(self, url: str, *, api_key: str | None = None, timeout_s: float = PROBE_TIMEOUT_S) -> MetricsPage:
        """The signals of /metrics."""
        return parse_metrics((await self._get(url, "/metrics", api_key, timeout_s)).decode("utf-8", "replace"))

    async def health(self, url: str, *, api_key: str | None = None, timeout_s: float = PROBE_TIMEOUT_S) -> None:
        """Returns when /health answers 200; raises the typed error otherwise (503: the engine is dead)."""
        await self._get(url, "/health", api_key, timeout_s)

    async def models(
        self, url: str, *, api_key: str | None = None, timeout_s: float = PROBE_TIMEOUT_S
    ) -> tuple[ServedModel, ...]:
        return parse_models(await self._get(url, "/v1/models", api_key, timeout_s))

    async def version(self, url: str, *, api_key: str | None = None, timeout_s: float = PROBE_TIMEOUT_S) -> str:
        return parse_version(await self._get(url, "/version", api_key, timeout_s))

    async def _get(self, url: str, path: str, api_key: str | None, timeout_s: float) -> bytes:
        address = self._policy.check_url(url).rstrip("/") + path
        limits = _transport_limits(Timeouts(connect_s=timeout_s))
        async with (
            _typed_errors(timeout_s),
            self._http.stream("GET", address, headers=_headers(None, api_key), timeout=limits) as response,
        ):
            body = await _body(response)
            if response.status_code != httpx.codes.OK:
                raise from_response(response.status_code, body)
            return body
