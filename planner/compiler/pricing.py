"""The priced objective, beside the paper's (MATH.md, Priced bundles; ours).

maximise  sum log(max(1 - v_n r_n, 1e-6))  -  level * sum over classes k of price_k * gpu_s_k  -  epsilon * T

GPU-seconds are the hardware's own, whatever an emulator's time scale is; T is in the fleet's wall seconds. So epsilon
is scaled here: an emulated fleet gets the plans of the fleet that it emulates. Tools are not sped up: there they count
for more where they run beside LLM nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

from fleet.serving.catalog import Catalog

EPSILON_PER_S = 0.0004
"""Objective per second of makespan at the hardware's own speed."""

PRICE_LEVELS: tuple[float, ...] = (0.005, 0.015, 0.04, 0.09, 0.2, 5.0)
"""The study's five, and one at which hardly anything is worth its GPU-seconds: prices are absolute, and of workflows
smaller than the study's the first five alone leave even the last plan twice as dear as the cheapest one (ADR 8)."""
LARGEST_PRICE = 1 / 0.7
OTHER_PRICE = 0.7
LEAST_QUALITY = 1e-6
"""The logarithm's argument is never below this."""


@dataclass(frozen=True, kw_only=True)
class Pricing:
    """`prices` per GPU-second by model class, at level 1; `epsilon` per wall second of makespan.

    Raises ValueError on numbers that are negative or not finite.
    """

    prices: Mapping[str, float]
    epsilon: float = EPSILON_PER_S

    def __post_init__(self) -> None:
        for model, price in self.prices.items():
            if not (isfinite(price) and price >= 0):
                raise ValueError(f"the price of {model} must be a number that is not negative, got {price}")
        if not (isfinite(self.epsilon) and self.epsilon >= 0):
            raise ValueError(f"epsilon must be a number that is not negative, got {self.epsilon}")

    def unpriced(self, catalog: Catalog) -> tuple[str, ...]:
        """Served classes without a price, smallest first."""
        return tuple(model.name for model in catalog.served_models() if model.name not in self.prices)


def fleet_pricing(catalog: Catalog, prices: Mapping[str, float] | None = None) -> Pricing:
    """Pricing of a fleet; `prices` are its own ones where it sets them, over the default of each class.

    Raises ValueError on a price that is no price, or of a class that the fleet does not serve.
    """
    own, default = prices or {}, default_prices(catalog)
    strange = sorted(set(own) - set(default))
    if strange:
        raise ValueError(f"prices name {', '.join(strange)}; this fleet serves {', '.join(default) or 'no class'}")
    return Pricing(prices={**default, **own}, epsilon=EPSILON_PER_S * time_scale(catalog))


def default_prices(catalog: Catalog) -> Mapping[str, float]:
    """1/0.7 for the largest served class, 0.7 for all others, smallest first."""
    served = [model.name for model in catalog.served_models()]
    return {name: LARGEST_PRICE if name == served[-1] else OTHER_PRICE for name in served}


def time_scale(catalog: Catalog) -> float:
    """How much faster than its hardware a fleet runs. Of a mixed one the slowest backend's: real servers beside
    emulated ones keep their epsilon.
    """
    return min((backend.rates.time_scale for backend in catalog.backends), default=1.0)
