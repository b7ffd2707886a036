from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from runtime.pokes import RUNS_GROUP, PokeSender, control_message, poke_message, send
from tests.runtime.workers import DeafLayer


class SlowLayer(DeafLayer):
    """Sends one message at a time, and only when it is let."""

    def __init__(self) -> None:
        self.sent: list[Mapping[str, Any]] = []
        self.arrived, self.go = asyncio.Event(), asyncio.Event()

    async def group_send(self, group: str, message: Mapping[str, Any]) -> None:
        assert group == RUNS_GROUP
        self.sent.append(message)
        self.arrived.set()
        await self.go.wait()


def test_of_several_commits_the_last_counts() -> None:
    assert poke_message([("a", 2), ("b", 1), ("a", 5), ("a", 3)]) == {"type": "poke", "runs": [["a", 5], ["b", 1]]}


def test_a_control_message_carries_ids() -> None:
    assert control_message(bundles=[4]) == {"type": "control", "cancel": [], "bundles": [4]}


async def test_pokes_gather_while_one_is_being_sent() -> None:
    layer = SlowLayer()
    sender = PokeSender(layer, spacing_s=0)
    task = asyncio.create_task(sender.run())
    sender.add([("a", 1)])
    await layer.arrived.wait()
    layer.arrived.clear()
    for seq in range(2, 6):
        sender.add([("a", seq), ("b", seq)])
    layer.go.set()
    await layer.arrived.wait()
    task.cancel()
    assert layer.sent == [
        {"type": "poke", "runs": [["a", 1]]},
        {"type": "poke", "runs": [["a", 5], ["b", 5]]},
    ]


async def test_a_layer_that_is_away_loses_a_poke_and_no_more() -> None:
    class Away(SlowLayer):
        async def group_send(self, group: str, message: Mapping[str, Any]) -> None:
            self.sent.append(message)
            self.arrived.set()
            raise ConnectionRefusedError("no server")

    layer = Away()
    sender = PokeSender(layer, spacing_s=0)
    task = asyncio.create_task(sender.run())
    for seq in (1, 2):
        sender.add([("a", seq)])
        await layer.arrived.wait()
        layer.arrived.clear()
    task.cancel()
    assert [message["runs"] for message in layer.sent] == [[["a", 1]], [["a", 2]]]


@pytest.mark.parametrize("error", [ConnectionResetError("the clean-up failed"), None], ids=["replaced", "swallowed"])
async def test_a_sender_ends_although_its_layer_loses_the_cancellation(error: Exception | None) -> None:
    class Failing(SlowLayer):
        async def group_send(self, group: str, message: Mapping[str, Any]) -> None:
            self.arrived.set()
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                if error is not None:
                    raise error from None

    layer = Failing()
    sender = PokeSender(layer)
    task = asyncio.create_task(sender.run())
    sender.add([("a", 1)])
    await layer.arrived.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_the_writer_may_poke_before_the_loop_and_after_it() -> None:
    layer_sender = PokeSender(DeafLayer())
    layer_sender.add_from_thread([("a", 1)])

    async def start() -> None:
        task = asyncio.create_task(layer_sender.run())
        await asyncio.sleep(0)
        task.cancel()

    asyncio.run(start())
    layer_sender.add_from_thread([("a", 2)])


async def test_a_message_that_is_lost_says_why_even_where_the_error_has_no_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Hung(DeafLayer):
        async def group_send(self, group: str, message: Mapping[str, Any]) -> None:
            raise TimeoutError

    assert not await send(Hung(), RUNS_GROUP, {})
    assert "lost: TimeoutError" in caplog.text
