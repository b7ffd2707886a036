"""The monitor's side of the database: what to watch, and the samples for charts. Called in the monitor's threads."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import ParamSpec, TypeVar

from django.db import close_old_connections

from fleet.models import Fleet, PressureSample
from fleet.selectors import monitor_targets, planned_models
from fleet.serving.pressure import FleetPressure
from fleet.watch import Target

P = ParamSpec("P")
R = TypeVar("R")


def in_a_thread(function: Callable[P, R]) -> Callable[P, R]:
    """For threads that no request ends: gives the database connection back after the call, broken ones before it."""

    @wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        close_old_connections()
        try:
            return function(*args, **kwargs)
        finally:
            close_old_connections()

    return wrapped


class DatabaseRecords:
    """`fleet.monitor.FleetRecords` on Django's models."""

    @in_a_thread
    def targets(self) -> Sequence[Target]:
        return monitor_targets()

    @in_a_thread
    def models(self) -> Mapping[str, Sequence[str]]:
        return planned_models()

    @in_a_thread
    def sample(self, pressure: Mapping[str, FleetPressure]) -> None:
        """One row per model class; a load that is unknown or infinite is stored empty, its state says which."""
        fleets = {fleet.name: fleet for fleet in Fleet.objects.filter(name__in=pressure)}
        PressureSample.objects.bulk_create(
            PressureSample(
                fleet=fleets[name],
                model=item.model,
                at=of_fleet.at,
                load=item.load if item.load is not None and math.isfinite(item.load) else None,
                state=item.state,
                outstanding=item.outstanding,
                planned=item.planned,
                capacity=item.capacity,
            )
            for name, of_fleet in pressure.items()
            if name in fleets
            for item in of_fleet.classes
        )

    @in_a_thread
    def prune(self, before: float) -> None:
        PressureSample.objects.filter(at__lt=before).delete()
