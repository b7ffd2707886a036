"""A fleet as its page shows it: classes, backends with their rates, replicas. Live figures come by the socket."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Prefetch

from fleet.common.presentation import DASH, compact, model_token, seconds
from fleet.models import Backend, Fleet, RatesVersion, Replica
from fleet.selectors import active_rates, capacity


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaCard:
    """`actions` are (state to set, word) of the buttons that make sense now."""

    name: str
    url: str
    state: str
    capacity: int
    slots: int
    key_env: str
    actions: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RatesView:
    """`mark` says what the figures rest on: `emulated H200, time × 10`, or empty for a calibrated server."""

    decode: str
    prefill: str
    concurrency: int
    capacity: int
    source: str
    version: int
    mark: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendView:
    name: str
    hardware: str
    enabled: bool
    emulated: bool
    served_name: str
    rates: RatesView | None
    replicas: tuple[ReplicaCard, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassView:
    """One model class with all backends that serve it."""

    model: str
    token: str
    backends: tuple[BackendView, ...]
    replicas: int


_ACTIONS = {
    Replica.State.ENABLED: (("draining", "Drain"), ("disabled", "Disable")),
    Replica.State.DRAINING: (("enabled", "Enable"), ("disabled", "Disable")),
    Replica.State.DISABLED: (("enabled", "Enable"),),
}


def class_views(fleet: Fleet) -> list[ClassView]:
    """Largest class first; three queries."""
    backends = (
        fleet.backends.select_related("model_class")
        .prefetch_related(
            Prefetch("rates", RatesVersion.objects.filter(active=True), to_attr="active_rates"),
            Prefetch("replicas", Replica.objects.order_by("name")),
        )
        .order_by("-model_class__size_rank", "model_class__name", "name")
    )
    groups: dict[str, list[Backend]] = {}
    for backend in backends:
        groups.setdefault(backend.model_class.name, []).append(backend)
    return [_class(model, members) for model, members in groups.items()]


def _class(model: str, backends: Sequence[Backend]) -> ClassView:
    views = tuple(_backend(backend) for backend in backends)
    return ClassView(
        model=model,
        token=model_token(model),
        backends=views,
        replicas=sum(len(view.replicas) for view in views),
    )


def _backend(backend: Backend) -> BackendView:
    rates, slots = active_rates(backend), capacity(backend)
    return BackendView(
        name=backend.name,
        hardware=backend.hardware.upper(),
        enabled=backend.enabled,
        emulated=backend.emulated,
        served_name=backend.served_name or backend.model_class.name,
        rates=_rates(backend, rates) if rates is not None else None,
        replicas=tuple(_replica(replica, slots, backend.max_num_seqs) for replica in backend.replicas.all()),
    )


def _rates(backend: Backend, rates: RatesVersion) -> RatesView:
    return RatesView(
        decode=f"{compact(rates.decode_tokens_per_s)} tok/s",
        prefill=f"{seconds(rates.prefill_base_s)} + {seconds(1000 * rates.prefill_per_token_s)} per 1k tokens",
        concurrency=rates.concurrency,
        capacity=rates.capacity,
        source=rates.source,
        version=rates.version,
        mark=f"emulated {backend.hardware.upper()}, time × {rates.time_scale:g}" if backend.emulated else "",
        note=rates.note or DASH,
    )


def _replica(replica: Replica, slots: int, admitted: int) -> ReplicaCard:
    return ReplicaCard(
        name=replica.name,
        url=replica.url,
        state=replica.state,
        capacity=slots,
        slots=admitted,
        key_env=replica.api_key_env,
        actions=_ACTIONS[Replica.State(replica.state)],
    )
