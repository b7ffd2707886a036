"""Ports: which ones an instance uses, and whether they are free, before anything starts."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterable
from pathlib import Path

EMULATED_REPLICAS = 5
"""Ports that the demo fleet takes, one a replica; a test holds it to the fleet."""

_FIRST, _SPAN, _EACH = 10_000, 20_000, 8


def emulator_base(port: int, configured: int | None = None) -> int:
    """The first port of the emulated fleet: below the ephemeral range, other for each neighbouring DYSERVE_PORT."""
    return configured if configured is not None else _FIRST + (port * _EACH) % _SPAN


def taken(host: str, ports: Iterable[int]) -> list[int]:
    """The ports that cannot be bound now."""
    return [port for port in ports if not _free(host, port)]


def _free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


class HomeLock:
    """One supervisor a home folder: two would write the same database and socket. The kernel frees it at death."""

    def __init__(self, home: Path) -> None:
        self._path = home / "up.lock"
        self._descriptor: int | None = None

    def take(self) -> int | None:
        """None when taken; else the process id that holds it (0: unknown)."""
        import fcntl

        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            with os.fdopen(descriptor, encoding="ascii") as file:
                text = file.read().strip()
            return int(text) if text.isdigit() else 0
        os.ftruncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode())
        self._descriptor = descriptor
        return None

    def release(self) -> None:
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None
