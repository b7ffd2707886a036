"""`doctor`: what is missing or wrong on this machine, and the remedy. Needs no database, server or Redis to run."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import httpx
import redis
from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor

from dyserve_site.supervisor.main import base_url, topology
from dyserve_site.supervisor.ports import taken

Status = Literal["ok", "note", "failed"]
MIN_FREE_BYTES = 500 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check. A `note` needs nothing done; a `failed` one names the remedy."""

    name: str
    status: Status
    detail: str
    remedy: str = ""


def examine() -> list[Finding]:
    """Every check in turn; none stops the others."""
    running = _web_answers()
    return [finding for check in _checks(running) for finding in check()]


def _checks(running: bool) -> list[Callable[[], Iterator[Finding]]]:
    return [
        _python,
        _solver,
        _home,
        _secrets,
        _database,
        lambda: _redis(running),
        lambda: _ports(running),
        _deployment,
        _keys,
        _browser,
        lambda: _web(running),
    ]


def _python() -> Iterator[Finding]:
    version = ".".join(str(part) for part in sys.version_info[:3])
    ok = sys.version_info >= (3, 11)
    yield Finding(
        name="Python", status="ok" if ok else "failed", detail=version, remedy="" if ok else "install Python 3.11+"
    )


def _solver() -> Iterator[Finding]:
    import pulp

    found = pulp.listSolvers(onlyAvailable=True)
    ok = "PULP_CBC_CMD" in found
    yield Finding(
        name="CBC solver",
        status="ok" if ok else "failed",
        detail=", ".join(found),
        remedy="" if ok else "install pulp 3.x from the lock: later ones ship no CBC",
    )


def _home() -> Iterator[Finding]:
    home = Path(settings.HOME)
    if not os.access(home, os.W_OK):
        yield Finding(
            name="home",
            status="failed",
            detail=f"{home} is not writable",
            remedy="set DYSERVE_HOME to a folder of yours",
        )
        return
    if stat.S_IMODE(home.stat().st_mode) & 0o077:
        yield Finding(
            name="home",
            status="failed",
            detail=f"others on this machine can read {home}, the database in it included",
            remedy=f"chmod 700 {home}",
        )
    free = shutil.disk_usage(home).free
    yield Finding(
        name="home",
        status="ok" if free >= MIN_FREE_BYTES else "failed",
        detail=f"{home}, {free / 2**30:.1f} GiB free",
        remedy="" if free >= MIN_FREE_BYTES else "free some disk space, or move DYSERVE_HOME",
    )


def _secrets() -> Iterator[Finding]:
    for name in ("secret_key", "admin.json"):
        path = Path(settings.HOME) / name
        if path.exists() and stat.S_IMODE(path.stat().st_mode) & 0o077:
            yield Finding(
                name=name, status="failed", detail="others on this machine can read it", remedy=f"chmod 600 {path}"
            )
        elif path.exists():
            yield Finding(name=name, status="ok", detail="readable by its owner alone")


def _database() -> Iterator[Finding]:
    vendor = connection.vendor
    if vendor == "sqlite" and not Path(settings.DATABASES["default"]["NAME"]).exists():
        yield Finding(name="database", status="note", detail="not made yet", remedy="make up")
        return
    try:
        executor = MigrationExecutor(connection)
        pending = executor.migration_plan(executor.loader.graph.leaf_nodes())
    except DatabaseError as error:
        yield Finding(name="database", status="failed", detail=str(error).strip(), remedy="check DATABASE_URL")
        return
    finally:
        connection.close()
    if pending:
        yield Finding(
            name="database",
            status="failed",
            detail=f"{vendor}, {len(pending)} migrations not applied",
            remedy="manage.py migrate",
        )
    else:
        yield Finding(name="database", status="ok", detail=f"{vendor}, migrated")


def _redis(running: bool) -> Iterator[Finding]:
    embedded = settings.EMBEDDED_REDIS_SOCKET is not None
    client = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=2, socket_connect_timeout=2)
    try:
        client.ping()
        yield Finding(name="Redis", status="ok", detail="embedded Valkey" if embedded else "REDIS_URL answers")
    except redis.RedisError as error:
        if embedded and not running:
            yield Finding(name="Redis", status="note", detail="embedded, not started", remedy="make up starts it")
        else:
            yield Finding(
                name="Redis",
                status="failed",
                detail=str(error),
                remedy="restart `make up`" if embedded else "start the server that REDIS_URL names, or unset it",
            )
    finally:
        client.close()


def _ports(running: bool) -> Iterator[Finding]:
    if running:
        return
    where = topology()
    for host, ports, variable in (
        (where.host, (where.port,), "DYSERVE_PORT"),
        ("127.0.0.1", where.emulator_ports, "DYSERVE_EMULATOR_PORT"),
    ):
        busy = ", ".join(str(port) for port in taken(host, ports))
        yield Finding(
            name=variable,
            status="failed" if busy else "ok",
            detail=f"{busy} in use by another program" if busy else ", ".join(str(port) for port in ports) + " free",
            remedy=f"stop it, or set {variable}" if busy else "",
        )


def _deployment() -> Iterator[Finding]:
    """Beyond loopback the defaults are not enough."""
    local = settings.HOST in ("127.0.0.1", "::1", "localhost")
    if local:
        yield Finding(name="exposure", status="ok", detail="loopback only")
    elif not settings.HTTPS:
        yield Finding(
            name="exposure",
            status="failed",
            detail=f"listens on {settings.HOST} without TLS",
            remedy="put a TLS proxy before it and set DYSERVE_HTTPS=1 and DYSERVE_ALLOWED_HOSTS",
        )
    else:
        yield Finding(name="exposure", status="ok", detail=f"{settings.HOST}, behind TLS")


def _keys() -> Iterator[Finding]:
    """Replicas name the environment variables that hold their keys; a missing one fails every call."""
    from fleet.models import Replica

    try:
        names = set(Replica.objects.exclude(api_key_env="").values_list("api_key_env", flat=True))
    except DatabaseError:
        return
    finally:
        connection.close()
    for name in sorted(names):
        if not os.environ.get(name):
            yield Finding(name=name, status="failed", detail="a replica's key is not set", remedy=f"export {name}=...")


def _browser() -> Iterator[Finding]:
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    yield Finding(
        name="Chromium",
        status="ok" if found else "note",
        detail=found or "not installed; only the browser tests need it",
        remedy="" if found else "make test as root, or install chromium",
    )


def _web_answers() -> bool:
    try:
        return httpx.get(f"{base_url(topology())}/livez", timeout=2.0, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def _web(running: bool) -> Iterator[Finding]:
    if not running:
        yield Finding(name="web", status="note", detail="not running", remedy="make up")
        return
    url = f"{base_url(topology())}/readyz"
    try:
        checks = httpx.get(url, timeout=10.0, trust_env=False).json()["checks"]
    except (httpx.HTTPError, ValueError, KeyError) as error:  # the last two: another program listens there
        yield Finding(
            name="web", status="failed", detail=f"/readyz: {error}", remedy="read the log in DYSERVE_HOME/log"
        )
        return
    for check in checks:
        yield Finding(
            name=f"ready: {check['name']}",
            status="ok" if check["ok"] else "failed",
            detail=check.get("detail", ""),
            remedy=check.get("remedy", ""),
        )
