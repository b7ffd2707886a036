"""Load of replicas and model classes, fused from scrapes, own counters and planned demand (MATH.md, Load; rules ours).

Own in-flight counters lead, scraped gauges follow: they lag by seconds. What is not known is unknown, neither idle nor
full. Everything here is a value: a monitor publishes it, browsers and engines read it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Self

from fleet.serving.metrics import MetricsPage, counter_rate

ClassState = Literal["ok", "unknown", "overloaded"]
ReplicaState = Literal["ok", "stale", "stalled", "unhealthy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PressureRules:
    """`stale_s`: no good scrape for so long makes a replica unknown. `stall_s`: waiting requests and no token for so
    long make it stalled. `min_fresh_share`: of the healthy capacity, else the class is unknown."""

    stale_s: float = 10.0
    stall_s: float = 15.0
    min_fresh_share: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSignals:
    """What is known of one replica. Times are epoch seconds; None: never seen, or not on its page.

    `healthy` is the verdict of health and operator together (may new calls go there). `inflight` counts the own calls
    of all workers. `progressed_at` is the last time its token counters moved or nothing waited.
    """

    replica: str
    backend: str
    model: str
    capacity: float
    healthy: bool = True
    inflight: int = 0
    running: float | None = None
    waiting: float | None = None
    kv_usage: float | None = None
    prompt_tokens: float | None = None
    generation_tokens: float | None = None
    prompt_tokens_per_s: float | None = None
    generation_tokens_per_s: float | None = None
    scraped_at: float | None = None
    progressed_at: float | None = None
    missing: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.capacity <= 0:
            raise ValueError(f"replica {self.replica}: capacity must be positive, got {self.capacity}")


def after_scrape(signals: ReplicaSignals, page: MetricsPage, now: float) -> ReplicaSignals:
    """The signals after a page was read. A page without running or waiting is no good scrape: its age stays."""
    missing = page.missing
    if page.running is None or page.waiting is None:
        return replace(signals, missing=missing)
    elapsed_s = 0.0 if signals.scraped_at is None else now - signals.scraped_at
    return replace(
        signals,
        running=page.running,
        waiting=page.waiting,
        kv_usage=page.kv_usage,
        prompt_tokens=page.prompt_tokens,
        generation_tokens=page.generation_tokens,
        prompt_tokens_per_s=counter_rate(signals.prompt_tokens, page.prompt_tokens, elapsed_s),
        generation_tokens_per_s=counter_rate(signals.generation_tokens, page.generation_tokens, elapsed_s),
        scraped_at=now,
        progressed_at=now if _progressed(signals, page) else signals.progressed_at,
        missing=missing,
    )


def _progressed(before: ReplicaSignals, page: MetricsPage) -> bool:
    """Tokens moved, nothing waits, or progress cannot be judged: then nobody is accused of stalling."""
    if before.progressed_at is None or not page.waiting:
        return True
    pairs = (
        (before.prompt_tokens, page.prompt_tokens),
        (before.generation_tokens, page.generation_tokens),
    )
    known = [(old, new) for old, new in pairs if old is not None and new is not None]
    return not known or any(old != new for old, new in known)


def outstanding(signals: ReplicaSignals) -> float:
    """max(scraped running + waiting, own in-flight)."""
    return max((signals.running or 0.0) + (signals.waiting or 0.0), float(signals.inflight))


def replica_state(signals: ReplicaSignals, now: float, rules: PressureRules) -> ReplicaState:
    """Stalled only on fresh evidence: an old page is stale, whatever it said."""
    if not signals.healthy:
        return "unhealthy"
    if signals.scraped_at is None or now - signals.scraped_at >= rules.stale_s:
        return "stale"
    if signals.waiting and signals.progressed_at is not None and now - signals.progressed_at >= rules.stall_s:
        return "stalled"
    return "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPressure:
    """One replica as published. `load` = outstanding / capacity, None unless fresh; `age_s`: of the last scrape."""

    replica: str
    backend: str
    model: str
    state: ReplicaState
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
    missing: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return _to_json(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        values = _known(cls, data)
        return cls(**{**values, "missing": tuple(values.get("missing", ()))})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassPressure:
    """One model class. `load` None: unknown; infinite (JSON null) when `state` is overloaded: no healthy replica.

    `outstanding` and `capacity` are sums over healthy fresh replicas, `planned` is the demand added to them;
    `age_s` is the oldest scrape among them.
    """

    model: str
    state: ClassState
    load: float | None
    outstanding: float = 0.0
    planned: float = 0.0
    capacity: float = 0.0
    replicas: int = 0
    healthy: int = 0
    fresh: int = 0
    age_s: float = 0.0

    def to_json(self) -> dict[str, Any]:
        data = _to_json(self)
        if self.load == math.inf:
            data["load"] = None
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        values = _known(cls, data)
        if values.get("state") == "overloaded":
            values["load"] = math.inf
        return cls(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPressure:
    """All replicas and classes at one moment, ordered by name."""

    at: float
    replicas: tuple[ReplicaPressure, ...] = ()
    classes: tuple[ClassPressure, ...] = ()
    _by_model: dict[str, ClassPressure] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_model", {item.model: item for item in self.classes})

    def of_class(self, model: str) -> ClassPressure | None:
        """None for a class that no replica serves."""
        return self._by_model.get(model)

    def to_json(self) -> dict[str, Any]:
        return {
            "at": self.at,
            "replicas": [item.to_json() for item in self.replicas],
            "classes": [item.to_json() for item in self.classes],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Raises ValueError on a value that another version wrote and this one cannot read."""
        try:
            return cls(
                at=float(data["at"]),
                replicas=tuple(ReplicaPressure.from_json(item) for item in data["replicas"]),
                classes=tuple(ClassPressure.from_json(item) for item in data["classes"]),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"no published pressure: {type(error).__name__} {error}") from error


