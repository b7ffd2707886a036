"""What a run has left to plan after a recovery (paper 5.2): the state, and the suffix's own problem."""

from __future__ import annotations

from planner.compiler.residual.settled import InFlight, Settled, Spent
from planner.compiler.residual.suffix import (
    ResidualProblem,
    compile_residual,
    compile_residual_bundle,
    dispatched,
    remaining_limits,
    residual_key,
)

__all__ = [
    "InFlight",
    "ResidualProblem",
    "Settled",
    "Spent",
    "compile_residual",
    "compile_residual_bundle",
    "dispatched",
    "remaining_limits",
    "residual_key",
]
