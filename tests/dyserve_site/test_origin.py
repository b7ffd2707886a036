"""Which origins may open a WebSocket."""

from __future__ import annotations

from typing import Any

import pytest

from dyserve_site.origin import SameOrigin


async def accept(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "websocket.accept"})


async def connects(origin: str | None, host: str = "127.0.0.1:8000") -> bool:
    headers = [(b"host", host.encode())] + ([(b"origin", origin.encode("latin-1"))] if origin is not None else [])
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    app = SameOrigin(accept, hosts=["127.0.0.1", "localhost", "[::1]"], trusted=["https://plans.example"])
    await app({"type": "websocket", "path": "/ws/overview/", "headers": headers}, receive, send)
    assert len(sent) == 1
    return bool(sent[0]["type"] == "websocket.accept")


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://127.0.0.1:8000", "127.0.0.1:8000"),
        ("http://localhost:8000", "localhost:8000"),
        ("http://[::1]:8000", "[::1]:8000"),
        ("https://plans.example", "127.0.0.1:8000"),
    ],
)
async def test_a_page_of_this_very_address_or_a_trusted_one_connects(origin: str, host: str) -> None:
    assert await connects(origin, host)


@pytest.mark.parametrize(
    "origin",
    [
        None,
        "",
        "null",
        "http://127.0.0.1:8001",
        "http://127.0.0.1",
        "http://localhost:8000",
        "http://evil.example",
        "http://[broken",
        "http://127.0.0.1:8000@evil.example",
        "\xff",
    ],
)
async def test_any_other_page_is_refused(origin: str | None) -> None:
    assert not await connects(origin)


async def test_a_host_that_is_not_allowed_is_refused_even_to_itself() -> None:
    assert not await connects("http://evil.example", "evil.example")
