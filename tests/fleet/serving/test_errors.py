"""Every foreign error has a place in our tree, with the right retry verdict."""

from __future__ import annotations

import json
from collections.abc import Iterator

import aiohttp
import httpx
import pytest

from fleet.serving import errors
from fleet.serving.errors import (
    HTTPX_ERRORS,
    BadRequest,
    Broken,
    ClientMisuse,
    ConnectFailed,
    ConnectTimedOut,
    ContextTooLong,
    Disconnected,
    EngineDead,
    IdleTimedOut,
    MalformedResponse,
    NotAccepted,
    Overloaded,
    RedirectRefused,
    Refused,
    ServerFailed,
    ServingError,
    StreamCut,
    StreamFailed,
    TimedOut,
    Unauthorized,
    UnknownModel,
    error_detail,
    from_exception,
    from_response,
    from_stream_event,
)
from tests.fleet.serving import recorded

CATEGORIES = {ServingError, NotAccepted, TimedOut, Broken, Refused}
"""Inner nodes of the tree: nothing raises them."""


def _tree(root: type[Exception]) -> Iterator[type[Exception]]:
    yield root
    for child in root.__subclasses__():
        yield from _tree(child)


def _leaves() -> list[type[ServingError]]:
    return [kind for kind in _tree(ServingError) if issubclass(kind, ServingError) and kind not in CATEGORIES]


def _httpx_exceptions() -> list[type[Exception]]:
    found = {item for item in vars(httpx).values() if isinstance(item, type) and issubclass(item, Exception)}
    for root in list(found):
        found.update(kind for kind in _tree(root) if kind.__module__.startswith("httpx.") or kind in found)
    return sorted(found, key=lambda kind: kind.__name__)


def test_every_code_is_unique_and_drawn_in_the_tree_with_its_verdict() -> None:
    leaves = _leaves()
    assert len({kind.code for kind in leaves}) == len(leaves)
    drawing = errors.__doc__ or ""
    for kind in leaves:
        assert any(
            kind.__name__ in line.split() and kind.code in line.split() and kind.retry in line
            for line in drawing.splitlines()
        ), f"{kind.__name__} is not drawn with {kind.code} and {kind.retry}"


@pytest.mark.parametrize("kind", _httpx_exceptions(), ids=lambda kind: kind.__name__)
def test_every_httpx_exception_is_mapped_by_name(kind: type[Exception]) -> None:
    assert kind in HTTPX_ERRORS, f"{kind.__name__} is new in httpx: decide what it means in HTTPX_ERRORS"


@pytest.mark.parametrize("kind", list(HTTPX_ERRORS), ids=lambda kind: kind.__name__)
def test_every_mapped_exception_becomes_its_error(kind: type[Exception]) -> None:
    error = kind.__new__(kind)
    Exception.__init__(error, "because")
    ours = from_exception(error)
    assert type(ours) is HTTPX_ERRORS[kind]
    assert ours.code in str(ours)


def _caused(cause: Exception) -> Exception:
    """How the transport reports an aiohttp error: as a ConnectTimeout with its cause."""
    error = httpx.ConnectTimeout(str(cause))
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (aiohttp.ServerDisconnectedError(), Disconnected),
        (aiohttp.ConnectionTimeoutError(), ConnectTimedOut),
        (aiohttp.SocketTimeoutError(), IdleTimedOut),
        (aiohttp.ClientOSError(104, "reset"), Disconnected),
        (aiohttp.ClientPayloadError("short"), StreamCut),
        (aiohttp.InvalidURL("x"), ClientMisuse),
    ],
)
def test_the_transport_s_cause_decides(cause: Exception, kind: type[ServingError]) -> None:
    assert type(from_exception(_caused(cause))) is kind
    assert type(from_exception(cause)) is kind


def test_a_bare_operating_system_error_is_a_disconnection_and_a_bug_is_no_network_error() -> None:
    assert type(from_exception(ConnectionResetError(104, "reset"))) is Disconnected
    with pytest.raises(TypeError, match="KeyError"):
        from_exception(KeyError("x"))


