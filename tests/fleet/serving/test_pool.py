"""Choosing replicas, caps and queues, retries and fail-over, with time and randomness under the test's control."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.serving.chat import ChatRequest, ChatResponse, Delta, Usage
from fleet.serving.choice import ChoiceRule
from fleet.serving.client import OnDelta
from fleet.serving.errors import (
    BadRequest,
    ConnectFailed,
    NoReplica,
    Overloaded,
    ServingError,
    StreamCut,
    TotalTimedOut,
)
from fleet.serving.pool import PoolSettings, Replica, ReplicaPool
from tests.sampling import sampled


class ManualClock:
    """Sleeping moves time at once, unless the sleeper asked for longer than `patience_s`: then it sleeps for ever."""

    def __init__(self, patience_s: float = 1e9) -> None:
        self.time, self.slept, self.patience_s = 100.0, list[float](), patience_s

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        if seconds > self.patience_s:
            await asyncio.Event().wait()
        self.slept.append(seconds)
        self.time += seconds
        await asyncio.sleep(0)


class ScriptedClient:
    """Answers by URL: errors in order, then an answer; `gate` holds answers back until it is set."""

    def __init__(self, clock: ManualClock, scripts: dict[str, list[ServingError]]) -> None:
        self._clock, self._scripts = clock, scripts
        self.calls: list[str] = []
        self.timeouts: list[float] = []
        self.active: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.gate = asyncio.Event()
        self.gate.set()
        self.cancelled = 0

    async def chat(self, url: str, request: ChatRequest, *, api_key: str | None = None) -> ChatResponse:
        self.calls.append(url)
        self.timeouts.append(request.timeout_s)
        self.active[url] += 1
        self.most[url] = max(self.most[url], self.active[url])
        try:
            await self.gate.wait()
            script = self._scripts.get(url)
            if script:
                raise script.pop(0)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.active[url] -= 1
        return ChatResponse(
            response_id="x",
            model=request.model,
            text=api_key or "",
            reasoning="",
            usage=Usage(prompt_tokens=1, output_tokens=1),
            finish_reason="stop",
            started_at=self._clock.now(),
            finished_at=self._clock.now(),
        )

    async def stream_chat(
        self, url: str, request: ChatRequest, *, api_key: str | None = None, on_delta: OnDelta | None = None
    ) -> ChatResponse:
        if on_delta is not None:
            on_delta(Delta(text="y"))
        return await self.chat(url, request, api_key=api_key)


def _request(**changes: Any) -> ChatRequest:
    values = {"request_id": "r", "model": "m", "messages": ({"role": "user", "content": "Hi"},), "max_tokens": 8}
    return ChatRequest(**{**values, **changes})


def _replicas(*names: str, backend: str = "b", **changes: Any) -> list[Replica]:
    return [Replica(name=name, url=name, backend=backend, **changes) for name in names]


class Bench:
    def __init__(
        self,
        replicas: list[Replica],
        *,
        patience_s: float = 1e9,
        scripts: dict[str, list[ServingError]] | None = None,
        choice: ChoiceRule = "least_outstanding",
    ) -> None:
        self.clock = ManualClock(patience_s)
        self.client = ScriptedClient(self.clock, scripts or {})
        self.told: list[tuple[str, str]] = []
        self.pool = ReplicaPool(
            self.client,
            replicas,
            settings=PoolSettings(choice=choice, cap=2, max_tries=4, wait_for_replica_s=30),
            clock=self.clock,
            random=Random(1),
            observer=lambda name, error: self.told.append((name, error.code if error else "")),
        )

    def start(self, count: int = 1, **changes: Any) -> list[asyncio.Task[ChatResponse]]:
        return [asyncio.create_task(self.pool.call("b", _request(**changes))) for _ in range(count)]


async def _settle() -> None:
    """Lets every task run until it waits for something."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_ties_go_round_and_the_least_outstanding_is_chosen() -> None:
    bench = Bench(_replicas("a", "c", "d"))
    for _ in range(6):
        await bench.pool.call("b", _request())
    assert Counter(bench.client.calls) == {"a": 2, "c": 2, "d": 2}
    bench.pool.observe({"a": 5, "c": 4, "d": 9, "gone": 1})
    assert (await bench.pool.call("b", _request())).replica == "c"


