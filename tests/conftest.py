"""Fixtures that every part of the suite shares. In CI a missing service is a failure, never a skip."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from django.conf import settings
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from dyserve_site.supervisor import valkey as embedded
from dyserve_site.supervisor.supervisor import child_setup
from tests.sampling import SOAK

# Sampled with fixed seeds by `make test`, at length and at random by `make soak`; no test depends on timing.
_SLOW_MACHINES = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
hypothesis_settings.register_profile(
    "sampled", deadline=None, derandomize=True, database=None, suppress_health_check=_SLOW_MACHINES
)
hypothesis_settings.register_profile(
    "soak", deadline=None, max_examples=2000, print_blob=True, suppress_health_check=_SLOW_MACHINES
)
hypothesis_settings.load_profile("soak" if SOAK else "sampled")

SHARED_DATA = Path(settings.BASE_DIR).parent / "shared" / "data"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long versions run in `make soak` alone; their sampled siblings carry no mark."""
    if not SOAK:
        for item in items:
            if item.get_closest_marker("soak"):
                item.add_marker(pytest.mark.skip(reason="long version: make soak"))


def missing(what: str) -> None:
    """Skips, or fails in CI."""
    if os.environ.get("CI"):
        pytest.fail(f"{what} is required in CI")
    pytest.skip(what)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real workflow files, traces and recordings beside the project; a test skips where they are absent."""
    if not SHARED_DATA.is_dir():
        pytest.skip("the folder shared/data is not beside the project")
    return SHARED_DATA


def start_valkey(socket: Path, data: Path) -> subprocess.Popen[bytes]:
    """A real server that answers when this returns."""
    process = subprocess.Popen(
        embedded.command(socket, data),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=child_setup(nice=0),  # it ends with a test run that is killed
    )
    client = redis.Redis(
        unix_socket_path=str(socket),
        retry=redis.retry.Retry(redis.backoff.ConstantBackoff(0.02), retries=500),
        retry_on_error=[redis.exceptions.ConnectionError],
    )
    try:
        client.ping()
    finally:
        client.close()
    return process


def stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@pytest.fixture(scope="session")
def _valkey_server() -> Iterator[str]:
    socket = settings.EMBEDDED_REDIS_SOCKET
    assert socket is not None
    process = start_valkey(socket, Path(settings.HOME) / "valkey")
    yield settings.REDIS_URL
    stop(process)


@pytest.fixture
def valkey(_valkey_server: str) -> str:
    """The URL of a real, empty Valkey, the one that the settings name."""
    client = redis.Redis.from_url(_valkey_server)
    client.flushall()
    client.close()
    return _valkey_server
