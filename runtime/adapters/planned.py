"""Planned demand of this worker's switched runs (MATH.md, planned(k)), published for all workers with the counters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from runtime.engine.ports import Clock


@dataclass(frozen=True, slots=True)
class _Entry:
    model: str
    calls: int
    until: float


class PlannedBook:
    """`PlannedDemand` of one worker. Belongs to its event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: dict[str, _Entry] = {}

    def add(self, run_id: str, model: str, calls: int, until: float) -> None:
        """A run has one entry: its last switch."""
        self._entries[run_id] = _Entry(model, calls, until)

    def clear(self, run_id: str) -> None:
        self._entries.pop(run_id, None)

    def totals(self) -> Mapping[str, int]:
        """Planned calls per model class; what is overdue has lapsed and is forgotten."""
        now = self._clock.now()
        self._entries = {run_id: entry for run_id, entry in self._entries.items() if entry.until > now}
        totals: dict[str, int] = {}
        for entry in self._entries.values():
            totals[entry.model] = totals.get(entry.model, 0) + entry.calls
        return totals