def test_our_own_errors_pass_unchanged() -> None:
    error = Overloaded("busy")
    assert from_exception(error) is error


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, b'{"error": {"message": "bad", "param": null}}', BadRequest),
        (400, b'{"error": {"message": "maximum context length is 10", "param": "input_tokens"}}', ContextTooLong),
        (422, b'{"detail": "Unprocessable"}', BadRequest),
        (401, b'{"error": "Unauthorized"}', Unauthorized),
        (403, b"", Unauthorized),
        (404, b'{"error": {"message": "no such model"}}', UnknownModel),
        (429, b"slow down", Overloaded),
        (500, b'{"error": {"message": "EngineCore encountered an issue."}}', EngineDead),
        (500, b"<html>", ServerFailed),
        (502, b"", ServerFailed),
        (503, b'{"error": {"message": "The engine is currently busy"}}', Overloaded),
        (503, b"EngineDeadError", EngineDead),
        (307, b"", RedirectRefused),
        (204, b"", MalformedResponse),
    ],
)
def test_status_and_body(status: int, body: bytes, kind: type[ServingError]) -> None:
    error = from_response(status, body)
    assert type(error) is kind
    assert error.status == status
    assert error.message


def test_verdicts_that_callers_rely_on() -> None:
    assert BadRequest("").retryable is False
    assert Overloaded("").retry == "elsewhere"
    assert errors.TotalTimedOut("").retry == "later"


DEEP = b"[" * 900 + b"]" * 900


@pytest.mark.parametrize(
    ("body", "start"),
    [
        (b"\xff\xfe", "\ufffd"),
        (b"[1]", "[1]"),
        (b'"text"', "text"),
        (b"null", "null"),
        (b"{}", "{}"),
        (b"[" * 100_000, "[["),
        (b'{"error": {"message": ' + DEEP + b', "param": ' + DEEP + b"}}", '{"error"'),
    ],
)
def test_any_body_gives_a_message_without_raising(body: bytes, start: str) -> None:
    assert error_detail(body)[0].startswith(start)


def test_events() -> None:
    assert type(from_stream_event({"message": "boom", "code": 500})) is StreamFailed
    assert type(from_stream_event("boom")) is StreamFailed
    assert from_stream_event({"message": json.loads(DEEP)}).message == "an error event without a message"
    assert type(from_stream_event({"message": "EngineCore encountered an issue."})) is EngineDead


def test_connect_errors_of_the_transport_are_told_from_timeouts() -> None:
    key = aiohttp.client_reqrep.ConnectionKey("h", 1, False, True, None, None, None)
    assert type(from_exception(_caused(aiohttp.ClientConnectorError(key, OSError(111, "refused"))))) is ConnectFailed


RECORDED_REFUSALS: dict[str, type[ServingError]] = {
    "err_bad_json": BadRequest,
    "err_max_tokens": BadRequest,
    "err_missing_messages": BadRequest,
    "err_too_long": ContextTooLong,
    "err_tools": BadRequest,
    "err_unknown_model": UnknownModel,
}


@recorded.needs_recordings
@pytest.mark.parametrize("name", RECORDED_REFUSALS)
def test_recorded_refusals(name: str) -> None:
    error = from_response(recorded.status(name), recorded.body(name))
    assert type(error) is RECORDED_REFUSALS[name]
    assert error.message in json.loads(recorded.body(name))["error"]["message"]


@recorded.needs_recordings
def test_every_recorded_refusal_has_its_kind() -> None:
    assert {path.stem for path in recorded.RESPONSES.glob("err_*.body")} == set(RECORDED_REFUSALS)


@recorded.needs_recordings
def test_the_recorded_overload() -> None:
    text = (recorded.RESPONSES / "overload_max_num_queued_reqs.txt").read_text()
    headers, body = json.loads(text.split("\n", 1)[1])["503"]
    error = from_response(503, body)
    assert type(error) is Overloaded
    assert "retry-after" not in headers