async def test_a_run_stays_on_its_replica_while_that_is_open_and_works() -> None:
    bench = Bench(_replicas("a", "c", "d"), choice="run_affinity", scripts={"a": []})
    for _ in range(3):
        await bench.pool.call("b", _request(run="one"))
    assert bench.client.calls == ["a"] * 3
    await bench.pool.call("b", _request(run="two"))
    assert bench.client.calls[3:] == ["c"]
    bench.client.gate.clear()
    full = bench.start(3, run="one")  # the third finds the cap of 2 reached
    await _settle()
    assert bench.pool.inflight()["a"] == 2
    bench.client.gate.set()
    await asyncio.gather(*full)
    bench.pool.update(_replicas("c", "d"))
    assert (await bench.pool.call("b", _request(run="one"))).replica != "a"


async def test_a_run_moves_with_the_try_that_worked() -> None:
    bench = Bench(_replicas("a", "c"), choice="run_affinity", scripts={"a": [ConnectFailed("refused")]})
    for _ in range(3):
        await bench.pool.call("b", _request(run="one"))
    assert bench.client.calls == ["a", "c", "c", "c"]


async def test_a_call_that_waited_keeps_its_run() -> None:
    bench = Bench(_replicas("a", "c"), choice="run_affinity")
    bench.client.gate.clear()
    busy = [*bench.start(2, run="one"), *bench.start(2, run="two")]
    await _settle()
    waiting = bench.start(1, run="three")
    await _settle()
    assert bench.pool.waiting() == {"b": 1}
    bench.client.gate.set()
    await asyncio.gather(*busy)
    first = (await waiting[0]).replica
    assert (await bench.pool.call("b", _request(run="three"))).replica == first


async def test_what_a_scrape_saw_of_our_own_calls_is_not_counted_twice() -> None:
    bench = Bench(_replicas("a", "c", cap=10))
    bench.client.gate.clear()
    tasks = bench.start(4)
    await _settle()
    bench.pool.observe({"a": 2, "c": 3})
    tasks += bench.start(1)
    await _settle()
    assert bench.pool.inflight() == {"a": 3, "c": 2}
    bench.client.gate.set()
    await asyncio.gather(*tasks)
    assert bench.pool.inflight() == {"a": 0, "c": 0}


async def test_other_backends_and_undispatchable_replicas_are_never_used() -> None:
    bench = Bench([*_replicas("a"), *_replicas("x", backend="other"), *_replicas("off", dispatchable=False)])
    for _ in range(3):
        await bench.pool.call("b", _request())
    assert set(bench.client.calls) == {"a"}


async def test_the_key_of_the_replica_is_sent_and_hidden() -> None:
    replica = Replica(name="a", url="a", backend="b", api_key="secret")
    bench = Bench([replica])
    assert (await bench.pool.call("b", _request())).text == "secret"
    assert "secret" not in repr(replica)


async def test_a_failed_try_goes_to_another_replica_of_the_backend() -> None:
    bench = Bench(_replicas("a", "c"), scripts={"a": [ConnectFailed("refused")]})
    response = await bench.pool.call("b", _request())
    assert (response.replica, response.tries, response.started_at) == ("c", 2, 100.0)
    assert bench.told == [("a", "connect_failed"), ("c", "")]
    assert 0 <= bench.clock.slept[0] <= 0.2


async def test_a_single_replica_is_tried_again_after_a_growing_pause() -> None:
    bench = Bench(_replicas("a"), scripts={"a": [Overloaded("busy") for _ in range(9)]})
    with pytest.raises(Overloaded) as caught:
        await bench.pool.call("b", _request())
    assert (caught.value.tries, caught.value.replica) == (4, "a")
    assert [ceiling >= pause for ceiling, pause in zip([0.2, 0.4, 0.8], bench.clock.slept, strict=True)] == [True] * 3


async def test_a_refused_request_is_not_tried_again() -> None:
    bench = Bench(_replicas("a", "c"), scripts={"a": [BadRequest("no")]})
    with pytest.raises(BadRequest):
        await bench.pool.call("b", _request())
    assert bench.client.calls == ["a"]


async def test_after_the_first_token_a_call_is_not_tried_again() -> None:
    deltas: list[Delta] = []
    bench = Bench(_replicas("a", "c"), scripts={"a": [StreamCut("gone")]})
    with pytest.raises(StreamCut):
        await bench.pool.call("b", _request(), on_delta=deltas.append)
    assert (bench.client.calls, deltas) == (["a"], [Delta(text="y")])


async def test_retries_stay_within_the_total_limit() -> None:
    bench = Bench(_replicas("a"), scripts={"a": [Overloaded("busy") for _ in range(9)]})
    with pytest.raises(Overloaded):
        await bench.pool.call("b", _request(timeout_s=0.05))
    assert bench.clock.time < 100.05
    assert all(left <= 0.05 for left in bench.client.timeouts)


