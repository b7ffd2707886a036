"""The thresholds that every picture of load carries: where the switching rule begins to act."""

from __future__ import annotations

from fleet.marks import LoadMarks
from fleet.models import Fleet
from runtime.snapshots import switch_settings


def load_marks(fleet: Fleet) -> LoadMarks:
    """The fleet's own rule, as it is now."""
    settings = switch_settings(fleet)
    return LoadMarks(high=settings.high, low=settings.low)
