"""What every page's shell shows."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpRequest


def shell(request: HttpRequest) -> dict[str, Any]:
    return {"time_scale": settings.EMULATOR_TIME_SCALE}
