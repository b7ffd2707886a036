"""`/api/v1/fleet`: model classes, backends, replicas with their live signals, and the operator's three actions."""

from __future__ import annotations

import time
from collections.abc import Mapping

from django.db.models import Prefetch
from django.http import HttpRequest
from ninja import Field, Query, Router, Schema

from fleet.common.access import fleet_for, fleets_for, is_emulated, require_manager
from fleet.common.problems import not_found
from fleet.common.scopes import Scope, caller, requires
from fleet.models import Backend, Fleet, RatesVersion, Replica
from fleet.selectors import active_rates, pressure
from fleet.services import set_replica_state
from fleet.serving.pressure import ReplicaPressure

router = Router(tags=["fleet"])


class FleetQuery(Schema):
    fleet: str | None = Field(None, max_length=63, description="A fleet's name; the default fleet without.")


class ModelClassOut(Schema):
    name: str
    size_rank: int
    parameters_b: float
    context_tokens: int
    price_in: float
    price_out: float
    reasoning: bool


class RatesOut(Schema):
    version: int
    source: str = Field(description="`illustrative` and `roofline` figures are modelled, `calibrated` ones measured.")
    decode_tokens_per_s: float
    prefill_base_s: float
    prefill_per_token_s: float
    concurrency: int
    capacity: int
    time_scale: float


class SignalsOut(Schema):
    """What the monitor saw last. null: unknown, which is neither idle nor full."""

    state: str
    load: float | None
    outstanding: float
    capacity: float
    inflight: int
    running: float | None
    waiting: float | None
    kv_usage: float | None
    prompt_tokens_per_s: float | None
    generation_tokens_per_s: float | None
    age_s: float | None
    missing: list[str]


class ReplicaOut(Schema):
    name: str
    backend: str
    url: str
    state: str
    signals: SignalsOut | None = Field(description="null while no monitor publishes them.")


class BackendOut(Schema):
    name: str
    model: str
    hardware: str
    max_num_seqs: int
    enabled: bool
    emulated: bool
    rates: RatesOut | None
    replicas: list[ReplicaOut]


class FleetOut(Schema):
    name: str
    is_default: bool
    emulated: bool = Field(description="Figures come from an emulator, not from GPUs.")
    server_time: float
    models: list[ModelClassOut]
    backends: list[BackendOut]


class ClassPressureOut(Schema):
    model: str
    state: str
    load: float | None = Field(description="null: unknown, or infinite when state is `overloaded`.")
    outstanding: float
    planned: float
    capacity: float
    replicas: int
    healthy: int
    fresh: int
    age_s: float


class PressureOut(Schema):
    fleet: str
    emulated: bool
    server_time: float
    at: float | None = Field(description="When the monitor published it, epoch seconds; null: nobody publishes.")
    classes: list[ClassPressureOut]
    replicas: list[ReplicaOut]


@router.get("/fleet", response=FleetOut, summary="Model classes, backends and replicas")
@requires(Scope.FLEET_READ)
def get_fleet(request: HttpRequest, query: Query[FleetQuery]) -> FleetOut:
    fleet = fleet_for(caller(request), query.fleet)
    signals = _signals(fleet)
    backends = list(_backends(fleet))
    models = {backend.model_class_id: backend.model_class for backend in backends}
    return FleetOut(
        name=fleet.name,
        is_default=fleet.is_default,
        emulated=is_emulated(fleet),
        server_time=time.time(),
        models=[
            ModelClassOut.from_orm(model) for model in sorted(models.values(), key=lambda m: (m.size_rank, m.name))
        ],
        backends=[_backend_out(backend, signals) for backend in backends],
    )


@router.get("/fleet/pressure", response=PressureOut, summary="The published load per model class and replica")
@requires(Scope.FLEET_READ)
def get_pressure(request: HttpRequest, query: Query[FleetQuery]) -> PressureOut:
    fleet = fleet_for(caller(request), query.fleet)
    published = pressure(fleet)
    signals = {item.replica: item for item in published.replicas} if published else {}
    rows = Replica.objects.filter(backend__fleet=fleet).select_related("backend")
    return PressureOut(
        fleet=fleet.name,
        emulated=is_emulated(fleet),
        server_time=time.time(),
        at=published.at if published else None,
        classes=[ClassPressureOut(**item.to_json()) for item in published.classes] if published else [],
        replicas=[_replica_out(row, row.backend.name, signals) for row in rows],
    )


@router.post("/replicas/{name}:drain", response=ReplicaOut, summary="No new calls; running ones finish")
@requires(Scope.FLEET_WRITE)
def drain_replica(request: HttpRequest, name: str) -> ReplicaOut:
    return _set_state(request, name, Replica.State.DRAINING)


@router.post("/replicas/{name}:enable", response=ReplicaOut, summary="Takes new calls again")
@requires(Scope.FLEET_WRITE)
def enable_replica(request: HttpRequest, name: str) -> ReplicaOut:
    return _set_state(request, name, Replica.State.ENABLED)


@router.post("/replicas/{name}:disable", response=ReplicaOut, summary="No calls, no polls")
@requires(Scope.FLEET_WRITE)
def disable_replica(request: HttpRequest, name: str) -> ReplicaOut:
    return _set_state(request, name, Replica.State.DISABLED)


def _set_state(request: HttpRequest, name: str, state: Replica.State) -> ReplicaOut:
    user = caller(request)
    visible = Replica.objects.filter(backend__fleet__in=fleets_for(user))
    replica = visible.select_related("backend__fleet").filter(name=name).first()
    if replica is None:
        raise not_found("replica")
    require_manager(user, replica.backend.fleet)
    changed = set_replica_state(replica, state, user)
    return _replica_out(changed, replica.backend.name, _signals(replica.backend.fleet))


def _backends(fleet: Fleet) -> list[Backend]:
    active = Prefetch("rates", queryset=RatesVersion.objects.filter(active=True), to_attr="active_rates")
    return list(fleet.backends.select_related("model_class").prefetch_related("replicas", active))


def _signals(fleet: Fleet) -> Mapping[str, ReplicaPressure]:
    published = pressure(fleet)
    return {item.replica: item for item in published.replicas} if published else {}


def _backend_out(backend: Backend, signals: Mapping[str, ReplicaPressure]) -> BackendOut:
    rates = active_rates(backend)
    return BackendOut(
        name=backend.name,
        model=backend.model_class.name,
        hardware=backend.hardware,
        max_num_seqs=backend.max_num_seqs,
        enabled=backend.enabled,
        emulated=backend.emulated,
        rates=None if rates is None else RatesOut.from_orm(rates),
        replicas=[_replica_out(replica, backend.name, signals) for replica in backend.replicas.all()],
    )


def _replica_out(replica: Replica, backend: str, signals: Mapping[str, ReplicaPressure]) -> ReplicaOut:
    seen = signals.get(replica.name)
    return ReplicaOut(
        name=replica.name,
        backend=backend,
        url=replica.url,
        state=replica.state,
        signals=None if seen is None else SignalsOut(**seen.to_json()),
    )
