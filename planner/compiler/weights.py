"""Weights of the objective and their three named presets (terms: paper 4.3; units, values and presets ours).

Every term is normalised (MATH.md), so a weight means the same for small and large workflows and the paper's
lambda_l values (0.05, 0.1, 0.2: unit unknown) do not carry over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import inf
from types import MappingProxyType

DEFAULT_EFFORT = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """`lambda_l` latency, `lambda_r` residual risk, `lambda_c` cost, `lambda_d` demand (times L), `beta` reach.

    All dimensionless. Raises ValueError on a weight that is negative or not finite.
    """

    lambda_l: float = 0.05
    lambda_r: float = 1.0
    lambda_c: float = 0.05
    lambda_d: float = 0.1
    beta: float = 2.0

    def __post_init__(self) -> None:
        for field in fields(self):
            if not 0 <= getattr(self, field.name) < inf:
                raise ValueError(
                    f"weight {field.name} must be finite and not negative, got {getattr(self, field.name)}"
                )


PRESETS: Mapping[str, Weights] = MappingProxyType(
    {
        "quality_leaning": Weights(lambda_l=0.05),
        "balanced": Weights(lambda_l=0.15),
        "fast": Weights(lambda_l=0.4),
    }
)
"""Chosen by the sweep and the rule of `planner.data.sweep` over the demonstration workflows; a test repeats it."""
