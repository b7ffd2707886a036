"""The hub of this web process, on the database and the channel layer of the settings, and the overview's document."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from channels.layers import get_channel_layer
from django.contrib.auth.models import User

from fleet.common.feeds import shared
from fleet.common.loops import forget, of_loop
from fleet.common.threads import in_thread
from runtime.engine.events import RunState
from runtime.hub import BATCH, Event, Head, Hub
from runtime.models import Run
from runtime.overview import overview
from runtime.selectors import events_after

_HUB = "runtime.hub"
_ENDED = frozenset(state for state in RunState if state.ended)


class DatabaseLog:
    """`EventLog` on the database; the reads run in threads that belong to no request."""

    async def heads(self, run_ids: Sequence[str]) -> Mapping[str, Head]:
        return await in_thread(_heads, run_ids)

    async def tails(self, cursors: Mapping[str, int]) -> Mapping[str, Sequence[Event]]:
        return await in_thread(_tails, cursors)


def _heads(run_ids: Sequence[str]) -> dict[str, Head]:
    rows = Run.objects.filter(pk__in=run_ids).values_list("pk", "last_seq", "state")
    return {run_id: Head(seq=seq, ended=state in _ENDED) for run_id, seq, state in rows}


def _tails(cursors: Mapping[str, int]) -> dict[str, Sequence[Event]]:
    return {run_id: events_after(run_id, seq, BATCH) for run_id, seq in cursors.items()}


def hub() -> Hub:
    """The running loop's hub; a closed one is replaced."""
    found = of_loop(_HUB, _new_hub)
    if found.closed:
        forget(_HUB)
        found = of_loop(_HUB, _new_hub)
    return found


async def close_hub() -> None:
    """Ends every watch of the running loop: the process is going down."""
    found: Hub | None = forget(_HUB)
    if found is not None:
        await found.close()


def _new_hub() -> Hub:
    return Hub(layer=get_channel_layer(), log=DatabaseLog())


def overviews(user: User) -> AsyncGenerator[str, None]:
    """A user's overview once a second, as JSON text; made once for all of the user's pages."""

    async def produce() -> Mapping[str, Any]:
        return await in_thread(overview, user, time.time())

    return shared(("runtime.overview", user.pk), produce)
