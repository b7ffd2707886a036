"""Everything that can go wrong between dyserve and a replica, as one tree (ours).

    ServingError
    ├── NotAccepted               the request never reached a server that took it
    │   ├── AddressRefused        address_refused       never      the allow-list of networks says no
    │   ├── NoReplica             no_replica            later      nobody of the backend may be called
    │   ├── ConnectFailed         connect_failed        elsewhere  refused, unreachable, unknown host, TLS
    │   └── ConnectTimedOut       connect_timeout       elsewhere
    ├── TimedOut
    │   ├── FirstTokenTimedOut    first_token_timeout   elsewhere
    │   ├── IdleTimedOut          idle_timeout          elsewhere  tokens stopped coming
    │   └── TotalTimedOut         total_timeout         later      the call's own limit: no time left to try again
    ├── Overloaded                overloaded            elsewhere  503 or 429: the queue is full
    ├── ServerFailed              server_error          elsewhere  any other 5xx
    │   └── EngineDead            engine_dead           elsewhere  the HTTP server lives, its engine does not
    ├── Broken                                                     the answer started and never became one
    │   ├── Disconnected          disconnected          elsewhere  closed before an answer
    │   ├── StreamFailed          stream_error          elsewhere  an error event inside a stream
    │   └── StreamCut             stream_cut            elsewhere  no end, or a [DONE] that ends nothing
    ├── Refused                                                    the same request fails everywhere
    │   ├── BadRequest            bad_request           never      400, 422 and other 4xx
    │   │   └── ContextTooLong    context_too_long      never
    │   ├── UnknownModel          unknown_model         elsewhere  404: this replica serves something else
    │   ├── Unauthorized          unauthorized          elsewhere  401, 403: keys are a replica's own
    │   └── RedirectRefused       redirect_refused      never      3xx: redirects are never followed
    ├── MalformedResponse         malformed_response    elsewhere  not the JSON that the protocol promises
    └── ClientMisuse              client_misuse         never      a bug on our side of the wire

The verdict says what a caller may do with the SAME request: `never` send it again, send it `elsewhere` (another
replica of the backend) or only `later`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import aiohttp
import httpx

RetryVerdict = Literal["never", "elsewhere", "later"]


class ServingError(Exception):
    """Root of the tree. `replica` is filled in by whoever knows it, `tries` by the pool."""

    code: ClassVar[str] = "serving_error"
    retry: ClassVar[RetryVerdict] = "never"

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.replica = ""
        self.tries = 1

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed on another replica or later."""
        return self.retry != "never"

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class NotAccepted(ServingError):
    retry: ClassVar[RetryVerdict] = "elsewhere"


class AddressRefused(NotAccepted):
    code: ClassVar[str] = "address_refused"
    retry: ClassVar[RetryVerdict] = "never"


class NoReplica(NotAccepted):
    code: ClassVar[str] = "no_replica"
    retry: ClassVar[RetryVerdict] = "later"


class ConnectFailed(NotAccepted):
    code: ClassVar[str] = "connect_failed"


class ConnectTimedOut(NotAccepted):
    code: ClassVar[str] = "connect_timeout"


class TimedOut(ServingError):
    code: ClassVar[str] = "timeout"
    retry: ClassVar[RetryVerdict] = "elsewhere"


class FirstTokenTimedOut(TimedOut):
    code: ClassVar[str] = "first_token_timeout"


class IdleTimedOut(TimedOut):
    code: ClassVar[str] = "idle_timeout"


class TotalTimedOut(TimedOut):
    code: ClassVar[str] = "total_timeout"
    retry: ClassVar[RetryVerdict] = "later"


class Overloaded(ServingError):
    code: ClassVar[str] = "overloaded"
    retry: ClassVar[RetryVerdict] = "elsewhere"


class ServerFailed(ServingError):
    code: ClassVar[str] = "server_error"
    retry: ClassVar[RetryVerdict] = "elsewhere"


class EngineDead(ServerFailed):
    code: ClassVar[str] = "engine_dead"


class Broken(ServingError):
    code: ClassVar[str] = "broken"
    retry: ClassVar[RetryVerdict] = "elsewhere"


class Disconnected(Broken):
    code: ClassVar[str] = "disconnected"


class StreamFailed(Broken):
    code: ClassVar[str] = "stream_error"


class StreamCut(Broken):
    code: ClassVar[str] = "stream_cut"


class Refused(ServingError):
    code: ClassVar[str] = "refused"


class BadRequest(Refused):
    code: ClassVar[str] = "bad_request"


class ContextTooLong(BadRequest):
    code: ClassVar[str] = "context_too_long"


class UnknownModel(Refused):
    code: ClassVar[str] = "unknown_model"
    retry: ClassVar[RetryVerdict] = "elsewhere"


class Unauthorized(Refused):
    """Keys belong to replicas: another one of the backend may accept the call."""

    code: ClassVar[str] = "unauthorized"
    retry: ClassVar[RetryVerdict] = "elsewhere"


class RedirectRefused(Refused):
    code: ClassVar[str] = "redirect_refused"


class MalformedResponse(ServingError):
    code: ClassVar[str] = "malformed_response"
    retry: ClassVar[RetryVerdict] = "elsewhere"


class ClientMisuse(ServingError):
    code: ClassVar[str] = "client_misuse"


# --- From a status and a body ----------------------------------------------------------------------------------------

_BY_STATUS: Mapping[int, type[ServingError]] = MappingProxyType(
    {401: Unauthorized, 403: Unauthorized, 404: UnknownModel, 429: Overloaded, 503: Overloaded}
)
_TOO_LONG_PARAMS = frozenset({"input_text", "input_tokens"})
_TOO_LONG_WORDS = ("maximum context length", "maximum model length")
_DEAD_WORDS = ("EngineCore", "EngineDeadError", "engine is dead")


