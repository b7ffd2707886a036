"""The supervisor with real processes: crashes are named and restarted, nothing outlives a stop."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import sys
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest

from dyserve_site.supervisor import supervisor as module
from dyserve_site.supervisor.children import ChildSpec
from dyserve_site.supervisor.supervisor import Log, Supervisor


class Recorder:
    """The log as a list; `until` waits for a line that contains a text."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []
        self.crashes: list[str] = []
        self._changed = asyncio.Event()

    def log(self, name: str, line: str) -> None:
        self.lines.append((name, line))
        self._changed.set()

    def crashed(self, name: str, pid: int) -> None:
        self.crashes.append(name)

    async def until(self, text: str, count: int = 1) -> list[str]:
        while True:
            found = [line for _, line in self.lines if text in line]
            if len(found) >= count:
                return found
            self._changed.clear()
            await self._changed.wait()


def script(name: str, code: str, order: int = 1) -> ChildSpec:
    return ChildSpec(name=name, argv=(sys.executable, "-c", code), order=order)


STEADY = "import time; print('steady', flush=True); time.sleep(600)"
FORKING = (
    "import subprocess, sys, time\n"
    "grandchild = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    "print('grandchild', grandchild.pid, flush=True)\n"
    "time.sleep(600)\n"
)
DEAF = (
    "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('deaf', flush=True)\ntime.sleep(600)\n"
)


@pytest.fixture
def fast_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_BACKOFF_S", 0.01)


async def test_a_crash_is_named_with_its_last_lines_and_restarted(fast_backoff: None) -> None:
    seen = Recorder()
    supervisor = Supervisor(
        [script("broken", "print('the reason'); raise SystemExit(3)")], log=seen.log, on_crash=seen.crashed
    )
    await supervisor.start()
    messages = await seen.until("ended with exit code 3; restarting it", count=2)
    await supervisor.stop()
    assert messages[0].startswith("broken (pid ")
    assert ("up", "    the reason") in seen.lines
    assert seen.crashes[:2] == ["broken", "broken"]


async def test_a_killed_child_is_restarted(fast_backoff: None) -> None:
    seen = Recorder()
    supervisor = Supervisor([script("web", STEADY)], log=seen.log, on_crash=seen.crashed)
    await supervisor.start()
    await seen.until("steady")
    first = supervisor.children[0].process
    assert first is not None
    os.kill(first.pid, signal.SIGKILL)
    await seen.until("steady", count=2)
    assert any("was killed by signal 9" in line for _, line in seen.lines)
    await supervisor.stop()


async def test_stop_leaves_no_process_not_even_forks_or_the_deaf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GRACE_S", 0.3)
    seen = Recorder()
    supervisor = Supervisor(
        [script("forking", FORKING), script("deaf", DEAF), script("last", STEADY, order=0)],
        log=seen.log,
        on_crash=seen.crashed,
    )
    await supervisor.start()
    grandchild = int((await seen.until("grandchild"))[0].split()[1])
    await seen.until("deaf")
    await seen.until("steady")
    pids = [child.process.pid for child in supervisor.children if child.process] + [grandchild]
    await supervisor.stop()
    for pid in pids:
        with suppress(psutil.NoSuchProcess):  # killed; at most waiting to be reaped by init
            process = psutil.Process(pid)
            process.wait(timeout=5)
    assert not [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie"]
    assert seen.crashes == []


async def test_what_others_depend_on_stops_last(tmp_path: Path) -> None:
    order = tmp_path / "order"
    farewell = (
        "import signal, sys, time\n"
        f"def leave(*_):\n    open({str(order)!r}, 'a').write(sys.argv[1] + ' '); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, leave)\nprint('ready', flush=True)\ntime.sleep(600)\n"
    )
    seen = Recorder()
    specs = [
        ChildSpec(name=name, argv=(sys.executable, "-c", farewell, name), order=number)
        for name, number in (("valkey", 0), ("web", 2))
    ]
    supervisor = Supervisor(specs, log=seen.log, on_crash=seen.crashed)
    await supervisor.start()
    await seen.until("ready", count=2)
    await supervisor.stop()
    assert order.read_text() == "web valkey "


async def test_a_line_without_end_does_not_stop_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LINE_LIMIT", 1024)
    seen = Recorder()
    code = "import time; print('x' * 5000); print('after', flush=True); time.sleep(600)"
    supervisor = Supervisor([script("chatty", code)], log=seen.log, on_crash=seen.crashed)
    await supervisor.start()
    await seen.until("after")
    await supervisor.stop()
    assert all(len(line) < 5000 for _, line in seen.lines)


class GoneTerminal(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


async def test_a_terminal_that_is_gone_blocks_no_child(tmp_path: Path) -> None:
    """A child whose lines nobody reads blocks as soon as its pipe is full."""
    done = tmp_path / "done"
    code = (
        "import pathlib, sys, time; sys.stdout.write('x' * 99 + '\\n'); sys.stdout.write(('y' * 99 + '\\n') * 20000); "
        f"sys.stdout.flush(); pathlib.Path({str(done)!r}).touch(); time.sleep(600)"
    )
    with closing(Log(GoneTerminal(), tmp_path / "a.log")) as log:
        supervisor = Supervisor([script("chatty", code)], log=log, on_crash=lambda *_: None)
        await supervisor.start()
        while not done.exists():  # noqa: ASYNC110  # another process makes it
            await asyncio.sleep(0.01)
        await supervisor.stop()
    assert "y" * 99 in (tmp_path / "a.log").read_text()


def test_a_log_beyond_its_size_is_started_anew_and_the_last_one_kept(tmp_path: Path) -> None:
    with closing(Log(None, tmp_path / "dyserve.log", max_bytes=100)) as log:
        for index in range(20):
            log("web", f"line {index:02d} " + "." * 20)
    kept, present = (tmp_path / "dyserve.1.log").read_text(), (tmp_path / "dyserve.log").read_text()
    assert "line 19" in present
    assert all(len(text) < 200 for text in (kept, present))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dyserve.1.log", "dyserve.log"]
