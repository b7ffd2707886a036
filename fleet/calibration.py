"""Calibrates a backend on one of its replicas and stores the rates as a new version, beside those in use."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from asgiref.sync import async_to_sync

from fleet.errors import CalibrationRefused
from fleet.models import Backend, RatesVersion, Replica
from fleet.selectors import active_rates, api_key, rates_value
from fleet.services import address_policy, record_rates
from fleet.serving.calibrate import (
    Calibration,
    CalibrationPlan,
    OnProgress,
    concurrencies_up_to,
    fit,
    measure,
    with_time_scale,
)
from fleet.serving.client import ServingClient
from fleet.serving.metrics import MetricsPage
from fleet.serving.roofline import CONTEXT_TOKENS

DRIFT = 0.15
"""Relative difference from the rates in use from which they are said to have drifted."""
COMPARED = ("decode_tokens_per_s", "prefill_base_s", "prefill_per_token_s", "capacity")


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """What was measured, the version it was stored as, and by what factor each rate differs from those in use.

    `changes` is empty for a backend that had no rates.
    """

    calibration: Calibration
    stored: RatesVersion
    replica: str
    changes: dict[str, float]

    @property
    def drifted(self) -> tuple[str, ...]:
        """Rates that differ from those in use by more than DRIFT."""
        return tuple(name for name, factor in self.changes.items() if abs(factor - 1) > DRIFT)

    def to_json(self) -> dict[str, Any]:
        backend, found = self.stored.backend, self.calibration.to_json()
        found["rates"]["version"] = self.stored.version
        return found | {
            "backend": backend.name,
            "replica": self.replica,
            "emulated": backend.emulated,
            "version": self.stored.version,
            "active": self.stored.active,
            "changes": self.changes,
            "drifted": list(self.drifted),
        }


def calibrate(
    backend: Backend,
    *,
    replica: str | None = None,
    at: int | None = None,
    most: int | None = None,
    repeats: int = 2,
    output_tokens: int = 128,
    activate: bool = False,
    on_progress: OnProgress | None = None,
) -> Calibrated:
    """Measures one replica (by name, or the first that is enabled) and stores a new version, active only on demand.

    A rough one never takes the place of rates in use: that is left to a person.

    `at`: the concurrency at which the rates shall hold (half of `most`); `most`: the largest that is measured, at most
    what the server admits. Raises CalibrationRefused for what cannot be measured, CalibrationFailed for what cannot be
    fitted, and ServingError for a replica that does not answer.
    """
    chosen, before = _replica(backend, replica), active_rates(backend)
    limit = min(most or backend.max_num_seqs, backend.max_num_seqs)
    try:
        plan = CalibrationPlan(concurrencies=concurrencies_up_to(limit), repeats=repeats, output_tokens=output_tokens)
    except ValueError as error:
        raise CalibrationRefused(str(error)) from error
    found = async_to_sync(_measured)(
        chosen, backend.served_name or backend.model_class.name, plan, at or max(1, limit // 2), on_progress
    )
    if backend.emulated and before is not None:
        found = with_time_scale(found, before.time_scale)
    note = f"measured on {chosen.name}, 1 to {limit} at once"
    stored = record_rates(
        backend, found.rates, note=note, activate=activate and not (found.rough and before is not None)
    )
    return Calibrated(
        calibration=found,
        stored=stored,
        replica=chosen.name,
        changes={} if before is None else _changes(found, before),
    )


def _replica(backend: Backend, name: str | None) -> Replica:
    rows = backend.replicas.select_related("backend__model_class")
    if name is not None:
        found = rows.filter(name=name).first()
        if found is None:
            known = ", ".join(rows.values_list("name", flat=True)) or "none"
            raise CalibrationRefused(f"backend {backend.name} has no replica {name}: it has {known}")
        return found
    enabled = rows.filter(state=Replica.State.ENABLED).first()
    if enabled is None:
        raise CalibrationRefused(f"backend {backend.name} has no enabled replica: enable one, or name one")
    return enabled


async def _measured(
    replica: Replica, model: str, plan: CalibrationPlan, at: int, on_progress: OnProgress | None
) -> Calibration:
    key, policy = api_key(replica), address_policy()
    async with ServingClient(policy=policy) as client:
        page = await client.metrics(replica.url, api_key=key)
        served = {item.name: item.max_model_len for item in await client.models(replica.url, api_key=key)}
        if model not in served:
            names = ", ".join(served) or "no model"
            raise CalibrationRefused(f"{replica.name} serves {names}, not {model}: correct the backend's served name")
        measured = await measure(
            client,
            replica.url,
            model,
            plan,
            context_tokens=served[model],
            api_key=key,
            on_progress=on_progress,
        )
    found = fit(
        measured,
        at=at,
        max_num_seqs=replica.backend.max_num_seqs,
        kv_tokens=page.kv_cache_tokens,
        context_tokens=CONTEXT_TOKENS,
    )
    return replace(found, notes=(*found.notes, *_busy(page)))


def _busy(page: MetricsPage) -> tuple[str, ...]:
    others = (page.running or 0) + (page.waiting or 0)
    if not others:
        return ()
    return (f"{others:g} other requests ran or waited when it began: drain the replica and calibrate it again",)


def _changes(found: Calibration, before: RatesVersion) -> dict[str, float]:
    """New over old, for every rate that both have and that is not 0."""
    old = rates_value(before)
    return {name: getattr(found.rates, name) / getattr(old, name) for name in COMPARED if getattr(old, name)}
