"""What the world asks of a run, as one value that is changed in place and waited for."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from planner.compiler.plan import Bundle
from runtime.engine.ports import ControlState


class LocalControl:
    """The `Control` of a run whose world lives on the same event loop. Not thread-safe: change it on the loop.

    `state()` marks everything up to now as seen; `wait()` returns as soon as something is unseen.
    """

    def __init__(self, state: ControlState | None = None) -> None:
        self._state = state or ControlState()
        self._unseen = asyncio.Event()

    def state(self) -> ControlState:
        self._unseen.clear()
        return self._state

    async def wait(self) -> None:
        await self._unseen.wait()

    def cancel(self) -> None:
        """Ask the run to end as cancelled; a run that has done everything already still succeeds."""
        self._change(replace(self._state, cancel=True))

    def release(self) -> None:
        """Ask the engine to let go of the run without ending it."""
        self._change(replace(self._state, release=True))

    def deliver(self, bundle: Bundle) -> None:
        """Hand over the completed bundle."""
        self._change(replace(self._state, bundle=bundle))

    def _change(self, state: ControlState) -> None:
        self._state = state
        self._unseen.set()
