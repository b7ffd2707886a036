"""What a fleet offers to the planner: model classes, backends, their rates and prices (paper 3.3).

A backend is a pool of identical replicas; replicas are chosen at dispatch, never by the ILP (ours: no symmetric ones).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

from fleet.serving.rates import ServiceRates


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelClass:
    """One served model. `size_rank` orders classes from small to large; prices are per token, relative units.

    Raises ValueError on a price that is negative or not finite.
    """

    name: str
    size_rank: int
    parameters_b: float
    context_tokens: int
    price_in: float
    price_out: float
    reasoning: bool = True

    def __post_init__(self) -> None:
        if not (0 <= self.price_in < inf and 0 <= self.price_out < inf):
            raise ValueError(f"the prices of {self.name} must be finite and not negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """A pool of identical replicas: one model, one hardware type, one set of calibrated rates."""

    name: str
    model: str
    hardware: str
    rates: ServiceRates
    emulated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """Model classes and backends of one fleet. `version` changes whenever anything the planner reads changes.

    Raises ValueError on duplicate names and on a backend that serves an unknown model.
    """

    models: tuple[ModelClass, ...]
    backends: tuple[Backend, ...]
    version: str = "0"
    _by_model: dict[str, ModelClass] = field(init=False, repr=False, compare=False)
    _by_backend: dict[str, Backend] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_model = {model.name: model for model in self.models}
        by_backend = {backend.name: backend for backend in self.backends}
        if len(by_model) != len(self.models) or len(by_backend) != len(self.backends):
            raise ValueError("model class and backend names must be unique")
        for backend in self.backends:
            if backend.model not in by_model:
                raise ValueError(f"backend {backend.name} serves unknown model {backend.model}")
        object.__setattr__(self, "_by_model", by_model)
        object.__setattr__(self, "_by_backend", by_backend)

    def model(self, name: str) -> ModelClass:
        return self._by_model[name]

    def backend(self, name: str) -> Backend:
        return self._by_backend[name]

    def backends_of(self, model: str) -> tuple[Backend, ...]:
        return tuple(backend for backend in self.backends if backend.model == model)

    def served_models(self) -> tuple[ModelClass, ...]:
        """Model classes with at least one backend, smallest first."""
        served = {backend.model for backend in self.backends}
        return tuple(sorted((m for m in self.models if m.name in served), key=lambda m: (m.size_rank, m.name)))

    def next_larger(self, model: str, legal: Iterable[str]) -> ModelClass | None:
        """The smallest legal served class that is larger than `model`, or None."""
        rank, allowed = self.model(model).size_rank, set(legal)
        larger = [m for m in self.served_models() if m.size_rank > rank and m.name in allowed]
        return larger[0] if larger else None