async def test_calls_beyond_the_cap_wait_in_order_and_are_served() -> None:
    bench = Bench(_replicas("a"), patience_s=1)
    bench.client.gate.clear()
    tasks = bench.start(5)
    await _settle()
    assert (bench.pool.inflight(), bench.pool.waiting()) == ({"a": 2}, {"b": 3})
    bench.client.gate.set()
    await asyncio.gather(*tasks)
    assert bench.client.most["a"] == 2
    assert (bench.pool.inflight(), bench.pool.waiting()) == ({"a": 0}, {})


async def test_waiting_for_a_slot_ends_at_the_total_limit() -> None:
    bench = Bench(_replicas("a"), patience_s=20)
    bench.client.gate.clear()
    held = bench.start(2)
    await _settle()
    with pytest.raises(TotalTimedOut, match="cap"):
        await bench.pool.call("b", _request(timeout_s=10))
    assert bench.pool.waiting() == {}
    bench.client.gate.set()
    await asyncio.gather(*held)


async def test_a_backend_without_replicas_is_waited_for_and_then_given_up() -> None:
    bench = Bench([])
    with pytest.raises(NoReplica) as caught:
        await bench.pool.call("b", _request(timeout_s=600))
    assert (bench.clock.slept, caught.value.retryable) == ([30], True)


async def test_a_replica_that_comes_late_is_used_at_once() -> None:
    bench = Bench(_replicas("a", dispatchable=False), patience_s=1)
    tasks = bench.start(3)
    await _settle()
    assert bench.pool.waiting() == {"b": 3}
    bench.pool.update(_replicas("a", "c"))
    assert {response.replica for response in await asyncio.gather(*tasks)} == {"a", "c"}


async def test_a_replica_that_leaves_finishes_its_calls_and_takes_no_more() -> None:
    bench = Bench(_replicas("a", "c"))
    bench.client.gate.clear()
    (first,) = bench.start()
    await _settle()
    bench.pool.update(_replicas("c"))
    assert bench.pool.inflight() == {"a": 1, "c": 0}
    bench.client.gate.set()
    assert (await first).replica == "a"
    for _ in range(2):
        assert (await bench.pool.call("b", _request())).replica == "c"
    bench.pool.update(_replicas("c"))
    assert bench.pool.inflight() == {"c": 0}


async def test_cancelling_gives_the_slot_back_in_every_phase() -> None:
    bench = Bench(_replicas("a"), patience_s=1)
    bench.client.gate.clear()
    running = bench.start(2)
    queued = bench.start(2)
    await _settle()
    queued[0].cancel()
    running[0].cancel()
    await _settle()
    assert (bench.pool.inflight(), bench.pool.waiting(), bench.client.cancelled) == ({"a": 2}, {}, 1)
    queued[1].cancel()
    running[1].cancel()
    await _settle()
    assert bench.pool.inflight() == {"a": 0}


async def test_a_slot_granted_to_a_call_that_is_cancelled_in_the_same_moment_is_not_lost() -> None:
    bench = Bench(_replicas("a", cap=1), patience_s=1)
    bench.client.gate.clear()
    (running,) = bench.start()
    first, second = bench.start(2)
    await _settle()
    bench.client.gate.set()
    await running
    first.cancel()
    assert (await second).replica == "a"
    assert bench.pool.inflight() == {"a": 0}


@given(calls=st.integers(1, 40), caps=st.lists(st.integers(1, 3), min_size=1, max_size=4), seed=st.integers(0, 99))
@sampled(25)
def test_no_call_is_lost_and_no_cap_is_passed(calls: int, caps: list[int], seed: int) -> None:
    async def scenario() -> None:
        random = Random(seed)
        names = [f"r{i}" for i in range(len(caps))]
        scripts: dict[str, list[ServingError]] = {
            name: [Overloaded("") for _ in range(random.randint(0, 2))] for name in names
        }
        replicas = [replace(_replicas(name)[0], cap=cap) for name, cap in zip(names, caps, strict=True)]
        bench = Bench(replicas, patience_s=6, scripts=scripts)
        tasks = bench.start(calls)
        for task in random.sample(tasks, len(tasks) // 4):
            await asyncio.sleep(0)
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert len(results) == calls
        assert all(isinstance(item, ChatResponse | asyncio.CancelledError | Overloaded) for item in results)
        assert all(bench.client.most[name] <= cap for name, cap in zip(names, caps, strict=True))
        assert set(bench.pool.inflight().values()) == {0}
        assert bench.pool.waiting() == {}

    asyncio.run(scenario())


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="cap"):
        PoolSettings(cap=0)
    with pytest.raises(ValueError, match="negative"):
        PoolSettings(backoff_s=-1)
