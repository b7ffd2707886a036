"""A run's events as server-sent events: ids to resume by, heartbeats, an end (ours)."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Callable, Sequence

from runtime.hub import Event, Hub

HEARTBEAT_S = 10.0
RETRY_MS = 2000

Now = Callable[[], float]


async def sse_events(
    hub: Hub, run_id: str, after: int, *, heartbeat_s: float = HEARTBEAT_S, now: Now = time.time
) -> AsyncGenerator[bytes, None]:
    """The run's events after `after`: first those it has, then live ones. Ends, with an event `end`, after the run.

    A stream that ends without `end` was cut by a server going down: its client comes back with Last-Event-ID.
    """
    yield f"retry: {RETRY_MS}\n\n".encode()
    async with hub.watch(run_id, after) as watch:
        while not watch.finished:
            events = await watch.take(heartbeat_s)
            if events:
                yield sse_text(events, now()).encode()
            elif watch.closed:
                return
            elif not watch.finished:
                # A comment: keeps proxies from closing the connection and shows its age.
                yield f": alive {now():.3f}\n\n".encode()
        yield sse_end(watch.seq, now()).encode()


def sse_text(events: Sequence[Event], server_time: float) -> str:
    return "".join(_message(event, server_time) for event in events)


def sse_end(seq: int, server_time: float) -> str:
    data = json.dumps({"seq": seq, "server_time": server_time}, separators=(",", ":"))
    return f"event: end\ndata: {data}\n\n"


def _message(event: Event, server_time: float) -> str:
    data = json.dumps({**event, "server_time": server_time}, separators=(",", ":"))
    return f"id: {event['seq']}\nevent: {event['kind']}\ndata: {data}\n\n"
