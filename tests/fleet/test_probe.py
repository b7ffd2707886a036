"""The admin's probe says what it found, or what is wrong and the remedy."""

from __future__ import annotations

import socket

import pytest

from fleet.models import Replica
from fleet.probe import judge, probe_replica
from fleet.serving.metrics import parse_metrics
from tests.fleet.rows import demo
from tests.fleet.threaded import emulated_url

__all__ = ["emulated_url"]

pytestmark = pytest.mark.django_db


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
