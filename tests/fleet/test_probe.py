"""The admin's probe says what it found, or what is wrong and the remedy."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from fleet.models import Replica
from fleet.probe import judge, probe_replica
from fleet.serving.metrics import parse_metrics
from tests.fleet.emulated import emulated, replica
from tests.fleet.rows import demo

pytestmark = pytest.mark.django_db


@pytest.fixture
def emulated_url() -> Iterator[str]:
    """An emulated 9B whose loop runs in a thread of its own, as the probe blocks this one."""
    url: Future[str] = Future()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def run() -> None:
        async with emulated(replica("9b-0")) as urls:
            url.set_result(urls["9b-0"])
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    try:
        yield url.result(timeout=60)
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


def row(name: str, url: str) -> Replica:
    demo()
    Replica.objects.filter(name=name).update(url=url)
    return Replica.objects.select_related("backend__model_class").get(name=name)


def test_a_good_replica(emulated_url: str) -> None:
    result = probe_replica(row("9b-0", emulated_url))
    assert result.ok, result.text
    assert result.text.startswith("healthy, serves qwen3.5-9b, version ")
    assert result.missing == ()


def test_a_replica_of_another_model(emulated_url: str) -> None:
    result = probe_replica(row("27b-0", emulated_url))
    assert not result.ok
    assert result.text == "serves qwen3.5-9b, not qwen3.5-27b: correct the backend's served name"


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    result = probe_replica(row("9b-0", f"http://127.0.0.1:{port}"))
    assert not result.ok
    assert result.text.startswith("connect_failed")


def test_a_forbidden_address_is_not_asked() -> None:
    result = probe_replica(row("9b-0", "http://169.254.169.254"))
    assert not result.ok
    assert "link-local" in result.text


def test_missing_metrics_are_named() -> None:
    page = parse_metrics("vllm:num_requests_running 3\n")
    result = judge("m", ("m",), page, "")
    assert result.ok
    assert "lack waiting, kv_usage" in result.text
    assert result.text.endswith("its load will be unknown")
