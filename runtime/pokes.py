"""Pokes: what processes tell each other through the channel layer (DESIGN.md, Durable execution).

A poke says that a run has events up to `seq`, a control message that runs were cancelled or bundles completed. Both
carry ids alone and may be lost: whoever listens reads the database, and reads it again every two seconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from redis.exceptions import RedisError

from fleet.common.loops import let_cancellation_through

logger = logging.getLogger(__name__)

RUNS_GROUP = "dyserve.runs"
CONTROL_GROUP = "dyserve.control"
LAYER_ERRORS: tuple[type[Exception], ...] = (RedisError, OSError, TimeoutError)
"""What the channel layer raises when its server is away."""
SEND_TIMEOUT_S = 2.0
SPACING_S = 0.02


class ChannelLayer(Protocol):
    async def group_send(self, group: str, message: Mapping[str, Any]) -> None: ...

    async def group_add(self, group: str, channel: str) -> None: ...

    async def new_channel(self) -> str: ...

    async def receive(self, channel: str) -> Mapping[str, Any]: ...


def poke_message(written: Iterable[tuple[str, int]]) -> dict[str, Any]:
    """Of several commits of one run the last counts."""
    latest: dict[str, int] = {}
    for run_id, seq in written:
        latest[run_id] = max(seq, latest.get(run_id, 0))
    return {"type": "poke", "runs": [[run_id, seq] for run_id, seq in latest.items()]}


def control_message(*, cancel: Sequence[str] = (), bundles: Sequence[int] = ()) -> dict[str, Any]:
    return {"type": "control", "cancel": list(cancel), "bundles": list(bundles)}


async def send(layer: ChannelLayer, group: str, message: Mapping[str, Any]) -> bool:
    """Send one message; False, and one line in the log, when the layer's server is away."""
    try:
        async with asyncio.timeout(SEND_TIMEOUT_S):
            await layer.group_send(group, message)
    except LAYER_ERRORS as error:
        logger.warning("message to %s lost: %s", group, str(error) or type(error).__name__)
        return False
    return True


class PokeSender:
    """Sends one message for all commits that became durable since the last one. Belongs to one event loop."""

    def __init__(self, layer: ChannelLayer, *, spacing_s: float = SPACING_S) -> None:
        self._layer, self._spacing_s = layer, spacing_s
        self._latest: dict[str, int] = {}
        self._waiting = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(self, written: Iterable[tuple[str, int]]) -> None:
        for run_id, seq in written:
            self._latest[run_id] = max(seq, self._latest.get(run_id, 0))
        self._waiting.set()

    def add_from_thread(self, written: Iterable[tuple[str, int]]) -> None:
        """The same from the writer's thread; before `run` nobody listens, and after it nobody can."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.add, list(written))

    async def run(self) -> None:
        """Send until cancelled. The first poke after a quiet time leaves at once."""
        self._loop = asyncio.get_running_loop()
        while True:
            await self._waiting.wait()
            self._waiting.clear()
            latest, self._latest = self._latest, {}
            await send(self._layer, RUNS_GROUP, poke_message(latest.items()))
            let_cancellation_through()
            await asyncio.sleep(self._spacing_s)
