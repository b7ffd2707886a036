"""Which of several open replicas a call goes to (ours; late binding inside a backend)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Literal, Protocol, TypeVar, get_args

ChoiceRule = Literal["least_outstanding", "round_robin", "run_affinity"]
CHOICE_RULES: tuple[ChoiceRule, ...] = get_args(ChoiceRule)
AFFINITY_MARGIN = 4.0
"""Calls that a run's replica may hold more than the least loaded one before the run goes there: what a prefill of a
long shared prefix saves is worth about that much queueing."""
REMEMBERED = 10_000
"""Runs and backends whose replica is remembered, the latest ones."""


class Open(Protocol):
    """A replica that may take a call. `outstanding` calls; `turn`: larger the later it was chosen last."""

    @property
    def name(self) -> str: ...

    @property
    def outstanding(self) -> float: ...

    @property
    def turn(self) -> int: ...


Candidate = TypeVar("Candidate", bound=Open)


class ReplicaChoice:
    """One rule, and for `run_affinity` which replica holds a run's prefix.

    - `least_outstanding`: the fewest calls in flight, round-robin between equals.
    - `round_robin`: in turn, whatever they hold.
    - `run_affinity`: the replica that the run used last, unless it holds more than `margin` calls more than the least.
    """

    def __init__(self, rule: ChoiceRule, margin: float = AFFINITY_MARGIN, remembered: int = REMEMBERED) -> None:
        self._rule, self._margin, self._most = rule, margin, remembered
        self._last: OrderedDict[tuple[str, str], str] = OrderedDict()

    def best(self, candidates: Sequence[Candidate], backend: str, run: str) -> Candidate | None:
        """None where there is no candidate. `run` empty: the call belongs to none."""
        if self._rule == "round_robin":
            return min(candidates, key=lambda candidate: candidate.turn, default=None)
        least = min(candidates, key=lambda candidate: (candidate.outstanding, candidate.turn), default=None)
        if least is None or self._rule == "least_outstanding" or not run:
            return least
        holder = self._last.get((backend, run))
        held = next((candidate for candidate in candidates if candidate.name == holder), None)
        if held is not None and held.outstanding <= least.outstanding + self._margin:
            return held
        return least

    def chosen(self, name: str, backend: str, run: str) -> None:
        """Remembers where a run went."""
        if self._rule != "run_affinity" or not run:
            return
        self._last[(backend, run)] = name
        self._last.move_to_end((backend, run))
        if len(self._last) > self._most:
            self._last.popitem(last=False)