def error_detail(body: bytes | str) -> tuple[str, str]:
    """(message, param) of an error body in vLLM's form; a body in any other form is its own message, shortened."""
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else body
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError):
        return text.strip()[:500], ""
    error = data.get("error", data) if isinstance(data, dict) else data
    return _detail(error, text.strip())


def _detail(error: Any, otherwise: str) -> tuple[str, str]:
    """(message, param) of a parsed error; `otherwise` is the message where it has none."""
    if not isinstance(error, dict):
        return (_said(error) or otherwise)[:500], ""
    message = _said(error.get("message")) or _said(error.get("detail")) or otherwise
    return message[:500], _said(error.get("param"))


def _said(value: Any) -> str:
    """A text or a number as text, anything else as nothing: what a replica nests there may be of any depth."""
    return str(value) if isinstance(value, str | int | float) else ""


def _kind(status: int, message: str, param: str) -> type[ServingError]:
    if any(word in message for word in _DEAD_WORDS) and status >= 500:
        return EngineDead
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if 300 <= status < 400:
        return RedirectRefused
    if status >= 500:
        return ServerFailed
    if status >= 400:
        too_long = param in _TOO_LONG_PARAMS or any(word in message for word in _TOO_LONG_WORDS)
        return ContextTooLong if too_long else BadRequest
    return MalformedResponse


def from_response(status: int, body: bytes | str) -> ServingError:
    """The typed error of any answer that is not 200."""
    message, param = error_detail(body)
    return _kind(status, message, param)(message or f"HTTP status {status} without a message", status=status)


def from_stream_event(error: Any) -> ServingError:
    """The typed error of an error event inside a stream; a stream that ends after one has no answer."""
    message, _ = _detail(error, "an error event without a message")
    if any(word in message for word in _DEAD_WORDS):
        return EngineDead(message)
    return StreamFailed(message)


# --- From an exception -----------------------------------------------------------------------------------------------

HTTPX_ERRORS: Mapping[type[Exception], type[ServingError]] = MappingProxyType(
    {
        httpx.ConnectTimeout: ConnectTimedOut,
        httpx.PoolTimeout: ConnectTimedOut,
        httpx.ReadTimeout: IdleTimedOut,
        httpx.WriteTimeout: IdleTimedOut,
        httpx.TimeoutException: IdleTimedOut,
        httpx.ConnectError: ConnectFailed,
        httpx.ProxyError: ConnectFailed,
        httpx.ReadError: Disconnected,
        httpx.WriteError: Disconnected,
        httpx.CloseError: Disconnected,
        httpx.NetworkError: Disconnected,
        httpx.RemoteProtocolError: Disconnected,
        httpx.ProtocolError: Disconnected,
        httpx.TransportError: Disconnected,
        httpx.RequestError: Disconnected,
        httpx.HTTPError: Disconnected,
        httpx.DecodingError: MalformedResponse,
        httpx.HTTPStatusError: ServerFailed,
        httpx.TooManyRedirects: RedirectRefused,
        httpx.UnsupportedProtocol: ClientMisuse,
        httpx.LocalProtocolError: ClientMisuse,
        httpx.InvalidURL: ClientMisuse,
        httpx.CookieConflict: ClientMisuse,
        httpx.StreamError: ClientMisuse,
        httpx.StreamConsumed: ClientMisuse,
        httpx.StreamClosed: ClientMisuse,
        httpx.ResponseNotRead: ClientMisuse,
        httpx.RequestNotRead: ClientMisuse,
    }
)

# The aiohttp transport reports refused connections and lost servers alike as ConnectTimeout: its cause says more.
AIOHTTP_ERRORS: tuple[tuple[type[Exception], type[ServingError]], ...] = (
    (aiohttp.ConnectionTimeoutError, ConnectTimedOut),
    (aiohttp.ServerTimeoutError, IdleTimedOut),
    (aiohttp.ClientConnectorError, ConnectFailed),
    (aiohttp.ClientConnectionError, Disconnected),
    (aiohttp.ClientPayloadError, StreamCut),
    (aiohttp.InvalidURL, ClientMisuse),
    (aiohttp.ClientError, Disconnected),
)

WIRE_ERRORS: tuple[type[Exception], ...] = (
    httpx.HTTPError,
    httpx.InvalidURL,
    httpx.StreamError,
    httpx.CookieConflict,
    aiohttp.ClientError,
    OSError,
)
"""What a call over the wire may raise; `from_exception` maps every one."""


def _from_aiohttp(error: BaseException | None) -> type[ServingError] | None:
    return next((ours for theirs, ours in AIOHTTP_ERRORS if isinstance(error, theirs)), None)


def _from_httpx(error: Exception) -> type[ServingError] | None:
    return next((HTTPX_ERRORS[kind] for kind in type(error).__mro__ if kind in HTTPX_ERRORS), None)


def from_exception(error: Exception) -> ServingError:
    """The typed error of an exception in WIRE_ERRORS (the transport's cause decides where it says more).

    Raises TypeError for anything else: a bug must not look like a network error.
    """
    if isinstance(error, ServingError):
        return error
    kind = _from_aiohttp(error.__cause__) or _from_aiohttp(error) or _from_httpx(error)
    if kind is None and isinstance(error, OSError):
        kind = Disconnected
    if kind is None:
        raise TypeError(f"{type(error).__name__} is no error of the wire") from error
    return kind(str(error) or type(error).__name__)
