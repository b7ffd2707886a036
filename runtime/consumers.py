"""WebSockets of runs: `/ws/runs/<id>/?after=<seq>` and `/ws/overview/`."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Sequence
from typing import Any
from urllib.parse import parse_qs

from fleet.common.sockets import BAD_REQUEST, NOT_FOUND, TRY_LATER, SocketRefused, StreamConsumer
from fleet.common.threads import in_thread
from runtime.hub import Event
from runtime.live import hub, overviews
from runtime.selectors import runs_for

HEARTBEAT_S = 10.0
MAX_SEQ = 2**31 - 1


def after_of(query: bytes) -> int:
    """The cursor of a query string. Raises SocketRefused 4400 on anything but a whole number."""
    text = parse_qs(query.decode("latin-1")).get("after", ["0"])[-1]
    if not (text.isascii() and text.isdigit() and len(text) < 20) or int(text) > MAX_SEQ:
        raise SocketRefused(BAD_REQUEST, "after must be the seq of an event")
    return int(text)


def events_message(run_id: str, events: Sequence[Event]) -> str:
    """Without events it is a heartbeat: it still tells the server's time."""
    return json.dumps(
        {"type": "events", "run": run_id, "server_time": time.time(), "events": events}, separators=(",", ":")
    )


class RunConsumer(StreamConsumer):
    """The run's events after `after`, first those it has, then live ones; closes with 1000 after the run's end.

    4401 not logged in, 4404 no such run of this user, 4400 a bad cursor, 1012 the process stops: come back with the
    last seq.
    """

    async def messages(self) -> AsyncGenerator[str, None]:
        run_id = str(self.scope["url_route"]["kwargs"]["run_id"])
        after = after_of(self.scope["query_string"])
        if not await in_thread(_may_watch, self.user, run_id):
            raise SocketRefused(NOT_FOUND, "no such run")
        async with hub().watch(run_id, after) as watch:
            while not watch.finished:
                events = await watch.take(HEARTBEAT_S)
                if watch.closed and not events:
                    raise SocketRefused(TRY_LATER, "the server restarts")
                if events or not watch.finished:
                    yield events_message(run_id, events)


class OverviewConsumer(StreamConsumer):
    """The user's overview, once a second."""

    async def messages(self) -> AsyncGenerator[str, None]:
        async for text in overviews(self.user):
            yield text


def _may_watch(user: Any, run_id: str) -> bool:
    return runs_for(user).filter(pk=run_id).exists()
