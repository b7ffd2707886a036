"""Which processes one machine runs, and how each is started (DESIGN.md, Processes)."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dyserve_site.supervisor import valkey

WEB_CONNECTIONS = "16"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """One process. `order`: lower ones start first and stop last. `nice`: added to the supervisor's own."""

    name: str
    argv: tuple[str, ...]
    order: int
    nice: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)
    ports: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """What `children` needs of the settings. `socket` is None when REDIS_URL names a server of the user's own."""

    home: Path
    manage: Path
    host: str
    port: int
    socket: Path | None
    emulator_ports: tuple[int, ...]
    run_threads: int


def children(topology: Topology) -> tuple[ChildSpec, ...]:
    """In starting order: Valkey, the emulated fleet, monitor, workers, web."""
    found = [_emulator(topology), _monitor(topology), *_workers(topology), _web(topology)]
    if topology.socket is not None:
        found.insert(0, _valkey(topology.socket, topology.home / "valkey"))
    return tuple(found)


def _python(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, *arguments)


def _valkey(socket: Path, data: Path) -> ChildSpec:
    return ChildSpec(name="valkey", argv=tuple(valkey.command(socket, data)), order=0)


def _emulator(topology: Topology) -> ChildSpec:
    return ChildSpec(
        name="emulator",
        argv=_python("-m", "fleet.emulator", str(topology.home / "emulator.json")),
        order=1,
        ports=topology.emulator_ports,
    )


def _monitor(topology: Topology) -> ChildSpec:
    return ChildSpec(name="monitor", argv=_python(str(topology.manage), "monitor"), order=2)


def _workers(topology: Topology) -> list[ChildSpec]:
    """The runs worker blocks a thread per run; plans and jobs fork, since solving and reports hold the interpreter."""
    return [
        _celery("runs", order=2, pool="threads", concurrency=topology.run_threads),
        _celery("plans", order=2, pool="prefork", concurrency=1, nice=5),
        _celery("jobs", order=2, pool="prefork", concurrency=1, nice=15),
    ]


def _celery(queue: str, *, order: int, pool: str, concurrency: int, nice: int = 0) -> ChildSpec:
    quiet = ("--without-mingle", "--without-gossip", "--without-heartbeat")
    options = ("-Q", queue, "-n", f"{queue}@%h", "--pool", pool, "-c", str(concurrency), "-l", "INFO", *quiet)
    return ChildSpec(
        name=queue,
        argv=_python("-m", "celery", "--quiet", "-A", "dyserve_site", "worker", *options),
        order=order,
        nice=nice,
    )


def _web(topology: Topology) -> ChildSpec:
    """With DATABASE_URL its connections come from a pool; a size that the environment gives stays."""
    options = ("--ws", "websockets-sansio", "--timeout-graceful-shutdown", "2", "--no-access-log", "--lifespan", "on")
    return ChildSpec(
        name="web",
        argv=_python(
            "-m",
            "uvicorn",
            "dyserve_site.asgi:application",
            *("--host", topology.host, "--port", str(topology.port)),
            *("--log-config", str(Path(__file__).parent / "uvicorn-log.json")),
            *options,
        ),
        order=2,
        environment={"DYSERVE_DATABASE_POOL": os.environ.get("DYSERVE_DATABASE_POOL", WEB_CONNECTIONS)},
        ports=(topology.port,),
    )
