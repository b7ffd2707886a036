"""`/livez` and `/readyz`: whether the process lives, and whether everything it needs answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from django.db import DatabaseError, connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe

from dyserve_site.callers import is_local, may_see_figures
from dyserve_site.celery import app as celery_app
from fleet.common.threads import in_thread
from fleet.errors import NoDefaultFleet
from fleet.redis import REDIS_ERRORS, WORKER_KEY, monitor_age_s
from fleet.redis import connection as redis_connection
from fleet.selectors import default_fleet, pressure
from planner.outbox import BROKER_ERRORS

CHECK_TIMEOUT_S = 3.0
MONITOR_STALE_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing the instance needs. A failed one names the remedy."""

    name: str
    ok: bool
    detail: str = ""
    remedy: str = ""

    def to_json(self, *, detailed: bool) -> dict[str, Any]:
        """Details may name hosts: they are for operators alone."""
        data: dict[str, Any] = {"name": self.name, "ok": self.ok}
        if detailed:
            data["detail"] = self.detail
        if not self.ok:
            data["remedy"] = self.remedy
        return data


@require_safe
def livez(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"status": "alive"})


async def readyz(request: HttpRequest) -> HttpResponse:
    """200 when every check passed, else 503; the same JSON either way."""
    checks = await asyncio.gather(*(_timed(name, check) for name, check in CHECKS.items()))
    ready = all(check.ok for check in checks)
    # A token is looked up in the database, which may be what is down: then nobody but this machine sees details.
    detailed = is_local(request) or (ready and await in_thread(may_see_figures, request))
    body = {
        "status": "ready" if ready else "not ready",
        "checks": [check.to_json(detailed=detailed) for check in checks],
    }
    return JsonResponse(body, status=200 if ready else 503, headers={"Cache-Control": "no-store"})


async def _timed(name: str, check: Callable[[], Check]) -> Check:
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_S):
            return await in_thread(check)
    except TimeoutError:
        detail = f"no answer within {CHECK_TIMEOUT_S:g} s"
        return Check(name=name, ok=False, detail=detail, remedy="See the log of the process behind it.")


# --- The checks: each answers, none raises for what it checks --------------------------------------------------------


def database() -> Check:
    remedy = "Check DATABASE_URL and that the server runs."
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            cursor.fetchone()
    except DatabaseError as error:
        return Check(name="database", ok=False, detail=_first_line(error), remedy=remedy)
    return Check(name="database", ok=True, detail=connection.vendor)


def migrations() -> Check:
    try:
        missing = sorted(_known_migrations() - set(MigrationRecorder(connection).applied_migrations()))
    except DatabaseError as error:
        return Check(name="migrations", ok=False, detail=_first_line(error), remedy="Run `manage.py migrate`.")
    if missing:
        names = ", ".join(f"{app}.{name}" for app, name in missing[:5])
        return Check(name="migrations", ok=False, detail=f"not applied: {names}", remedy="Run `manage.py migrate`.")
    return Check(name="migrations", ok=True, detail="all applied")


@lru_cache(maxsize=1)
def _known_migrations() -> frozenset[tuple[str, str]]:
    """Read from the files once: they do not change under a running process."""
    return frozenset(MigrationLoader(None, ignore_no_migrations=True).disk_migrations)


def redis() -> Check:
    try:
        redis_connection().ping()
    except REDIS_ERRORS as error:
        remedy = "Check REDIS_URL and that the server runs."
        return Check(name="redis", ok=False, detail=_first_line(error), remedy=remedy)
    return Check(name="redis", ok=True)


def broker() -> Check:
    """The broker takes messages. Workers show themselves under `workers`."""
    try:
        with celery_app.connection_for_write() as broker_connection:
            broker_connection.ensure_connection(max_retries=1, interval_start=0, timeout=round(CHECK_TIMEOUT_S))
    except BROKER_ERRORS as error:
        remedy = "Check REDIS_URL and that the server runs."
        return Check(name="broker", ok=False, detail=_first_line(error), remedy=remedy)
    return Check(name="broker", ok=True)


def workers() -> Check:
    """A runs worker beats, so that accepted runs are taken."""
    remedy = "Start one: `celery -A dyserve_site worker --pool threads -Q runs`."
    try:
        alive = sum(1 for _ in redis_connection().scan_iter(match=WORKER_KEY + "*", count=1000))
    except REDIS_ERRORS as error:
        return Check(name="workers", ok=False, detail=_first_line(error), remedy="Check Redis first.")
    return Check(name="workers", ok=alive > 0, detail=f"{alive} alive", remedy=remedy)


def monitor() -> Check:
    remedy = "Start one: `manage.py monitor`."
    try:
        age_s = monitor_age_s(time.time())
    except REDIS_ERRORS as error:
        return Check(name="monitor", ok=False, detail=_first_line(error), remedy="Check Redis first.")
    if age_s is None:
        return Check(name="monitor", ok=False, detail="no heartbeat", remedy=remedy)
    fresh = age_s < MONITOR_STALE_S
    return Check(name="monitor", ok=fresh, detail=f"last heartbeat {age_s:.1f} s ago", remedy=remedy)


def backend() -> Check:
    """At least one replica of the default fleet can take a call now."""
    remedy = "Start the servers, or enable replicas on the fleet page."
    try:
        published = pressure(default_fleet())
    except (NoDefaultFleet, DatabaseError) as error:
        return Check(name="backend", ok=False, detail=_first_line(error), remedy="Seed or register a fleet.")
    if published is None:
        return Check(name="backend", ok=False, detail="no pressure is published", remedy="Start the monitor.")
    healthy = [item.replica for item in published.replicas if item.state == "ok"]
    detail = f"{len(healthy)} of {len(published.replicas)} replicas healthy"
    return Check(name="backend", ok=bool(healthy), detail=detail, remedy=remedy)


CHECKS: dict[str, Callable[[], Check]] = {
    check.__name__: check for check in (database, migrations, redis, broker, workers, monitor, backend)
}


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
