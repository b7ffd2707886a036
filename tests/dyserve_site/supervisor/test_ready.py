"""Whether `up` sees that the web process is ready, whatever the environment says of proxies, hosts and TLS."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dyserve_site.supervisor.ready import wait_ready
from tests.dyserve_site.test_project import ROOT, manage
from tests.served import served

ASKS = (
    "import django, sys, json; django.setup(); from django.test import Client; "
    "print(json.dumps([Client(headers={'host': 'HOST:8000'}).get(p).status_code for p in ('/livez', '/login/')]))"
)


@pytest.mark.django_db(transaction=True)
async def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(
    valkey: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    asked: list[float] = []

    async def once(seconds: float) -> None:
        if asked:
            raise TimeoutError
        asked.append(seconds)

    async with served() as address:
        readiness = await wait_ready(f"http://{address}", 60, sleep=once)
    assert "monitor: no heartbeat" in " ".join(readiness.missing), readiness


@pytest.mark.parametrize("host", ["127.0.0.1", "dys.example.org"])
def test_behind_tls_the_process_itself_still_answers_whoever_watches_it(tmp_path: Path, host: str) -> None:
    """`up` and health checks speak plain HTTP to it; pages are for those who come through the proxy."""
    environment = {"DYSERVE_HTTPS": "1", "DYSERVE_ALLOWED_HOSTS": "dys.example.org"}
    result = manage("shell", "-c", ASKS.replace("HOST", host), home=tmp_path, **environment)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout.splitlines()[-1]) == [200, 301]


def test_the_address_that_the_server_listens_at_is_allowed(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", "from dyserve_site import settings; print(settings.ALLOWED_HOSTS)"],
        env={"DYSERVE_HOME": str(tmp_path), "DYSERVE_HOST": "192.0.2.7", "DYSERVE_ALLOWED_HOSTS": "a.example"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "'192.0.2.7'" in result.stdout
    assert "'a.example'" in result.stdout
