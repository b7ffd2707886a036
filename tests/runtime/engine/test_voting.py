from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.engine.voting import locked, winner


@pytest.mark.parametrize(
    ("ballots", "wins"),
    [
        ({}, None),
        ({0: None, 1: None}, None),
        ({0: "a", 1: "b", 2: "b"}, 1),
        ({0: "a", 1: "b"}, 0),
        ({3: "a", 1: "b"}, 1),
        ({0: None, 1: "b", 2: "a", 3: "a"}, 2),
    ],
)
def test_the_winner_has_most_votes_and_on_a_tie_the_lowest_index(
    ballots: dict[int, str | None], wins: int | None
) -> None:
    assert winner(ballots) == wins


@pytest.mark.parametrize(
    ("ballots", "is_locked"),
    [
        ({0: "a", 1: "a", 2: "a"}, True),
        ({0: "a", 1: "a"}, False),
        ({0: "a", 1: "a", 2: "b", 3: "c"}, True),
        ({1: "a", 2: "a", 3: "b"}, False),
        ({0: "a", 1: "a", 2: "b"}, False),
        ({0: None, 1: None, 2: None, 3: "a"}, True),
        ({0: None, 1: None, 2: None, 4: "a"}, False),
        ({0: None, 1: None, 2: None, 3: None, 4: None}, True),
    ],
)
def test_five_samples_lock_early(ballots: dict[int, str | None], is_locked: bool) -> None:
    assert locked(ballots, 5) is is_locked


@given(st.dictionaries(st.integers(0, 4), st.sampled_from(["a", "b", "c", None]), max_size=5))
def test_locked_means_that_no_completion_changes_the_winning_value(ballots: dict[int, str | None]) -> None:
    outstanding = [index for index in range(5) if index not in ballots]
    values = set()
    for rest in itertools.product(["a", "b", "c", "new", None], repeat=len(outstanding)):
        final = {**ballots, **dict(zip(outstanding, rest, strict=True))}
        index = winner(final)
        values.add(None if index is None else final[index])
    assert locked(ballots, 5) == (len(values) == 1)
