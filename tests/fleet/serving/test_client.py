"""The client against a real server on loopback: every ending is an answer or one typed error, and nothing hangs."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from fleet.serving import client as client_module
from fleet.serving.addresses import AddressPolicy, parse_networks
from fleet.serving.chat import AnswerFormat, ChatRequest, Delta, Timeouts
from fleet.serving.client import ServingClient
from fleet.serving.errors import (
    AddressRefused,
    ClientMisuse,
    ConnectFailed,
    Disconnected,
    FirstTokenTimedOut,
    IdleTimedOut,
    MalformedResponse,
    Overloaded,
    RedirectRefused,
    ServerFailed,
    ServingError,
    StreamCut,
    TotalTimedOut,
)
from tests.fleet.serving.loopback import serving

Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]

ANSWER = {
    "id": "chatcmpl-r",
    "model": "m",
    "choices": [{"index": 0, "message": {"content": "yes"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 5, "completion_tokens": 7},
}


def _event(data: Any) -> bytes:
    return b"data: " + json.dumps(data, ensure_ascii=False).encode() + b"\n\n"


def _piece(text: str, finish: str | None = None) -> bytes:
    return _event({"id": "c", "model": "m", "choices": [{"delta": {"content": text}, "finish_reason": finish}]})


USAGE = _event({"id": "c", "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}})
DONE = b"data: [DONE]\n\n"


class Server:
    """Plays one script for every request and remembers what was asked."""

    def __init__(
        self,
        parts: tuple[bytes, ...] = (),
        *,
        status: int = 200,
        headers: tuple[tuple[bytes, bytes], ...] = (),
        hang: bool = False,
        break_off: bool = False,
        silent: bool = False,
    ) -> None:
        self._parts, self._status, self._headers = parts, status, headers
        self._hang, self._break_off, self._silent = hang, break_off, silent
        self.asked: list[tuple[str, dict[bytes, bytes], Any]] = []
        self.started = asyncio.Event()
        self.gone = asyncio.Event()

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message["body"]
            if not message["more_body"]:
                break
        self.asked.append((scope["path"], dict(scope["headers"]), json.loads(body) if body else None))
        self.started.set()
        if not self._silent:
            await send({"type": "http.response.start", "status": self._status, "headers": list(self._headers)})
            for part in self._parts:
                await send({"type": "http.response.body", "body": part, "more_body": True})
        if self._break_off:
            raise ConnectionAbortedError
        if self._hang or self._silent:
            while (await receive())["type"] != "http.disconnect":
                pass
            self.gone.set()
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})


@pytest.fixture
async def client() -> AsyncIterator[ServingClient]:
    async with ServingClient() as made:
        yield made


def _request(**changes: Any) -> ChatRequest:
    values = {"request_id": "run-7.plan.1.0.0", "model": "m", "messages": ({"role": "user", "content": "Hi"},)}
    return ChatRequest(**{**values, "max_tokens": 8, "timeout_s": 20.0, **changes})


async def test_a_plain_call_carries_id_key_and_body(client: ServingClient) -> None:
    server = Server((json.dumps(ANSWER).encode(),))
    async with serving(server) as url:
        response = await client.chat(url + "/", _request(answer=AnswerFormat(kind="json")), api_key="secret")
    path, headers, body = server.asked[0]
    assert response.text == "yes"
    assert path == "/v1/chat/completions"
    assert headers[b"x-request-id"] == b"run-7.plan.1.0.0"
    assert headers[b"authorization"] == b"Bearer secret"
    assert body["response_format"] == {"type": "json_object"}


async def test_a_stream_with_line_separators_in_its_text(client: ServingClient) -> None:
    text = "a\u2028b\u0085c\x0bd é"
    whole = _piece(text) + _piece("!", "stop") + USAGE + DONE
    cut = whole.index("é".encode()) + 1
    deltas: list[Delta] = []
    async with serving(Server((whole[:7], whole[7:cut], whole[cut:]))) as url:
        response = await client.stream_chat(url, _request(), on_delta=deltas.append)
    assert response.text == text + "!"
    assert [item.text for item in deltas] == [text, "!"]
    assert response.ttft_s is not None
    assert response.started_at <= response.finished_at


@pytest.mark.parametrize(
    ("status", "kind"), [(503, Overloaded), (500, ServerFailed), (307, RedirectRefused), (302, RedirectRefused)]
)
@pytest.mark.parametrize("stream", [False, True])
async def test_statuses(client: ServingClient, status: int, kind: type[ServingError], stream: bool) -> None:
    server = Server((b'{"error": {"message": "no"}}',), status=status, headers=((b"location", b"http://127.0.0.1:1/"),))
    async with serving(server) as url:
        with pytest.raises(kind):
            await (client.stream_chat if stream else client.chat)(url, _request())
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("parts", "kind"),
    [((_piece("a"), USAGE), StreamCut), ((_piece("a"), DONE), StreamCut), ((b"data: {\n\n",), MalformedResponse)],
)
async def test_broken_streams(client: ServingClient, parts: tuple[bytes, ...], kind: type[ServingError]) -> None:
    async with serving(Server(parts)) as url:
        with pytest.raises(kind):
            await client.stream_chat(url, _request())


@pytest.mark.parametrize("stream", [False, True])
async def test_a_connection_that_breaks_in_the_middle(client: ServingClient, stream: bool) -> None:
    async with serving(Server((_piece("a"),), break_off=True)) as url:
        with pytest.raises(StreamCut):
            await (client.stream_chat if stream else client.chat)(url, _request())


async def test_a_server_that_closes_without_an_answer(client: ServingClient) -> None:
    async def slam(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(slam, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        with pytest.raises(Disconnected):
            await client.chat(f"http://{host}:{port}", _request())


async def test_nobody_listens(client: ServingClient) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ConnectFailed):
        await client.chat(f"http://127.0.0.1:{port}", _request())


async def test_the_total_limit_ends_a_plain_call_and_closes_its_connection(client: ServingClient) -> None:
    server = Server(silent=True)
    async with serving(server) as url:
        with pytest.raises(TotalTimedOut):
            await client.chat(url, _request(timeout_s=0.05))
        async with asyncio.timeout(10):
            await server.gone.wait()


async def test_the_limits_of_a_stream_know_what_they_wait_for(client: ServingClient) -> None:
    async with serving(Server((_event({"choices": []}),), hang=True)) as url:
        with pytest.raises(FirstTokenTimedOut):
            await client.stream_chat(url, _request(timeouts=Timeouts(first_token_s=0.05)))
    async with serving(Server((_piece("a"),), hang=True)) as url:
        with pytest.raises(IdleTimedOut):
            await client.stream_chat(url, _request(timeouts=Timeouts(idle_s=0.05)))


@pytest.mark.parametrize("stream", [False, True])
async def test_cancelling_a_call_closes_its_connection(client: ServingClient, stream: bool) -> None:
    server = Server((_piece("a"),), hang=True) if stream else Server(silent=True)
    async with serving(server) as url:
        call = (client.stream_chat if stream else client.chat)(url, _request())
        task = asyncio.ensure_future(call)
        await server.started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(10):
            await server.gone.wait()


async def test_addresses_outside_the_allow_list_are_never_connected(client: ServingClient) -> None:
    with pytest.raises(AddressRefused):
        await client.chat("http://10.1.2.3:8000", _request())
    with pytest.raises(AddressRefused):
        await client.health("http://169.254.169.254")


@pytest.mark.parametrize("host", ["169\u3002254\u3002169\u3002254", "2852039166", "0xa9fea9fe", "169.254.169.254."])
async def test_no_spelling_of_an_address_gets_around_the_allow_list(client: ServingClient, host: str) -> None:
    with pytest.raises((AddressRefused, ClientMisuse)):
        await client.health(f"http://{host}:8000")


@pytest.mark.parametrize("bad", ["a\r\nx-evil: 1", "a\n", "a\0", "caf\u00e9"])
async def test_ids_and_keys_cannot_add_headers(client: ServingClient, bad: str) -> None:
    server = Server((json.dumps(ANSWER).encode(),))
    async with serving(server) as url:
        with pytest.raises(ClientMisuse):
            await client.chat(url, _request(request_id=bad))
        with pytest.raises(ClientMisuse) as caught:
            await client.health(url, api_key=bad)
    assert server.asked == []
    assert bad not in str(caught.value)


async def test_a_name_is_checked_when_it_is_resolved() -> None:
    server = Server((json.dumps(ANSWER).encode(),))
    async with serving(server) as url:
        named = url.replace("127.0.0.1", "localhost")
        async with ServingClient() as open_client:
            assert (await open_client.chat(named, _request())).text == "yes"
        async with ServingClient(policy=AddressPolicy(networks=parse_networks("10.0.0.0/8"))) as closed_client:
            with pytest.raises(AddressRefused):
                await closed_client.chat(named, _request())
    assert len(server.asked) == 1


async def test_a_reply_without_end_is_cut_off(client: ServingClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "MAX_BODY_BYTES", 1000)
    async with serving(Server((b"x" * 600, b"x" * 600))) as url:
        with pytest.raises(MalformedResponse, match="larger than"):
            await client.chat(url, _request())
        with pytest.raises(MalformedResponse, match="larger than"):
            await client.metrics(url)


async def test_a_stream_without_end_is_cut_off(client: ServingClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "MAX_LINE_BYTES", 1000)
    monkeypatch.setattr(client_module, "MAX_STREAM_BYTES", 3000)
    async with serving(Server((b"x" * 600, b"x" * 600))) as url:
        with pytest.raises(MalformedResponse, match="one line of the stream is larger than"):
            await client.stream_chat(url, _request())
    async with serving(Server((_piece("a"),) * 50)) as url:
        with pytest.raises(MalformedResponse, match="the stream is larger than"):
            await client.stream_chat(url, _request())


async def test_probes(client: ServingClient) -> None:
    async with serving(Server((b"vllm:num_requests_running 3\n",))) as url:
        assert (await client.metrics(url)).running == 3
        await client.health(url)
    async with serving(Server((b'{"data": [{"id": "m"}]}',))) as url:
        assert (await client.models(url))[0].name == "m"
    async with serving(Server((b'{"version": "0.32.0"}',))) as url:
        assert await client.version(url) == "0.32.0"
    async with serving(Server(status=503)) as url:
        with pytest.raises(Overloaded):
            await client.health(url)
    async with serving(Server(silent=True)) as url:
        with pytest.raises(TotalTimedOut):
            await client.health(url, timeout_s=0.05)
