"""What can go wrong in the fleet's services, as one tree; serving has its own (fleet/serving/errors.py)."""

from __future__ import annotations


class FleetError(Exception):
    """Root of the tree. The message names the remedy."""


class NoDefaultFleet(FleetError):
    """Nobody said which fleet, and none is the default."""

    def __init__(self) -> None:
        super().__init__("no fleet is the default one: mark one as default in the admin, or name a fleet")


class ReplicaRejected(FleetError):
    """A replica that cannot be registered; `problems` maps field to messages."""

    def __init__(self, problems: dict[str, list[str]]) -> None:
        self.problems = problems
        super().__init__("; ".join(f"{field}: {' '.join(messages)}" for field, messages in problems.items()))


class CalibrationRefused(FleetError):
    """A backend that cannot be calibrated as asked; the message names the place and the remedy."""
