"""`up`, from checking the ports to stopping the last process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TextIO

from django.conf import settings

from dyserve_site import env
from dyserve_site.supervisor.children import Topology, children
from dyserve_site.supervisor.credentials import Credentials
from dyserve_site.supervisor.ports import EMULATED_REPLICAS, HomeLock, emulator_base, taken
from dyserve_site.supervisor.ready import wait_ready
from dyserve_site.supervisor.supervisor import Log, Supervisor

READY_TIMEOUT_S = 120.0
_COLOURS = {
    "up": "1;36",
    "web": "32",
    "runs": "35",
    "plans": "34",
    "jobs": "90",
    "monitor": "33",
    "emulator": "90",
    "valkey": "90",
}


class UpFailed(Exception):
    """Nothing was started, or what was started is stopped again; the message names the cause and the remedy."""


def topology() -> Topology:
    base = emulator_base(settings.PORT, env.integer("DYSERVE_EMULATOR_PORT", 0, low=0, high=65000) or None)
    return Topology(
        home=Path(settings.HOME),
        manage=Path(settings.BASE_DIR) / "manage.py",
        host=settings.HOST,
        port=settings.PORT,
        socket=settings.EMBEDDED_REDIS_SOCKET,
        emulator_ports=tuple(base + index for index in range(EMULATED_REPLICAS)),
        run_threads=settings.RUNS_PER_WORKER,
    )


def check_ports(where: Topology) -> None:
    """Raises UpFailed naming each port that is in use and the variable that moves it."""
    if taken(where.host, [where.port]):
        raise UpFailed(f"port {where.port} is in use; stop what listens there or set DYSERVE_PORT to another port")
    busy = taken("127.0.0.1", where.emulator_ports)
    if busy:
        listed = ", ".join(str(port) for port in busy)
        raise UpFailed(
            f"port {listed} of the emulated fleet is in use; stop what listens there or set DYSERVE_EMULATOR_PORT "
            f"to the first of {len(where.emulator_ports)} free ports"
        )


def base_url(where: Topology) -> str:
    """What to open in a browser; a wildcard address is reached over loopback."""
    return f"http://{env.host_name(where.host)}:{where.port}"


@contextmanager
def _only_instance(home: Path) -> Iterator[None]:
    lock = HomeLock(home)
    holder = lock.take()
    if holder is not None:
        raise UpFailed(
            f"another `up` (pid {holder or 'unknown'}) runs on {home}; stop it or set DYSERVE_HOME to another folder"
        )
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _log(home: Path, stream: TextIO | None) -> Iterator[Log]:
    folder = home / "log"
    folder.mkdir(mode=0o700, exist_ok=True)
    with closing(Log(stream, folder / "dyserve.log", _COLOURS if stream and stream.isatty() else None)) as log:
        yield log


def up(*, quiet: bool) -> int:
    """Runs until SIGINT or SIGTERM. `quiet` keeps the children's lines in the log file alone. Raises UpFailed."""
    where = topology()
    with _only_instance(where.home), _log(where.home, None if quiet else sys.stderr) as log:
        check_ports(where)
        return asyncio.run(_up(where, log))


async def _up(where: Topology, log: Log) -> int:
    started = time.monotonic()
    loop = asyncio.get_running_loop()
    crashes: set[asyncio.Task[None]] = set()

    def on_crash(name: str, pid: int) -> None:
        if name == "runs":
            task = loop.create_task(asyncio.to_thread(_give_up_leases, pid, log))
            crashes.add(task)
            task.add_done_callback(crashes.discard)

    supervisor = Supervisor(children(where), log=log, on_crash=on_crash)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, supervisor.request_stop)
    try:
        starting = asyncio.create_task(_start(supervisor, where, log))
        stopping = asyncio.create_task(supervisor.wait_stop())
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            _announce(where, _result(starting), time.monotonic() - started)
            await stopping
        else:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
        log("up", "stopping")
        return 0
    finally:
        (where.home / "up.json").unlink(missing_ok=True)
        await supervisor.stop()
        log("up", "stopped")


async def _start(supervisor: Supervisor, where: Topology, log: Log) -> Credentials:
    """Brings everything up in dependency order; raises UpFailed when /readyz does not turn green."""
    await supervisor.start(["valkey"])
    # In processes of their own: the supervisor stays small, and none of their modules live on in it.
    async with asyncio.TaskGroup() as group:
        group.create_task(_manage(where, "collectstatic", "--noinput", "-v", "0", DYSERVE_COLLECT="1"))
        preparing = group.create_task(_manage(where, "prepare", "--base-port", str(where.emulator_ports[0])))
    credentials = Credentials.from_json(preparing.result().splitlines()[-1])
    await supervisor.start()
    readiness = await wait_ready(base_url(where), READY_TIMEOUT_S)
    if not readiness.ready:
        missing = "; ".join(readiness.missing) or "no answer from the web process"
        raise UpFailed(f"not ready after {READY_TIMEOUT_S:.0f} s ({missing}); see {where.home / 'log' / 'dyserve.log'}")
    log("up", "ready")
    return credentials


def _result(starting: asyncio.Task[Credentials]) -> Credentials:
    """Raises the UpFailed that a task group wrapped."""
    try:
        return starting.result()
    except ExceptionGroup as group:
        raise group.exceptions[0] from None


async def _manage(where: Topology, *arguments: str, **environment: str) -> str:
    """Runs a management command and returns its stdout; raises UpFailed with what it said on stderr."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(where.manage), *arguments),
        env={**os.environ, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        output, errors = await process.communicate()
    finally:
        if process.returncode is None:  # stopped meanwhile
            process.kill()
    if process.returncode:
        raise UpFailed(f"{arguments[0]} failed: {errors.decode('utf-8', 'replace').strip()}")
    return output.decode("utf-8")


def _give_up_leases(pid: int, log: Log) -> None:
    """A worker that was seen to die holds no run any more: another takes them over without waiting for the lease."""
    # Only now: a supervisor that sees no crash loads nothing of the runtime.
    from runtime.reaper import expire_leases

    count = expire_leases(pid)
    log("up", f"expired the leases of {count} runs of the dead worker")


def _announce(where: Topology, credentials: Credentials, seconds: float) -> None:
    url = base_url(where)
    lines = [f"dyserve is ready at {url}  ({seconds:.1f} s)"]
    if credentials.current:
        lines.append(f"  login      {credentials.username} / {credentials.password}")
    else:
        lines.append(f"  login      {credentials.username} (the password was changed)")
    if credentials.token:
        lines.append(f"  API token  {credentials.token}")
    lines += [
        f"  API docs   {url}/api/v1/docs",
        f"  fleet      emulated H200s, time x {settings.EMULATOR_TIME_SCALE:g}: a model's figures, not measurements",
        f"  data, log  {where.home}",
        "  Ctrl-C stops everything.",
    ]
    sys.stdout.write("\n" + "\n".join(lines) + "\n\n")
    sys.stdout.flush()
    state = {"url": url, "pid": os.getpid(), "seconds": round(seconds, 2)}
    scratch = where.home / ".up.json"
    scratch.write_text(json.dumps(state), encoding="utf-8")
    scratch.replace(where.home / "up.json")  # in one step: whoever waits for it reads all of it
