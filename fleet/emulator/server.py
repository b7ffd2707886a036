"""All emulated replicas in one process, one port each (ours)."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import uvicorn

from fleet.emulator.app import EmulatorApp
from fleet.emulator.config import ConfigError, EmulatorConfig, ReplicaConfig
from fleet.emulator.replica import EmulatedReplica

Ready = Callable[[Mapping[str, str]], None]
"""Called once all replicas listen, with their URLs by name."""
GRACE_S = 1
BACKLOG = 2048


class _Server(uvicorn.Server):
    """Leaves signals to `serve`: several servers share one process."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _listen(replica: ReplicaConfig) -> socket.socket:
    """Raises ConfigError that names the replica when its port is taken."""
    family = socket.AF_INET6 if ":" in replica.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((replica.host, replica.port))
    except OSError as error:
        listener.close()
        place = f"{replica.host}:{replica.port}"
        raise ConfigError(f"replica {replica.name}: cannot listen on {place}: {error.strerror}") from error
    listener.listen(BACKLOG)
    listener.setblocking(False)
    return listener


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def serve(config: EmulatorConfig, ready: Ready, *, stop: asyncio.Event | None = None) -> None:
    """Serves every replica until `stop` is set, or SIGINT or SIGTERM arrives when no `stop` is given.

    Stopping breaks what is in flight as a dying vLLM does, and takes at most about GRACE_S seconds. Raises ConfigError
    when a port is taken; nothing is left listening then.
    """
    loop = asyncio.get_running_loop()
    halt = stop or asyncio.Event()
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(contextlib.closing(_listen(item))) for item in config.replicas]
        if stop is None:
            stack.enter_context(_signals(loop, halt))
        replicas = [EmulatedReplica(item, config, loop.time) for item in config.replicas]
        servers = [_server(EmulatorApp(replica)) for replica in replicas]
        async with asyncio.TaskGroup() as group:
            for replica, server, listener in zip(replicas, servers, listeners, strict=True):
                group.create_task(server.serve(sockets=[listener]), name=f"emulator {replica.config.name}")
            ready({item.config.name: _url(listener) for item, listener in zip(replicas, listeners, strict=True)})
            try:
                await halt.wait()
            finally:
                for replica, server in zip(replicas, servers, strict=True):
                    replica.stop()
                    server.should_exit = True


def _server(app: EmulatorApp) -> _Server:
    return _Server(
        uvicorn.Config(
            app,
            lifespan="off",
            ws="none",
            access_log=False,
            log_config=None,
            timeout_graceful_shutdown=GRACE_S,
        )
    )


@contextmanager
def _signals(loop: asyncio.AbstractEventLoop, halt: asyncio.Event) -> Iterator[None]:
    names = (signal.SIGINT, signal.SIGTERM)
    for name in names:
        loop.add_signal_handler(name, halt.set)
    try:
        yield
    finally:
        for name in names:
            loop.remove_signal_handler(name)
