"""The priced objective, beside the paper's (MATH.md, Priced bundles; ours).

maximise  sum log(max(1 - v_n r_n, 1e-6))  -  level * sum over classes k of price_k * gpu_s_k  -  epsilon * T
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

EPSILON_PER_S = 0.0004
LEAST_QUALITY = 1e-6
"""The logarithm's argument is never below this."""


@dataclass(frozen=True, kw_only=True)
class Pricing:
    """`prices` per GPU-second by model class, at level 1; `epsilon` per second of makespan."""

    prices: Mapping[str, float]
    epsilon: float = EPSILON_PER_S
