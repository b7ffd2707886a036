"""WebSocket of a fleet: `/ws/fleet/`, the published pressure once a second."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from fleet.common.feeds import shared
from fleet.common.sockets import StreamConsumer
from fleet.common.threads import in_thread
from fleet.errors import NoDefaultFleet
from fleet.selectors import default_fleet, pressure


class FleetConsumer(StreamConsumer):
    async def messages(self) -> AsyncGenerator[str, None]:
        async for text in shared("fleet.pressure", _document):
            yield text


async def _document() -> Mapping[str, Any]:
    return await in_thread(pressure_message, time.time())


def pressure_message(now: float) -> dict[str, Any]:
    """`pressure` is None, with the reason, while nobody publishes it: the page shows unknown, never idle."""
    try:
        fleet = default_fleet()
    except NoDefaultFleet as error:
        return {"type": "pressure", "server_time": now, "fleet": None, "pressure": None, "reason": str(error)}
    published = pressure(fleet)
    return {
        "type": "pressure",
        "server_time": now,
        "fleet": fleet.name,
        "pressure": None if published is None else published.to_json(),
        "reason": "" if published is not None else "no monitor publishes the fleet's pressure",
    }
