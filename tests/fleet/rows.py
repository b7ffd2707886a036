"""Rows that several tests of the fleet's Django side start from."""

from __future__ import annotations

from fleet.models import Backend, Fleet
from fleet.services import seed_demo_fleet
from fleet.serving.rates import ServiceRates


def demo(base_port: int = 18100, time_scale: float = 10.0) -> Fleet:
    return seed_demo_fleet(base_port, time_scale)


def backend(name: str = "h200-9b") -> Backend:
    return Backend.objects.get(name=name)


def rates(decode_tokens_per_s: float = 100.0) -> ServiceRates:
    return ServiceRates(
        decode_tokens_per_s=decode_tokens_per_s,
        prefill_base_s=0.01,
        prefill_per_token_s=0.0001,
        concurrency=8,
        capacity=16,
        source="calibrated",
    )
