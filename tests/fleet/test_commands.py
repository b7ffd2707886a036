"""The fleet's commands as processes: they start, do their work, and stop when told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandError
from pytest_django import Settings

from fleet.emulator.config import EmulatorConfig, to_json
from fleet.management.commands.monitor import holder, load_hooks
from tests.fleet.emulated import replica

HOOKS_CALLED: list[str] = []


def hook() -> None:
    HOOKS_CALLED.append("hook")


@contextmanager
def started(*arguments: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, str(Path(settings.BASE_DIR) / "manage.py"), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def line_with(process: subprocess.Popen[str], stream: str, text: str) -> str:
    """The first line of a stream that holds `text`; fails when the process ends without one."""
    seen: list[str] = []
    for line in getattr(process, stream):
        if text in line:
            return str(line)
        seen.append(line)
    raise AssertionError(f"no {text!r} in {''.join(seen)}")


@pytest.mark.process
def test_monitor_leads_and_stops_on_sigterm(valkey: str, tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path}/fleet.sqlite3"
    with started("migrate", "-v", "0", DATABASE_URL=database) as migrate:
        assert migrate.wait(timeout=120) == 0
    with started("monitor", REDIS_URL=valkey, DATABASE_URL=database) as monitor:
        line_with(monitor, "stderr", " leads")
        monitor.send_signal(signal.SIGTERM)
        assert monitor.wait(timeout=30) == 0


@pytest.mark.process
def test_emulate_serves_the_configuration_of_the_home(tmp_path: Path) -> None:
    config = EmulatorConfig(replicas=(replica("9b-0"),))
    (tmp_path / "emulator.json").write_text(json.dumps(to_json(config)))
    with started("emulate", DYSERVE_HOME=str(tmp_path)) as emulator:
        assert set(json.loads(line_with(emulator, "stdout", "ready"))["ready"]) == {"9b-0"}
        emulator.send_signal(signal.SIGTERM)
        assert emulator.wait(timeout=30) == 0


def test_emulate_refuses_a_missing_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        call_command("emulate", str(tmp_path / "nothing.json"))
    assert ended.value.code == 2
    assert "cannot read" in capsys.readouterr().err


def test_two_monitors_are_never_one_holder_even_in_containers_that_share_host_and_number() -> None:
    assert holder() != holder()


# --- Hooks ---


def test_hooks_are_named_by_the_settings(settings: Settings) -> None:
    settings.DYSERVE_MONITOR_HOOKS = ["tests.fleet.test_commands.hook"]
    hooks = load_hooks()
    hooks["tests.fleet.test_commands.hook"]()
    assert HOOKS_CALLED == ["hook"]


def test_a_hook_that_does_not_exist_is_an_error(settings: Settings) -> None:
    settings.DYSERVE_MONITOR_HOOKS = ["tests.nowhere.hook"]
    with pytest.raises(CommandError, match="DYSERVE_MONITOR_HOOKS"):
        load_hooks()
