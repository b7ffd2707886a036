"""Enqueues what nobody works on: the broker may lose a message and a worker may die, the database decides.

Runs in the monitor every two seconds. A run that is enqueued twice does no harm: one claim succeeds.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from django.db.models import F, Q

from planner.outbox import BROKER_ERRORS
from runtime import composition, leases
from runtime.database import DATABASE_ERRORS, database_now
from runtime.engine.events import RunState
from runtime.models import Run
from runtime.publisher import Enqueue

logger = logging.getLogger(__name__)

CLAIMABLE = (RunState.QUEUED, RunState.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaperSettings:
    """`accepted_s`: what the publisher gets to enqueue an accepted run; `unclaimed_s`: what the broker gets then,
    longer by as much with every time that it was sent again."""

    lease_s: float
    accepted_s: float = 2.0
    unclaimed_s: float = 30.0
    housekeeping_s: float = 600.0
    batch: int = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What one pass enqueued; `skipped`: the reaper itself had been away for longer than a lease."""

    runs: tuple[str, ...] = ()
    bundles: int = 0
    skipped: bool = False


class Reaper:
    """`clock` is monotonic, seconds. The callables send to the broker and raise its errors."""

    def __init__(
        self,
        *,
        settings: ReaperSettings,
        enqueue: Enqueue,
        requeue_bundles: Callable[[], int],
        housekeeping: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings, self._clock = settings, clock
        self._enqueue, self._requeue_bundles, self._housekeeping = enqueue, requeue_bundles, housekeeping
        self._succeeded_at: float | None = None
        self._cleaned_at: float | None = None

    def sweep(self) -> Sweep:
        """One pass. Raises the database's errors; a broker that is away costs the pass nothing."""
        now, database_time = self._clock(), database_now()
        away = self._succeeded_at is not None and now - self._succeeded_at > self._settings.lease_s
        self._succeeded_at = now
        if away:
            # After an outage of the database every lease looks expired; workers get the time to renew theirs.
            logger.warning("the reaper was away for longer than a lease and skips one pass")
            return Sweep(skipped=True)
        try:
            runs = self._requeue_runs(database_time)
            bundles = self._requeue_bundles()
            self._schedule_housekeeping(now)
        except BROKER_ERRORS as error:
            logger.warning("the broker is away: %s", error)
            return Sweep()
        return Sweep(runs=tuple(runs), bundles=bundles)

    def _requeue_runs(self, now: float) -> list[str]:
        sent: list[str] = []
        try:
            for run_id in unclaimed(now, self._settings):
                self._enqueue(run_id)
                sent.append(run_id)
        finally:
            mark_requeued(sent, now)
        if sent:
            logger.info("enqueued %d runs that nobody worked on", len(sent))
        return sent

    def _schedule_housekeeping(self, now: float) -> None:
        if self._cleaned_at is None or now - self._cleaned_at >= self._settings.housekeeping_s:
            self._housekeeping()
            self._cleaned_at = now


def unclaimed(now: float, settings: ReaperSettings) -> list[str]:
    """Runs that should be enqueued, oldest first; `now` is the database's clock."""
    expired = Q(lease_expires_at__lt=now)
    accepted_before = datetime.fromtimestamp(now - settings.accepted_s, tz=UTC)
    never_enqueued = Q(enqueued_at__isnull=True, accepted_at__lt=accepted_before)
    # Later every time: behind busy workers a run waits in the broker for long, and a copy a pass would fill it.
    never_claimed = Q(enqueued_at__lt=now - settings.unclaimed_s * (F("enqueues") + 1))
    free = Q(lease_expires_at__isnull=True)
    runs = Run.objects.filter(expired | (free & (never_enqueued | never_claimed)), state__in=CLAIMABLE)
    return list(runs.order_by("pk").values_list("pk", flat=True)[: settings.batch])


def mark_requeued(run_ids: Sequence[str], now: float) -> None:
    """Expired leases end here, so that the next pass leaves these runs to the broker; new leases stay."""
    owned_again = Q(lease_expires_at__gte=now)
    Run.objects.filter(pk__in=run_ids).exclude(owned_again).update(
        enqueued_at=now, enqueues=F("enqueues") + 1, lease_owner="", lease_expires_at=None
    )


def sweep() -> None:
    """One pass of this process's reaper, for the monitor; a database that is away is left for the next pass."""
    try:
        composition.reaper().sweep()
    except DATABASE_ERRORS as error:
        logger.warning("the reaper cannot reach the database: %s", error)


def expire_leases(pid: int) -> int:
    """End the leases of a worker process of this host that was seen to die; how many runs that freed."""
    return leases.expire(leases.worker_prefix(pid))