def _to_json(value: ReplicaPressure | ClassPressure) -> dict[str, Any]:
    data = {item.name: getattr(value, item.name) for item in fields(value)}
    return {name: list(item) if isinstance(item, tuple) else item for name, item in data.items()}


def _known(kind: type[ReplicaPressure] | type[ClassPressure], data: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that this version knows: a newer publisher may add some."""
    names = {item.name for item in fields(kind)}
    return {name: value for name, value in data.items() if name in names}


def replica_pressure(signals: ReplicaSignals, now: float, rules: PressureRules) -> ReplicaPressure:
    state = replica_state(signals, now, rules)
    held = outstanding(signals)
    return ReplicaPressure(
        replica=signals.replica,
        backend=signals.backend,
        model=signals.model,
        state=state,
        load=held / signals.capacity if state == "ok" else None,
        outstanding=held,
        capacity=signals.capacity,
        inflight=signals.inflight,
        running=signals.running,
        waiting=signals.waiting,
        kv_usage=signals.kv_usage,
        prompt_tokens_per_s=signals.prompt_tokens_per_s,
        generation_tokens_per_s=signals.generation_tokens_per_s,
        age_s=None if signals.scraped_at is None else max(0.0, now - signals.scraped_at),
        missing=signals.missing,
    )


def class_pressure(
    model: str, replicas: Iterable[ReplicaPressure], planned: float, rules: PressureRules
) -> ClassPressure:
    """load(k) = (sum outstanding + planned(k)) / sum capacity, over healthy fresh replicas.

    A stalled replica is healthy by name only: like an unhealthy one it adds neither load nor capacity.
    """
    members = list(replicas)
    healthy = [item for item in members if item.state in ("ok", "stale")]
    fresh = [item for item in healthy if item.state == "ok"]
    capacity = sum(item.capacity for item in fresh)
    held = sum(item.outstanding for item in fresh)
    state, load = _class_load(healthy, capacity, held + planned, rules)
    return ClassPressure(
        model=model,
        state=state,
        load=load,
        outstanding=held,
        planned=planned,
        capacity=capacity,
        replicas=len(members),
        healthy=len(healthy),
        fresh=len(fresh),
        age_s=max((item.age_s or 0.0 for item in fresh), default=0.0),
    )


def _class_load(
    healthy: list[ReplicaPressure], fresh_capacity: float, demand: float, rules: PressureRules
) -> tuple[ClassState, float | None]:
    if not healthy:
        return "overloaded", math.inf
    total = sum(item.capacity for item in healthy)
    if fresh_capacity <= 0 or fresh_capacity < rules.min_fresh_share * total:
        return "unknown", None
    return "ok", demand / fresh_capacity


DEFAULT_RULES = PressureRules()


def fuse(
    signals: Iterable[ReplicaSignals],
    planned: Mapping[str, float],
    now: float,
    *,
    models: Iterable[str] = (),
    rules: PressureRules = DEFAULT_RULES,
) -> FleetPressure:
    """The fleet's pressure at `now`. `planned` is planned(k) per model class; `models` names classes that must appear
    even when they have no replica at all (they are overloaded)."""
    replicas = sorted((replica_pressure(item, now, rules) for item in signals), key=lambda item: item.replica)
    names = sorted({item.model for item in replicas} | set(models))
    classes = tuple(
        class_pressure(name, (item for item in replicas if item.model == name), planned.get(name, 0.0), rules)
        for name in names
    )
    return FleetPressure(at=now, replicas=tuple(replicas), classes=classes)
