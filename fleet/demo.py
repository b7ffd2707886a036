"""The demo fleet as values: (2+2) replicas of 27B and 9B and one of 4B on emulated H200s (DESIGN.md).

Rates come from the roofline, not from a measurement; with time scale k every emulated duration is divided by k.
"""

from __future__ import annotations

from dataclasses import dataclass

from fleet.catalogs import versioned_catalog
from fleet.serving.catalog import Backend, Catalog, ModelClass
from fleet.serving.rates import ServiceRates
from fleet.serving.roofline import H200, QWEN35_4B, QWEN35_9B, QWEN35_27B, ModelSpec, nominal_rates

FLEET = "demo"
HARDWARE = "h200"
MAX_NUM_SEQS = 32
CONCURRENCY = 16
"""Sequences per replica at which the stated rates hold: half of what a replica admits."""

PRICE_PER_BILLION = 1e-3
"""Relative price of a token per billion parameters (MATH.md's default price): a 27B token costs three 9B tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoBackend:
    """One backend of the demo fleet with its replicas, in port order."""

    name: str
    spec: ModelSpec
    size_rank: int
    replicas: tuple[str, ...]

    @property
    def parameters_b(self) -> float:
        return self.spec.parameters / 1e9

    def model_class(self) -> ModelClass:
        price = self.parameters_b * PRICE_PER_BILLION
        return ModelClass(
            name=self.spec.name,
            size_rank=self.size_rank,
            parameters_b=self.parameters_b,
            context_tokens=32768,
            price_in=price,
            price_out=price,
        )

    def rates(self, time_scale: float) -> ServiceRates:
        return nominal_rates(H200, self.spec, CONCURRENCY, MAX_NUM_SEQS).scaled(time_scale)


BACKENDS = (
    DemoBackend(name="h200-27b", spec=QWEN35_27B, size_rank=3, replicas=("27b-0", "27b-1")),
    DemoBackend(name="h200-9b", spec=QWEN35_9B, size_rank=2, replicas=("9b-0", "9b-1")),
    DemoBackend(name="h200-4b", spec=QWEN35_4B, size_rank=1, replicas=("4b-0",)),
)
REPLICAS = tuple(replica for backend in BACKENDS for replica in backend.replicas)


def replica_url(base_port: int, replica: str) -> str:
    return f"http://127.0.0.1:{base_port + REPLICAS.index(replica)}"


def demo_catalog(time_scale: float = 1.0) -> Catalog:
    """What the demo fleet offers to the planner, without a database."""
    backends = tuple(
        Backend(
            name=backend.name,
            model=backend.spec.name,
            hardware=HARDWARE,
            rates=backend.rates(time_scale),
            emulated=True,
        )
        for backend in BACKENDS
    )
    return versioned_catalog((backend.model_class() for backend in BACKENDS), backends)
