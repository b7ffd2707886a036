"""One replica in real time, with the test's own clock: the time scale, the timer and the pace of deltas."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from fleet.emulator.app import EmulatorApp
from fleet.emulator.config import EmulatorConfig, ReplicaConfig
from fleet.emulator.engine import QueueFull
from fleet.emulator.replica import EmulatedReplica, EngineStopped
from fleet.serving.metrics import parse_metrics
from fleet.serving.roofline import H200, QWEN35_9B, prefill_s


class Hands:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.time = 50.0

    def __call__(self) -> float:
        return self.time


def _replica(hands: Hands, scale: float = 10, **changes: Any) -> EmulatedReplica:
    config = ReplicaConfig(**{"name": "a", "model": "qwen3.5-9b", "max_num_seqs": 2, **changes})
    return EmulatedReplica(config, EmulatorConfig(replicas=(config,), time_scale=scale), hands)


async def test_the_time_scale_divides_every_duration() -> None:
    hands = Hands()
    replica = _replica(hands, scale=10)
    ticket = replica.submit(1000, 50, "stop")
    prefill_wall_s = prefill_s(H200, QWEN35_9B, 1000) / 10
    hands.time += prefill_wall_s * 0.99
    replica.tokens_done(ticket)
    assert not ticket.first_token.done()
    hands.time += prefill_wall_s * 0.02
    assert replica.tokens_done(ticket) == 1
    assert ticket.first_token.done()
    hands.time += 100
    replica.metrics()
    timings = ticket.finished.result()
    assert replica.wall_s(timings.first_token_at - timings.arrived_at) == pytest.approx(prefill_wall_s)


async def test_metrics_show_what_it_holds_and_did() -> None:
    hands = Hands()
    replica = _replica(hands, max_queued=1)
    tickets = [replica.submit(100, 50, "stop") for _ in range(3)]
    with pytest.raises(QueueFull):
        replica.submit(100, 50, "stop")
    page = parse_metrics(replica.metrics())
    assert (page.running, page.waiting, page.rejections) == (2, 1, 1)
    replica.cancel(tickets[2])
    replica.cancel(tickets[2])
    hands.time += 100
    text = replica.metrics()
    assert parse_metrics(text).generation_tokens == 100
    assert 'finished_reason="stop"} 2.0' in text
    assert 'finished_reason="abort"} 1.0' in text
    assert replica.load == 0
    replica.stop()


async def test_stopping_fails_what_is_in_flight_and_refuses_the_rest() -> None:
    replica = _replica(Hands())
    ticket = replica.submit(100, 50, "stop")
    replica.stop()
    with pytest.raises(EngineStopped):
        await ticket.finished
    with pytest.raises(EngineStopped):
        replica.submit(100, 50, "stop")


async def test_the_replica_s_own_timer_finishes_a_request_that_nobody_looks_at() -> None:
    config = ReplicaConfig(name="a", model="qwen3.5-9b")
    emulator = EmulatorConfig(replicas=(config,), time_scale=1000)
    replica = EmulatedReplica(config, emulator, asyncio.get_running_loop().time)
    timings = await replica.submit(100, 50, "stop").finished
    assert timings.finished_at > timings.first_token_at


async def test_a_stream_sends_at_most_four_deltas_a_second() -> None:
    loop = asyncio.get_running_loop()
    config = ReplicaConfig(name="a", model="qwen3.5-9b")
    emulator = EmulatorConfig(replicas=(config,), mean_output_tokens={"text": 300}, sigma=0)
    body = json.dumps({"model": "qwen3.5-9b", "prompt": "Tell it all", "max_tokens": 900, "stream": True}).encode()
    inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    inbox.put_nowait({"type": "http.request", "body": body, "more_body": False})
    sent: list[float] = []

    async def send(message: Any) -> None:
        lines = message.get("body", b"").decode().splitlines()
        events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
        sent.extend(loop.time() for event in events if event["choices"][0]["text"])

    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": []}
    await EmulatorApp(EmulatedReplica(config, emulator, loop.time))(scope, inbox.get, send)
    assert len(sent) >= 5
    for start in sent:
        assert sum(start <= at < start + 0.999 for at in sent) <= 4
