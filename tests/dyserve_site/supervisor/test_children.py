"""The processes of one machine, started as the supervisor starts them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.conf import settings

from dyserve_site.client import Client, Unreachable
from dyserve_site.supervisor.children import ChildSpec, Topology, children
from dyserve_site.supervisor.credentials import Credentials
from tests.api.samples import DOCUMENT
from tests.dyserve_site.test_project import ROOT, manage


def topology(home: Path, port: int) -> Topology:
    return Topology(
        home=home,
        manage=Path(settings.BASE_DIR) / "manage.py",
        host="127.0.0.1",
        port=port,
        socket=home / "run" / "valkey.sock",
        emulator_ports=(1,),
        run_threads=4,
    )


def spec(name: str, home: Path, port: int = 1) -> ChildSpec:
    return next(child for child in children(topology(home, port)) if child.name == name)


def test_the_webs_connections_come_from_a_pool_and_the_workers_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DYSERVE_DATABASE_POOL", raising=False)
    pools = {child.name for child in children(topology(tmp_path, 1)) if "DYSERVE_DATABASE_POOL" in child.environment}
    assert pools == {"web"}
    monkeypatch.setenv("DYSERVE_DATABASE_POOL", "3")
    assert spec("web", tmp_path).environment["DYSERVE_DATABASE_POOL"] == "3"


@contextmanager
def started(child: ChildSpec, home: Path) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "DYSERVE_HOME": str(home), **child.environment}
    process = subprocess.Popen(child.argv, env=environment, cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.process
def test_a_web_process_that_is_told_to_stop_ends_its_streams_properly(tmp_path: Path) -> None:
    """Cut off, a client could not tell a restart from a broken line."""
    prepared = manage("prepare", "--base-port", "1", home=tmp_path)
    token = Credentials.from_json(prepared.stdout.splitlines()[-1]).token
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with started(spec("web", tmp_path, port), tmp_path) as web, Client(f"http://127.0.0.1:{port}", token) as client:
        run = _submitted(client)
        lines = client._transport.stream(f"/runs/{run}/events", last_id=0, silence_s=60)
        assert next(lines)[0] == "run_accepted"
        web.send_signal(signal.SIGTERM)
        assert list(lines) == []
        web.wait(timeout=30)


def _submitted(client: Client) -> str:
    """Asks until the process listens; the test's own time limit bounds it."""
    while True:
        try:
            return client.submit_run(document=DOCUMENT, inputs={"topic": "tides"}).run.id
        except Unreachable:
            continue
