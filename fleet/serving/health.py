"""Health of one replica as a pure state machine (ours): slow to trust, quick to doubt, never flapping.

    suspect --good poll(s)--> healthy        a replica starts as suspect
    healthy --failure-------> suspect        poll failed, or calls failed repeatedly
    suspect --failures------> down           `down_after` in a row; a dead engine or a stall at once
    down    --good polls----> suspect        `up_after` in a row, then one more makes it healthy

The operator's word stands beside it: `enabled`, `draining` (finish what runs, take nothing new) or `disabled`. A good
call never revives a replica that is down, and an overloaded one is not ill.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

from fleet.serving.errors import Broken, NotAccepted, Overloaded, ServerFailed, ServingError, TimedOut, TotalTimedOut


class HealthState(StrEnum):
    HEALTHY = "healthy"
    SUSPECT = "suspect"
    DOWN = "down"


class OperatorState(StrEnum):
    ENABLED = "enabled"
    DRAINING = "draining"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthRules:
    """How many events in a row change a state."""

    down_after: int = 3
    up_after: int = 2
    suspect_after_calls: int = 3

    def __post_init__(self) -> None:
        if min(self.down_after, self.up_after, self.suspect_after_calls) < 1:
            raise ValueError("health rules count events: every number must be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One poll or call: `error` is its code, empty when it went well; `fatal` takes the replica down at once."""

    source: Literal["poll", "call"]
    error: str = ""
    fatal: bool = False

    @property
    def ok(self) -> bool:
        return not self.error


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """State, since when (epoch seconds), and the counts behind it; counts of polls and calls never reset."""

    state: HealthState = HealthState.SUSPECT
    operator: OperatorState = OperatorState.ENABLED
    since: float = 0.0
    last_error: str = ""
    good_polls_in_row: int = 0
    bad_polls_in_row: int = 0
    bad_calls_in_row: int = 0
    polls_ok: int = 0
    polls_failed: int = 0
    calls_ok: int = 0
    calls_failed: int = 0

    @property
    def dispatchable(self) -> bool:
        """Whether new calls may go there."""
        return self.operator is OperatorState.ENABLED and self.state is not HealthState.DOWN


def poll_observation(error: ServingError | None, *, stalled: bool = False) -> Observation:
    """What a poll says: a dead engine (503 from /health included) and a stall are fatal, whatever came before."""
    if stalled:
        return Observation(source="poll", error="stalled", fatal=True)
    if error is None:
        return Observation(source="poll")
    fatal = isinstance(error, ServerFailed | Overloaded) and error.status == 503
    return Observation(source="poll", error=error.code, fatal=fatal or error.code == "engine_dead")


def call_observation(error: ServingError | None) -> Observation | None:
    """What a call says of its replica; None when it says nothing: a refusal, an overload, the caller's own limit."""
    if error is None:
        return Observation(source="call")
    if isinstance(error, TotalTimedOut) or not error.retryable:
        return None
    if isinstance(error, NotAccepted | TimedOut | ServerFailed | Broken):
        return Observation(source="call", error=error.code)
    return None


def observe(health: Health, seen: Observation, now: float, rules: HealthRules) -> Health:
    """The health after one observation."""
    counted = _count(health, seen)
    state = _next_state(counted, seen, rules)
    if state is counted.state:
        return counted
    # A replica that comes back starts its run of good polls anew, so that one good poll more is needed.
    good = 0 if counted.state is HealthState.DOWN else counted.good_polls_in_row
    return replace(counted, state=state, since=now, good_polls_in_row=good)


def operate(health: Health, operator: OperatorState, now: float) -> Health:
    """The operator's word. Enabling makes no replica healthy: the next polls decide."""
    if operator is health.operator:
        return health
    return replace(health, operator=operator, since=now)


def _count(health: Health, seen: Observation) -> Health:
    last_error = seen.error or health.last_error
    if seen.source == "poll":
        return replace(
            health,
            last_error=last_error,
            polls_ok=health.polls_ok + seen.ok,
            polls_failed=health.polls_failed + (not seen.ok),
            good_polls_in_row=health.good_polls_in_row + 1 if seen.ok else 0,
            bad_polls_in_row=0 if seen.ok else health.bad_polls_in_row + 1,
        )
    return replace(
        health,
        last_error=last_error,
        calls_ok=health.calls_ok + seen.ok,
        calls_failed=health.calls_failed + (not seen.ok),
        bad_calls_in_row=0 if seen.ok else health.bad_calls_in_row + 1,
    )


def _next_state(health: Health, seen: Observation, rules: HealthRules) -> HealthState:
    if seen.fatal or health.bad_polls_in_row >= rules.down_after:
        return HealthState.DOWN
    if health.state is HealthState.DOWN:
        recovered = health.good_polls_in_row >= rules.up_after
        return HealthState.SUSPECT if recovered else HealthState.DOWN
    if health.bad_polls_in_row or health.bad_calls_in_row >= rules.suspect_after_calls:
        return HealthState.SUSPECT
    if health.state is HealthState.SUSPECT and seen.source == "poll":
        return HealthState.HEALTHY
    return health.state
