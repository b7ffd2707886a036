"""The emulated servers over loopback, through our own client and raw: answers, queueing, refusals, disconnects."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

import httpx
import pytest

from fleet.emulator.app import VERSION
from fleet.emulator.config import EmulatorConfig, ReplicaConfig
from fleet.serving.chat import AnswerFormat, ChatRequest, Delta
from fleet.serving.client import ServingClient
from fleet.serving.errors import (
    BadRequest,
    ContextTooLong,
    EngineDead,
    Overloaded,
    ServingError,
    UnknownModel,
)
from fleet.serving.metrics import MetricsPage
from fleet.serving.pool import Replica, ReplicaPool
from tests.fleet.emulator.fleet_on_loopback import emulated

MODEL = "qwen3.5-9b"
FAST = ReplicaConfig(name="fast", model=MODEL, max_num_seqs=8)
TINY = ReplicaConfig(name="tiny", model=MODEL, max_num_seqs=1, max_queued=1)
CONFIG = EmulatorConfig(
    replicas=(FAST, TINY, replace(FAST, name="twin")), time_scale=200, reject_probability={MODEL: 1}
)
SLOW = replace(CONFIG, time_scale=0.001)
"""So slow that nothing ends by itself within a test."""


@pytest.fixture
async def fleet() -> AsyncIterator[Mapping[str, str]]:
    async with emulated(CONFIG) as urls:
        yield urls


@pytest.fixture
async def slow_fleet() -> AsyncIterator[Mapping[str, str]]:
    async with emulated(SLOW) as urls:
        yield urls


@pytest.fixture
async def client() -> AsyncIterator[ServingClient]:
    async with ServingClient() as made:
        yield made


def _request(**changes: Any) -> ChatRequest:
    values: dict[str, Any] = {
        "request_id": "run-1.plan",
        "model": MODEL,
        "messages": ({"role": "user", "content": "Explain photosynthesis"},),
        "max_tokens": 400,
        "seed": 3,
        "timeout_s": 30.0,
    }
    return ChatRequest(**{**values, **changes})


async def _metrics_until(client: ServingClient, url: str, running: int, waiting: int) -> MetricsPage:
    """Polls the page until it shows these numbers (the test's own time limit ends a wait that is in vain)."""
    while True:
        page = await client.metrics(url)
        if (page.running, page.waiting) == (running, waiting):
            return page


async def test_plain_and_streamed_answers_are_the_same(fleet: Mapping[str, str], client: ServingClient) -> None:
    deltas: list[Delta] = []
    request = _request(thinking=True)
    plain = await client.chat(fleet["fast"], request)
    streamed = await client.stream_chat(fleet["twin"], request, on_delta=deltas.append)
    assert plain.response_id == "chatcmpl-run-1.plan"
    assert plain.text.startswith(f"[emulated {MODEL}]")
    assert (streamed.text, streamed.reasoning, streamed.usage) == (plain.text, plain.reasoning, plain.usage)
    assert "".join(item.text for item in deltas) == plain.text
    assert plain.queue_s is not None
    assert plain.ttft_s is not None
    assert plain.generation_s is not None
    assert plain.generation_s > 0


async def test_verdicts_choices_and_schemas(fleet: Mapping[str, str], client: ServingClient) -> None:
    verdict = AnswerFormat(kind="choice", choices=("accept", "reject"))
    assert (await client.chat(fleet["fast"], _request(answer=verdict))).text == "reject"
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 4}}, "required": ["n"]}
    answer = await client.stream_chat(fleet["fast"], _request(answer=AnswerFormat(kind="json", schema=schema)))
    assert json.loads(answer.text)["n"] >= 4


async def test_probes(fleet: Mapping[str, str], client: ServingClient) -> None:
    await client.health(fleet["fast"])
    assert await client.version(fleet["fast"]) == VERSION
    (model,) = await client.models(fleet["fast"])
    assert (model.name, model.max_model_len) == (MODEL, FAST.max_model_len)
    answer = await client.chat(fleet["fast"], _request())
    page = await client.metrics(fleet["fast"])
    assert (page.running, page.waiting, page.kv_usage) == (0, 0, 0)
    assert (page.prompt_tokens, page.generation_tokens) == (answer.usage.prompt_tokens, answer.usage.output_tokens)


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"model": "nope"}, UnknownModel),
        ({"max_tokens": 10**6}, BadRequest),
        ({"messages": ({"role": "user", "content": "x" * 200_000},)}, ContextTooLong),
        ({"answer": AnswerFormat(kind="json", schema={"not": {}})}, BadRequest),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_refusals(
    fleet: Mapping[str, str], client: ServingClient, changes: dict[str, Any], kind: type[ServingError], stream: bool
) -> None:
    with pytest.raises(kind):
        await (client.stream_chat if stream else client.chat)(fleet["fast"], _request(**changes))


