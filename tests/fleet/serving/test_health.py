"""Health: slow to trust, quick to doubt, never flapping."""

from __future__ import annotations

from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.serving.errors import (
    BadRequest,
    ConnectFailed,
    Disconnected,
    EngineDead,
    NoReplica,
    Overloaded,
    ServerFailed,
    ServingError,
    TotalTimedOut,
)
from fleet.serving.health import (
    Health,
    HealthRules,
    HealthState,
    Observation,
    OperatorState,
    call_observation,
    observe,
    operate,
    poll_observation,
)

RULES = HealthRules()
GOOD, BAD = Observation(source="poll"), Observation(source="poll", error="connect_failed")
GOOD_CALL, BAD_CALL = Observation(source="call"), Observation(source="call", error="disconnected")
FATAL = Observation(source="poll", error="engine_dead", fatal=True)
EVENTS = {"g": GOOD, "b": BAD, "G": GOOD_CALL, "B": BAD_CALL, "f": FATAL}


def _after(events: str) -> Health:
    return reduce(
        lambda health, item: observe(health, EVENTS[item[1]], float(item[0]), RULES), enumerate(events), Health()
    )


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ("", "suspect"),
        ("G", "suspect"),
        ("g", "healthy"),
        ("gb", "suspect"),
        ("gbg", "healthy"),
        ("gbb", "suspect"),
        ("gbbb", "down"),
        ("gbgbgb", "suspect"),
        ("gf", "down"),
        ("gfg", "down"),
        ("gfgg", "suspect"),
        ("gfggg", "healthy"),
        ("gfgbgg", "suspect"),
        ("gfggb", "suspect"),
        ("gfGGGG", "down"),
        ("gBB", "healthy"),
        ("gBBB", "suspect"),
        ("gBBGBB", "healthy"),
        ("gBBBg", "suspect"),
        ("gBBBGg", "healthy"),
        ("bbb", "down"),
    ],
)
def test_sequences(events: str, state: str) -> None:
    assert _after(events).state == state


def test_a_state_knows_since_when_and_why() -> None:
    health = _after("ggfgg")
    assert (health.state, health.since, health.last_error) == (HealthState.SUSPECT, 4.0, "engine_dead")
    assert (health.polls_ok, health.polls_failed) == (4, 1)


@given(st.text(alphabet="gbGBf", max_size=40))
def test_counts_add_up_and_a_dead_engine_takes_three_good_polls(events: str) -> None:
    health = _after(events)
    assert health.polls_ok + health.polls_failed == sum(events.count(kind) for kind in "gbf")
    assert health.calls_ok + health.calls_failed == sum(events.count(kind) for kind in "GB")
    polls = [kind for kind in events if kind in "gbf"]
    if "f" in polls:
        good_since = len(polls) - 1 - max(i for i, kind in enumerate(polls) if kind == "f")
        assert health.state is not HealthState.HEALTHY or good_since >= 3


def test_the_operator_s_word_decides_dispatch() -> None:
    healthy = _after("g")
    assert healthy.dispatchable
    for word in (OperatorState.DRAINING, OperatorState.DISABLED):
        stopped = operate(healthy, word, 5.0)
        assert (stopped.dispatchable, stopped.state, stopped.since) == (False, HealthState.HEALTHY, 5.0)
        assert operate(stopped, OperatorState.ENABLED, 6.0).dispatchable
    assert not operate(_after("f"), OperatorState.ENABLED, 1.0).dispatchable
    assert operate(healthy, OperatorState.ENABLED, 9.0) is healthy


@pytest.mark.parametrize(
    ("error", "fatal"),
    [
        (EngineDead("x", status=500), True),
        (Overloaded("", status=503), True),
        (ServerFailed("", status=502), False),
        (ConnectFailed(""), False),
        (TotalTimedOut(""), False),
    ],
)
def test_what_a_failed_poll_says(error: ServingError, fatal: bool) -> None:
    seen = poll_observation(error)
    assert (seen.ok, seen.fatal, seen.error) == (False, fatal, error.code)


def test_a_stall_is_fatal_and_a_good_poll_is_good() -> None:
    assert poll_observation(None, stalled=True).fatal
    assert poll_observation(None) == GOOD


@pytest.mark.parametrize("error", [BadRequest(""), Overloaded(""), TotalTimedOut("")])
def test_calls_that_say_nothing_of_their_replica(error: ServingError) -> None:
    assert call_observation(error) is None


@pytest.mark.parametrize("error", [Disconnected(""), ConnectFailed(""), EngineDead(""), NoReplica("")])
def test_calls_that_do(error: ServingError) -> None:
    assert call_observation(error) == Observation(source="call", error=error.code)


def test_rules_are_checked() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        HealthRules(down_after=0)
