"""Figures of a user's runs over the last minutes: what ended, how many in time, how fast (ours)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db.models import Count, Q, QuerySet

from runtime.engine.events import RunState
from runtime.models import LedgerEntry, Run
from runtime.selectors import runs_for

WINDOW_S = 900.0
MAX_LATENCIES = 5000
"""Percentiles are of the newest so many runs: a figure on a page must not read a day's table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentStats:
    """`attained` of `with_deadline` runs succeeded before their deadline; cancelled runs count in neither.

    Latencies are seconds from acceptance to the end of the runs that succeeded; None without any.
    """

    running: int
    queued: int
    succeeded: int
    failed: int
    cancelled: int
    with_deadline: int
    attained: int
    switches: int
    p50_s: float | None
    p95_s: float | None

    @property
    def attainment(self) -> float | None:
        return self.attained / self.with_deadline if self.with_deadline else None

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__} | {"attainment": self.attainment}


def recent_stats(user: AbstractBaseUser, now: float, window_s: float = WINDOW_S) -> RecentStats:
    """Runs that are active now, and those that ended within the window; three queries."""
    runs = runs_for(user).order_by()
    ended = runs.filter(finished_at__gte=now - window_s)
    latencies = _latencies(ended)
    return RecentStats(
        **_active(runs),
        **_ended(ended),
        switches=LedgerEntry.objects.filter(
            run__owner_id=user.pk, to_variant__isnull=False, at__gte=now - window_s
        ).count(),
        p50_s=percentile(latencies, 0.5),
        p95_s=percentile(latencies, 0.95),
    )


def percentile(values: Sequence[float], share: float) -> float | None:
    """The nearest-rank percentile: an observed value, never an interpolated one. None without values."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _active(runs: QuerySet[Run]) -> dict[str, int]:
    counted = runs.filter(state__in=(RunState.QUEUED, RunState.RUNNING)).values_list("state")
    found = dict(counted.annotate(count=Count("pk")))
    return {"running": found.get(RunState.RUNNING, 0), "queued": found.get(RunState.QUEUED, 0)}


def _ended(ended: QuerySet[Run]) -> dict[str, int]:
    judged = Q(deadline_s__isnull=False) & ~Q(state=RunState.CANCELLED)
    found: dict[str, int] = ended.aggregate(
        succeeded=Count("pk", filter=Q(state=RunState.SUCCEEDED)),
        failed=Count("pk", filter=Q(state=RunState.FAILED)),
        cancelled=Count("pk", filter=Q(state=RunState.CANCELLED)),
        with_deadline=Count("pk", filter=judged),
        attained=Count("pk", filter=judged & Q(state=RunState.SUCCEEDED, late=False)),
    )
    return found


def _latencies(ended: QuerySet[Run]) -> list[float]:
    rows = ended.filter(state=RunState.SUCCEEDED).order_by("-finished_at").values_list("accepted_at", "finished_at")
    return [end - accepted.timestamp() for accepted, end in rows[:MAX_LATENCIES] if end is not None]


def totals(runs: QuerySet[Run]) -> dict[str, int]:
    """Runs per state, with `all`."""
    counted = dict(runs.order_by().values_list("state").annotate(count=Count("pk")))
    per_state = {state.value: counted.get(state.value, 0) for state in RunState}
    return {"all": sum(per_state.values())} | per_state
