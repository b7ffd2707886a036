"""A real site for a real Chromium: uvicorn, Valkey and the plans worker as processes on a home of their own.

Nothing waits by sleeping: the web server inherits a socket that listens already, and the broker keeps what a worker
that still starts has not taken. A page that logs an error, throws, or violates the CSP fails its test.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.conf import settings
from playwright.sync_api import Browser, Page

import tests.chromium
from dyserve_site.env import socket_path
from tests.browser.seed import PASSWORD, USER
from tests.chromium import Window, launched, sign_in
from tests.conftest import start_valkey, stop


@dataclass(slots=True, kw_only=True)
class Site:
    """A running site. `start` adds a process that ends with it; each process logs to a file of its own in `home`."""

    home: Path
    url: str
    environment: dict[str, str]
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, name: str, *command: str, pass_fds: tuple[int, ...] = ()) -> subprocess.Popen[bytes]:
        with (self.home / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, *command],
                cwd=settings.BASE_DIR,
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=pass_fds,
            )
        self.processes.append(process)
        return process

    def run(self, *command: str) -> None:
        """Runs a command to its end; its output is the error when it fails."""
        done = subprocess.run(
            [sys.executable, *command],
            cwd=settings.BASE_DIR,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def expect_answer(self, path: str) -> None:
        """Waits for the first answer (the socket listens already); a web process that died shows its log."""
        try:
            httpx.get(self.url + path, timeout=60).raise_for_status()
        except httpx.HTTPError as error:
            pytest.fail(f"the web process does not answer: {error!r}\n{(self.home / 'web.log').read_text()[-4000:]}")

    def stop(self) -> None:
        for process in reversed(self.processes):
            stop(process)


@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    home = tmp_path_factory.mktemp("browser-home")
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    port = listener.getsockname()[1]
    environment = {
        **os.environ,
        "DYSERVE_HOME": str(home),
        "DYSERVE_PORT": str(port),
        "DJANGO_SETTINGS_MODULE": "dyserve_site.settings",
        "PYTHONPATH": str(settings.BASE_DIR),
    }
    running = Site(home=home, url=f"http://127.0.0.1:{port}", environment=environment)
    valkey = start_valkey(socket_path(home), home / "valkey")
    try:
        running.run("-m", "tests.browser.seed", "18300")
        web = ("-m", "uvicorn", "dyserve_site.asgi:application", "--ws", "websockets-sansio", "--log-level", "warning")
        running.start("web", *web, "--fd", str(listener.fileno()), pass_fds=(listener.fileno(),))
        plans = ("-m", "celery", "-A", "dyserve_site", "worker", "-Q", "plans", "--pool", "solo", "-l", "WARNING")
        running.start("plans", *plans, "--without-mingle", "--without-gossip", "--without-heartbeat")
        # Only the web process listens now: when it dies, a request is refused instead of waiting for ever.
        listener.close()
        running.expect_answer("/livez")
        yield running
    finally:
        listener.close()
        running.stop()
        stop(valkey)


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    with launched() as browser:
        yield browser


@pytest.fixture(scope="package")
def signed_in(chromium: Browser, site: Site, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cookies of a user who signed in through the page."""
    state = tmp_path_factory.mktemp("browser-state") / "state.json"
    sign_in(chromium, site.url, USER, PASSWORD, state)
    return state


def open_window(chromium: Browser, site: Site, state: Path | None, **options: Any) -> Window:
    return tests.chromium.open_window(chromium, site.url, state, **options)


@pytest.fixture
def page(chromium: Browser, site: Site, signed_in: Path) -> Iterator[Page]:
    """A signed-in page at 1440 x 900; the test fails when anything goes wrong on it."""
    window = open_window(chromium, site, signed_in, viewport={"width": 1440, "height": 900})
    yield window.page
    window.context.close()
    assert window.problems == []


@pytest.fixture
def narrow(chromium: Browser, site: Site, signed_in: Path) -> Iterator[Page]:
    """The same at 400 x 800."""
    window = open_window(chromium, site, signed_in, viewport={"width": 400, "height": 800})
    yield window.page
    window.context.close()
    assert window.problems == []
