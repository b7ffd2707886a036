"""The engine's view of pressure: the last publication, brought up to date with this worker's own counters (ours).

A publication is up to half a second old: it was made of counters that workers had published before. In that time one
worker can start, or switch, hundreds of runs. What its own counters have grown since is added, so that its runs do
not all see the same empty class. A publication that is old is no knowledge: its classes are unknown.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fleet.serving.pressure import ClassPressure, FleetPressure
from runtime.engine.ports import ClassLoad, Clock

STALE_S = 10.0
_KEEP = 64
"""Publications of own counters that are remembered: 16 seconds at 4 a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCounters:
    """This worker's calls in flight by replica and planned demand by model class, at `at` (epoch seconds)."""

    at: float
    replicas: Mapping[str, int] = field(default_factory=dict)
    planned: Mapping[str, int] = field(default_factory=dict)


class PressureBoard:
    """All fleets' pressure as one worker knows it; `counters` reads its own books. Belongs to one event loop."""

    def __init__(self, *, counters: Callable[[], OwnCounters], clock: Clock, stale_s: float = STALE_S) -> None:
        self._counters, self._clock, self._stale_s = counters, clock, stale_s
        self._published: dict[str, FleetPressure] = {}
        self._history: deque[OwnCounters] = deque(maxlen=_KEEP)

    def update(self, fleet: str, pressure: FleetPressure | None) -> None:
        """A new publication; None keeps the last one, which grows stale by itself."""
        if pressure is not None:
            self._published[fleet] = pressure

    def note_published(self, counters: OwnCounters) -> None:
        """Remember what other workers and the monitor were told of this worker."""
        self._history.append(counters)

    def of(self, fleet: str) -> FleetLoads:
        return FleetLoads(self, fleet)

    def loads(self, fleet: str) -> Mapping[str, ClassLoad]:
        """Every class of the last publication; without any, nothing, which the engine takes as unknown."""
        published = self._published.get(fleet)
        if published is None:
            return {}
        age_s = max(0.0, self._clock.now() - published.at)
        if age_s >= self._stale_s:
            return {item.model: _unknown(item, age_s) for item in published.classes}
        inflight, planned = self._growth(published)
        return {
            item.model: _grown(item, inflight[item.model], planned[item.model], age_s) for item in published.classes
        }

    def _growth(self, published: FleetPressure) -> tuple[Counter[str], Counter[str]]:
        """By model class: calls in flight that came, and planned demand that changed, since the monitor knew."""
        now, known = self._counters(), self._known_at(published.at)
        model_of = {replica.replica: replica.model for replica in published.replicas}
        inflight: Counter[str] = Counter()
        for replica, count in now.replicas.items():
            if replica in model_of:
                inflight[model_of[replica]] += max(0, count - known.replicas.get(replica, 0))
        planned: Counter[str] = Counter(now.planned)
        planned.subtract(known.planned)
        return inflight, planned

    def _known_at(self, at: float) -> OwnCounters:
        """What this worker had last published before a moment; nothing, when it is new."""
        return next((item for item in reversed(self._history) if item.at <= at), OwnCounters(at=at))


class FleetLoads:
    """`PressureSource` of one fleet's runs."""

    def __init__(self, board: PressureBoard, fleet: str) -> None:
        self._board, self._fleet = board, fleet

    def loads(self) -> Mapping[str, ClassLoad]:
        return self._board.loads(self._fleet)


def _unknown(item: ClassPressure, age_s: float) -> ClassLoad:
    return ClassLoad(model=item.model, load=None, state="unknown", age_s=item.age_s + age_s)


def _grown(item: ClassPressure, inflight: int, planned: int, age_s: float) -> ClassLoad:
    """load(k) with the growth added to outstanding and planned; unknown and overloaded classes stay what they are."""
    held, meant = item.outstanding + inflight, max(0.0, item.planned + planned)
    known = item.state == "ok" and item.capacity > 0
    return ClassLoad(
        model=item.model,
        load=(held + meant) / item.capacity if known else item.load,
        state=item.state,
        outstanding=held,
        planned=meant,
        capacity=item.capacity,
        age_s=item.age_s + age_s,
    )
