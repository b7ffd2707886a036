"""What every page's shell shows."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from fleet.models import RatesVersion


def shell(request: HttpRequest) -> dict[str, Any]:
    """Looked up only by a template that shows it; JSON and fragments cost nothing."""
    return {"emulation": SimpleLazyObject(_emulation)}


def _emulation() -> list[float]:
    """The time scale of the default fleet's emulated rates, as a list of one; empty when no backend is emulated."""
    rates = RatesVersion.objects.filter(
        active=True, backend__fleet__is_default=True, backend__emulated=True, backend__enabled=True
    )
    return list(rates.values_list("time_scale", flat=True)[:1])
