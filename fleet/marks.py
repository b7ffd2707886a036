"""Thresholds in pictures of load. The rule belongs to an upper layer: the fleet asks for it by a dotted path."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from django.conf import settings
from django.utils.module_loading import import_string

from fleet.models import Fleet

DEFAULT = "runtime.marks.load_marks"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadMarks:
    """Loads as fractions of capacity: above `high` a class is congested, below `low` it is free."""

    high: float
    low: float


def load_marks(fleet: Fleet) -> LoadMarks:
    """What DYSERVE_LOAD_MARKS (a dotted path to a function of a fleet) says of this fleet."""
    read = cast("Callable[[Fleet], LoadMarks]", import_string(getattr(settings, "DYSERVE_LOAD_MARKS", DEFAULT)))
    return read(fleet)
