from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx
import pytest
from django.conf import settings

from dyserve_site.asgi import BodyLimit, on_stop
from tests.served import served

LIMIT = settings.DATA_UPLOAD_MAX_MEMORY_SIZE


async def ask(method: str, path: str, **options: Any) -> httpx.Response:
    async with served() as address, httpx.AsyncClient(base_url=f"http://{address}", trust_env=False) as client:
        return await client.request(method, path, **options)


async def chunks(size: int) -> AsyncIterator[bytes]:
    for _ in range(size // 65536 + 1):
        yield b"x" * 65536


def is_problem(response: httpx.Response, status: int) -> bool:
    return (response.status_code, response.headers["Content-Type"]) == (status, "application/problem+json")


async def test_a_body_that_is_announced_too_large_is_refused() -> None:
    assert is_problem(await ask("POST", "/api/v1/workflows", content=b"x" * (LIMIT + 1)), 413)


async def test_a_body_that_turns_out_too_large_is_refused() -> None:
    """Sent in chunks it has no length that anybody could look at first."""
    assert is_problem(await ask("POST", "/api/v1/workflows", content=chunks(LIMIT)), 413)


@pytest.mark.django_db(transaction=True)
async def test_a_body_within_the_limit_reaches_the_application_whole() -> None:
    response = await ask("POST", "/api/v1/workflows", content=chunks(100_000))
    assert is_problem(response, 401)


async def test_the_limit_passes_on_exactly_what_came() -> None:
    got: list[bytes] = []

    async def app(scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        more = True
        while more:
            message = await receive()
            got.append(message["body"])
            more = message["more_body"]
        assert (await receive())["type"] == "http.disconnect"

    messages = iter(
        [
            {"type": "http.request", "body": b"ab", "more_body": True},
            {"type": "http.request", "body": b"cd", "more_body": False},
            {"type": "http.disconnect"},
        ]
    )

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        raise AssertionError("nothing is refused")

    await BodyLimit(app, 4)({"type": "http", "headers": [], "path": "/"}, receive, send)
    assert got == [b"ab", b"cd"]


@pytest.mark.parametrize("length", [b"5", b"9" * 30])
async def test_one_byte_over_the_limit_is_too_much(length: bytes) -> None:
    sent: list[Any] = []

    async def app(*_: Any) -> None:
        raise AssertionError("the application must not see it")

    async def receive() -> Any:
        raise AssertionError("what is announced too large is not even read")

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "headers": [(b"content-length", length)], "path": "/x"}
    await BodyLimit(app, 4)(scope, receive, send)
    assert sent[0]["status"] == 413
    assert json.loads(sent[1]["body"])["code"] == "too_large"


def test_importing_the_application_starts_nothing() -> None:
    """No thread, no connection: a server may import it before it forks."""
    script = (
        "import threading, dyserve_site.asgi, psutil; "
        "print(threading.active_count(), len(psutil.Process().net_connections(kind='all')), "
        "len(psutil.Process().children()))"
    )
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "dyserve_site.settings"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env=environment,
        cwd=settings.BASE_DIR,
        check=True,
    )
    assert done.stdout.split() == ["1", "0", "0"]


def test_the_servers_own_signal_handler_runs_after_ours_and_comes_back() -> None:
    told: list[str] = []

    def server(*_: Any) -> None:
        told.append("server")

    before = signal.signal(signal.SIGTERM, server)
    try:
        with on_stop(lambda: told.append("streams")):
            signal.raise_signal(signal.SIGTERM)
        assert told == ["streams", "server"]
        assert signal.getsignal(signal.SIGTERM) is server
    finally:
        signal.signal(signal.SIGTERM, before)


async def test_a_server_in_another_thread_keeps_its_signals() -> None:
    def enter() -> bool:
        with on_stop(lambda: None):
            return True

    assert await asyncio.to_thread(enter)
