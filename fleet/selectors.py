"""Everything that reads the fleet: catalogs for the planner, replicas for the pool and the monitor, pressure."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import cast

from django.db.models import Exists, OuterRef, Prefetch, QuerySet

from fleet.catalogs import versioned_catalog
from fleet.errors import NoDefaultFleet
from fleet.models import Backend, Fleet, ModelClass, PressureSample, RatesVersion, Replica
from fleet.redis import REDIS_ERRORS, read_pressure
from fleet.serving import catalog as values
from fleet.serving import pool
from fleet.serving.health import OperatorState
from fleet.serving.pressure import FleetPressure
from fleet.serving.rates import RatesSource, ServiceRates
from fleet.watch import Target

logger = logging.getLogger(__name__)

_NOT_CALLED = frozenset({"unhealthy", "stalled"})


def default_fleet() -> Fleet:
    """Raises NoDefaultFleet."""
    fleet = Fleet.objects.filter(is_default=True).first()
    if fleet is None:
        raise NoDefaultFleet
    return fleet


def catalog_for(fleet: Fleet) -> values.Catalog:
    """What the planner may use: enabled backends with active rates and a replica that takes new calls.

    Its version is a digest of what planning reads, so that it changes exactly when plans may.
    """
    taking = Replica.objects.filter(backend=OuterRef("pk"), state=Replica.State.ENABLED)
    backends = (
        Backend.objects.filter(Exists(taking), fleet=fleet, enabled=True, rates__active=True)
        .select_related("model_class")
        .prefetch_related(_active_rates())
        .order_by("name")
    )
    found = [(backend, rates) for backend in backends if (rates := active_rates(backend)) is not None]
    models = {backend.model_class.name: model_value(backend.model_class) for backend, _ in found}
    return versioned_catalog(
        sorted(models.values(), key=lambda model: (model.size_rank, model.name)),
        (
            values.Backend(
                name=backend.name,
                model=backend.model_class.name,
                hardware=backend.hardware,
                rates=rates_value(rates),
                emulated=backend.emulated,
            )
            for backend, rates in found
        ),
    )


def _active_rates() -> Prefetch[str, QuerySet[RatesVersion], str]:
    return Prefetch("rates", queryset=RatesVersion.objects.filter(active=True), to_attr="active_rates")


def active_rates(backend: Backend) -> RatesVersion | None:
    """The active rates, from the prefetch where there is one."""
    loaded = getattr(backend, "active_rates", None)
    if loaded is not None:
        return cast("RatesVersion", loaded[0]) if loaded else None
    return backend.rates.filter(active=True).first()


def model_value(row: ModelClass) -> values.ModelClass:
    return values.ModelClass(
        name=row.name,
        size_rank=row.size_rank,
        parameters_b=row.parameters_b,
        context_tokens=row.context_tokens,
        price_in=row.price_in,
        price_out=row.price_out,
        reasoning=row.reasoning,
    )


def rates_value(row: RatesVersion) -> ServiceRates:
    return ServiceRates(
        decode_tokens_per_s=row.decode_tokens_per_s,
        prefill_base_s=row.prefill_base_s,
        prefill_per_token_s=row.prefill_per_token_s,
        concurrency=row.concurrency,
        capacity=row.capacity,
        source=cast("RatesSource", row.source),
        version=row.version,
        time_scale=row.time_scale,
        step_base_s=row.step_base_s,
        step_per_sequence_s=row.step_per_sequence_s,
    )


def capacity(backend: Backend) -> int:
    """Sequences one replica serves well: the active rates' figure, else what the server admits."""
    rates = active_rates(backend)
    return backend.max_num_seqs if rates is None else min(rates.capacity, backend.max_num_seqs)


def api_key(replica: Replica) -> str | None:
    """The replica's key from its environment variable; None where it names none or the variable is empty."""
    return os.environ.get(replica.api_key_env) or None if replica.api_key_env else None


def served_names(fleet: Fleet) -> Mapping[str, str]:
    """Per backend name: the model's name on its servers."""
    rows = fleet.backends.select_related("model_class")
    return {backend.name: backend.served_name or backend.model_class.name for backend in rows}


def replica_endpoints(fleet: Fleet) -> tuple[pool.Replica, ...]:
    """The fleet's replicas as the pool takes them; new calls go where the operator and the monitor both allow it."""
    published = pressure(fleet)
    refused = {item.replica for item in published.replicas if item.state in _NOT_CALLED} if published else set()
    rows = Replica.objects.filter(backend__fleet=fleet).select_related("backend")
    return tuple(
        pool.Replica(
            name=row.name,
            url=row.url,
            backend=row.backend.name,
            api_key=api_key(row),
            dispatchable=row.state == Replica.State.ENABLED and row.backend.enabled and row.name not in refused,
        )
        for row in rows
    )


def monitor_targets() -> tuple[Target, ...]:
    """Every replica that is worth a poll: all but the disabled ones of enabled backends."""
    rows = (
        Replica.objects.filter(backend__enabled=True)
        .exclude(state=Replica.State.DISABLED)
        .select_related("backend__fleet", "backend__model_class")
        .prefetch_related(Prefetch("backend__rates", RatesVersion.objects.filter(active=True), to_attr="active_rates"))
    )
    return tuple(
        Target(
            replica=row.name,
            url=row.url,
            fleet=row.backend.fleet.name,
            backend=row.backend.name,
            model=row.backend.model_class.name,
            capacity=float(capacity(row.backend)),
            operator=OperatorState(row.state),
            api_key=api_key(row),
        )
        for row in rows
    )


def planned_models() -> Mapping[str, tuple[str, ...]]:
    """Per fleet name: the classes that must show in its pressure, served by an enabled backend or not by anyone now."""
    found: dict[str, set[str]] = {name: set() for name in Fleet.objects.values_list("name", flat=True)}
    enabled = Backend.objects.filter(enabled=True)
    for fleet, model in enabled.values_list("fleet__name", "model_class__name"):
        found.setdefault(fleet, set()).add(model)
    return {fleet: tuple(sorted(models)) for fleet, models in found.items()}


def pressure(fleet: Fleet) -> FleetPressure | None:
    """The last published pressure; None when no monitor publishes, Redis is away, or the value cannot be read."""
    try:
        data = read_pressure(fleet.name)
        return None if data is None else FleetPressure.from_json(data)
    except REDIS_ERRORS:
        logger.debug("pressure of %s: Redis is away", fleet.name)
    except ValueError:
        logger.warning("the published pressure of %s cannot be read", fleet.name)
    return None


def pressure_history(fleet: Fleet, since: float) -> list[PressureSample]:
    """Samples of all classes from `since` (epoch seconds) on, oldest first."""
    return list(fleet.samples.filter(at__gte=since).order_by("at", "model"))
