"""Majority vote with an early lock (ours): a majority that no outstanding ballot can change is final."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tally:
    votes: int
    first: int

    def beats(self, other: _Tally) -> bool:
        """More votes; at equal votes the value with the lower sample index."""
        return (-self.votes, self.first) < (-other.votes, other.first)


def winner(ballots: Mapping[int, str | None]) -> int | None:
    """The lowest sample index of the winning value; None without a valid ballot.

    `ballots` maps sample indices to canonical values; None is a sample that has no valid output and no vote.
    """
    tallies = _tallies(ballots)
    if not tallies:
        return None
    return min(tallies.values(), key=lambda tally: (-tally.votes, tally.first)).first


def locked(ballots: Mapping[int, str | None], samples: int) -> bool:
    """Whether the winner is final although only some of the `samples` ballots are in.

    The worst that can happen to the leader is that all outstanding ballots agree on one rival, new or known.
    """
    outstanding = [index for index in range(samples) if index not in ballots]
    if not outstanding:
        return True
    leader_index = winner(ballots)
    if leader_index is None:
        return False
    tallies = _tallies(ballots)
    leader = tallies.pop(str(ballots[leader_index]))
    rivals = [*tallies.values(), _Tally(votes=0, first=samples)]
    return not any(_reinforced(rival, outstanding).beats(leader) for rival in rivals)


def _reinforced(rival: _Tally, outstanding: list[int]) -> _Tally:
    return _Tally(votes=rival.votes + len(outstanding), first=min(rival.first, outstanding[0]))


def _tallies(ballots: Mapping[int, str | None]) -> dict[str, _Tally]:
    tallies: dict[str, _Tally] = {}
    for index in sorted(ballots):
        value = ballots[index]
        if value is not None:
            known = tallies.get(value, _Tally(votes=0, first=index))
            tallies[value] = _Tally(votes=known.votes + 1, first=known.first)
    return tallies
