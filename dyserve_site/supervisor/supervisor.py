"""Starts the children, copies their lines into one log, restarts what crashes with back-off, stops everything."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from dyserve_site.supervisor.children import ChildSpec

FIRST_BACKOFF_S = 0.5
MAX_BACKOFF_S = 30.0
# A child that lived this long is healthy again: its next crash starts with the first back-off.
STEADY_S = 30.0
# All children but Valkey get this long to end by themselves, then Valkey: together below the promised 5 s.
GRACE_S = 3.5
LAST_GRACE_S = 1.0
_LAST_LINES_S = 0.5
_PR_SET_PDEATHSIG = 1
_LINE_LIMIT = 1 << 20
MAX_LOG_BYTES = 50 * 1024 * 1024

CrashHook = Callable[[str, int], None]


@dataclass(slots=True)
class Child:
    """A running (or restarting) process and its last lines, for the message when it crashes."""

    spec: ChildSpec
    process: asyncio.subprocess.Process | None = None
    restarts: int = 0
    last_lines: deque[str] = field(default_factory=lambda: deque(maxlen=15))

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.returncode is None


class Supervisor:
    """`log` gets every line, prefixed with its process; `on_crash(name, pid)` hears of a child that died by itself."""

    def __init__(self, specs: Iterable[ChildSpec], *, log: Callable[[str, str], None], on_crash: CrashHook) -> None:
        self.children = [Child(spec=spec) for spec in specs]
        self._log, self._on_crash = log, on_crash
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, names: Iterable[str] | None = None) -> None:
        """Starts the named children (all: None) that are not running; each is watched from then on."""
        wanted = None if names is None else set(names)
        for child in self.children:
            if not child.running and (wanted is None or child.spec.name in wanted):
                process = await self._spawn(child)
                self._tasks.append(asyncio.create_task(self._watch(child, process), name=f"watch {child.spec.name}"))

    def request_stop(self) -> None:
        self._stopping.set()

    async def wait_stop(self) -> None:
        await self._stopping.wait()

    async def stop(self) -> None:
        """Ends every child, the ones that others depend on last. Leaves no process."""
        self._stopping.set()
        dependants = [child for child in self.children if child.spec.order > 0]
        self._terminate(dependants)
        await self._wait(dependants, GRACE_S)
        for child in dependants:
            if child.running:
                self._log("up", f"{child.spec.name} did not end within {GRACE_S:g} s and is killed")
        self._kill(dependants)
        self._terminate(self.children)
        await self._wait(self.children, LAST_GRACE_S)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # Last, when no watcher can start anything any more.
        self._kill(self.children)

    async def _spawn(self, child: Child) -> asyncio.subprocess.Process:
        spec = child.spec
        process = await asyncio.create_subprocess_exec(
            *spec.argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **spec.environment},
            # Ctrl-C in the terminal reaches the supervisor alone, which stops the children in order.
            start_new_session=True,
            preexec_fn=child_setup(spec.nice),
            limit=_LINE_LIMIT,
        )
        child.process = process
        self._log("up", f"{spec.name} started, pid {process.pid}")
        return process

    async def _watch(self, child: Child, process: asyncio.subprocess.Process) -> None:
        backoff, loop = FIRST_BACKOFF_S, asyncio.get_running_loop()
        while True:
            started = loop.time()
            code = await self._run(child, process)
            if self._stopping.is_set():
                return
            self._report_crash(child, process.pid, code)
            backoff = FIRST_BACKOFF_S if loop.time() - started >= STEADY_S else backoff
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), backoff)
                return
            backoff = min(backoff * 2, MAX_BACKOFF_S)
            child.restarts += 1
            process = await self._spawn(child)

    async def _run(self, child: Child, process: asyncio.subprocess.Process) -> int:
        """Copies the child's lines until it ends; forks of it that keep the pipe open are not waited for."""
        copying = asyncio.create_task(self._copy_lines(child, process), name=f"log {child.spec.name}")
        try:
            code = await process.wait()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(copying), _LAST_LINES_S)
            return code
        finally:
            copying.cancel()

    def _report_crash(self, child: Child, pid: int, code: int) -> None:
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        self._log("up", f"{child.spec.name} (pid {pid}) {how}; restarting it. Its last lines:")
        for line in child.last_lines:
            self._log("up", f"    {line}")
        _kill_group(pid)
        self._on_crash(child.spec.name, pid)

    async def _copy_lines(self, child: Child, process: asyncio.subprocess.Process) -> None:
        if process.stdout is None:
            return
        while True:
            try:
                line = await process.stdout.readline()
            except ValueError:  # a line over the limit: asyncio drops it, the next one is read
                continue
            if not line:
                return
            text = line.decode("utf-8", "replace").rstrip()
            child.last_lines.append(text)
            self._log(child.spec.name, text)

    @staticmethod
    def _terminate(children: Iterable[Child]) -> None:
        for child in children:
            if child.running and child.process is not None:
                with contextlib.suppress(ProcessLookupError):
                    child.process.send_signal(signal.SIGTERM)

    @staticmethod
    async def _wait(children: Iterable[Child], seconds: float) -> None:
        waits = [child.process.wait() for child in children if child.process is not None]
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*waits), seconds)

    @staticmethod
    def _kill(children: Iterable[Child]) -> None:
        """Whole groups: forks and solvers of a child must not outlive it."""
        for child in children:
            if child.process is not None:
                _kill_group(child.process.pid)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def child_setup(nice: int) -> Callable[[], None]:
    """Runs in the child before exec: lower priority; on Linux, end with a supervisor that was killed."""
    libc = ctypes.CDLL(None) if sys.platform.startswith("linux") else None

    def setup() -> None:
        if nice:
            os.nice(nice)
        if libc is not None:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    return setup


class Log:
    """One readable log: `process  line`, on a stream and in a file that is started anew beyond its size.

    A terminal that is gone or a full disk costs lines, never a process: children block when nobody reads theirs.
    """

    def __init__(
        self,
        stream: TextIO | None,
        path: Path,
        colours: Mapping[str, str] | None = None,
        *,
        max_bytes: int = MAX_LOG_BYTES,
    ) -> None:
        self._stream, self._path, self._max_bytes = stream, path, max_bytes
        self._colours = colours or {}
        self._file = path.open("a", encoding="utf-8")

    def __call__(self, name: str, line: str) -> None:
        text = f"{name:<9} {line}\n"
        with contextlib.suppress(OSError):
            self._keep(text)
        if self._stream is not None:
            colour = self._colours.get(name)
            with contextlib.suppress(OSError):
                self._stream.write(f"\x1b[{colour}m{name:<9}\x1b[0m {line}\n" if colour else text)
                self._stream.flush()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()

    def _keep(self, text: str) -> None:
        """The file before is kept as `<name>.1.<suffix>`, the one before that is not."""
        if self._file.tell() > self._max_bytes:
            self._file.close()
            self._path.replace(self._path.with_suffix(f".1{self._path.suffix}"))
            self._file = self._path.open("a", encoding="utf-8")
        self._file.write(text)
        self._file.flush()