async def test_raw_http(fleet: Mapping[str, str]) -> None:
    async with httpx.AsyncClient(base_url=fleet["fast"]) as http:
        assert (await http.get("/nowhere")).status_code == 404
        assert (await http.get("/v1/chat/completions")).status_code == 405
        assert (await http.get("/load")).json() == {"server_load": 0}
        assert (await http.post("/v1/chat/completions", content=b"{")).json()["error"]["code"] == 400
        plain = (await http.post("/v1/completions", json={"model": MODEL, "prompt": "Once", "max_tokens": 5})).json()
        assert plain["object"] == "text_completion"
        assert 1 <= plain["usage"]["completion_tokens"] <= 5
        assert plain["choices"][0]["text"].startswith("[emulated")
        body = {"model": MODEL, "prompt": "Once", "max_tokens": 5, "stream": True}
        lines = (await http.post("/v1/completions", json=body)).text.split("\n\n")
        chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
        assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == plain["choices"][0]["text"]
        assert lines[-2] == "data: [DONE]"
        assert all("usage" not in chunk for chunk in chunks)


async def test_beyond_the_queue_limit_a_request_is_refused_and_counted(
    slow_fleet: Mapping[str, str], client: ServingClient
) -> None:
    url = slow_fleet["tiny"]
    held = [asyncio.create_task(client.chat(url, _request(seed=i))) for i in range(2)]
    await _metrics_until(client, url, 1, 1)
    with pytest.raises(Overloaded, match="currently busy"):
        await client.chat(url, _request(seed=9))
    assert (await client.metrics(url)).rejections == 1
    for task in held:
        task.cancel()
    await asyncio.wait(held)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_goes_away_frees_its_slot(
    slow_fleet: Mapping[str, str], client: ServingClient, stream: bool
) -> None:
    url = slow_fleet["tiny"]
    call = client.stream_chat if stream else client.chat
    first = asyncio.ensure_future(call(url, _request()))
    await _metrics_until(client, url, 1, 0)
    second = asyncio.ensure_future(call(url, _request()))
    await _metrics_until(client, url, 1, 1)
    for task in (first, second):
        task.cancel()
    await asyncio.wait((first, second))
    page = await _metrics_until(client, url, 0, 0)
    assert page.kv_usage == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_stopping_ends_calls_like_a_dying_engine(client: ServingClient, stream: bool) -> None:
    stop = asyncio.Event()
    async with emulated(SLOW, stop) as urls:
        call = client.stream_chat if stream else client.chat
        task = asyncio.ensure_future(call(urls["fast"], _request()))
        await _metrics_until(client, urls["fast"], 1, 0)
        stop.set()
        with pytest.raises(EngineDead):
            await task


async def test_a_burst_through_the_pool_is_answered_whole_and_spread(
    fleet: Mapping[str, str], client: ServingClient
) -> None:
    replicas = [Replica(name=name, url=fleet[name], backend="b") for name in ("fast", "twin")]
    pool = ReplicaPool(client, replicas)
    deltas: list[Delta] = []
    calls = (pool.call("b", _request(seed=i, request_id=f"q{i}"), on_delta=deltas.append) for i in range(60))
    answers = await asyncio.gather(*calls)
    assert len({answer.response_id for answer in answers}) == 60
    assert {sum(answer.replica == name for answer in answers) for name in ("fast", "twin")} == {30}
    assert pool.inflight() == {"fast": 0, "twin": 0}


async def test_the_pool_goes_round_a_full_replica(fleet: Mapping[str, str], client: ServingClient) -> None:
    full = replace(CONFIG, replicas=(replace(TINY, max_queued=0),), time_scale=0.001)
    async with emulated(full) as urls:
        held = asyncio.create_task(client.chat(urls["tiny"], _request()))
        await _metrics_until(client, urls["tiny"], 1, 0)
        pool = ReplicaPool(
            client,
            [
                Replica(name="tiny", url=urls["tiny"], backend="b"),
                Replica(name="fast", url=fleet["fast"], backend="b"),
            ],
        )
        answer = await pool.call("b", _request())
        assert (answer.replica, answer.tries) == ("fast", 2)
        held.cancel()
        await asyncio.wait({held})
