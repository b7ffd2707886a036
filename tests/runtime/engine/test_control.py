from __future__ import annotations

import asyncio

from runtime.engine.control import LocalControl
from runtime.engine.ports import ControlState
from tests.runtime.engine.samples import bundle as bundle_of
from tests.runtime.engine.samples import impl, plan


async def test_control_wakes_for_what_is_unseen_only() -> None:
    control = LocalControl()
    control.cancel()
    await control.wait()
    assert control.state().cancel
    waiting = asyncio.ensure_future(control.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    control.release()
    await waiting
    assert control.state().release


def test_what_is_asked_adds_up() -> None:
    control = LocalControl()
    assert control.state() == ControlState()
    full = bundle_of(plan({"a": impl()}))
    control.deliver(full)
    control.cancel()
    control.release()
    assert control.state() == ControlState(cancel=True, release=True, bundle=full)
