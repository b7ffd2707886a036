"""Server-sent events of runs, over a real uvicorn, a real database and a real Valkey."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User

from dyserve_site.tokens import create_token
from fleet.common.scopes import Scope
from runtime.engine.events import EventKind
from runtime.live import hub
from runtime.models import Run
from runtime.streams import sse_end, sse_events, sse_text
from tests.runtime.live_runs import append, end, poke, start_run
from tests.served import served, until

pytestmark = pytest.mark.django_db(transaction=True)

COMMITTED = EventKind.NODE_COMMITTED


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A run, its owner's token, and where the API is."""

    run: Run
    headers: dict[str, str]


@pytest.fixture
def watched(transactional_db: None, valkey: str) -> Watched:
    user = User.objects.create_user("ann")
    token = create_token(user, "test", [Scope.RUNS_READ])[1]
    return Watched(run=start_run(user), headers={"Authorization": f"Bearer {token}", "Accept": "text/event-stream"})


class Stream:
    """One SSE connection, message by message."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.aiter_lines()

    async def message(self) -> dict[str, str]:
        """The next message; a comment comes as {"": text}."""
        found: dict[str, str] = {}
        async for line in self._lines:
            if not line and found:
                return found
            name, _, value = line.partition(":")
            if line:
                found[name] = value.strip()
        raise EOFError

    async def event(self) -> dict[str, str]:
        """The next message that is neither a comment nor the retry hint."""
        while True:
            message = await self.message()
            if "data" in message:
                return message

    async def rest(self) -> list[dict[str, str]]:
        found = []
        try:
            while True:
                found.append(await self.event())
        except EOFError:
            return found


@asynccontextmanager
async def stream(address: str, watched: Watched, query: str = "", **headers: str) -> AsyncIterator[Stream]:
    url = f"http://{address}/api/v1/runs/{watched.run.pk}/events{query}"
    async with (
        httpx.AsyncClient(trust_env=False, timeout=30) as client,
        client.stream("GET", url, headers={**watched.headers, **headers}) as response,
    ):
        yield Stream(response)


async def test_a_stream_sends_what_there_is_then_what_happens_and_ends(watched: Watched) -> None:
    run_id = watched.run.pk
    async with served() as address, stream(address, watched) as events:
        assert events.response.headers["Content-Type"].startswith("text/event-stream")
        assert events.response.headers["Cache-Control"] == "no-cache"
        first = await events.event()
        assert (first["id"], first["event"]) == ("1", "run_accepted")
        await poke(run_id, await sync_to_async(append)(run_id, COMMITTED, COMMITTED))
        assert [(await events.event())["id"] for _ in range(2)] == ["2", "3"]
        await poke(run_id, await sync_to_async(end)(run_id))
        last = await events.rest()
    assert [message["event"] for message in last] == ["run_succeeded", "end"]
    data = json.loads(last[0]["data"])
    assert (data["seq"], data["kind"], data["at"]) == (4, "run_succeeded", 4.0)
    assert data["server_time"] > 1e9


async def test_a_stream_resumes_after_the_last_event_it_sent(watched: Watched) -> None:
    await sync_to_async(append)(watched.run.pk, *[COMMITTED] * 5)
    await sync_to_async(end)(watched.run.pk)
    async with served() as address:
        async with stream(address, watched, **{"Last-Event-ID": "4"}) as events:
            assert [message.get("id") for message in await events.rest()] == ["5", "6", "7", None]
        async with stream(address, watched, "?after=5") as events:
            assert [message.get("id") for message in await events.rest()] == ["6", "7", None]
        # A browser repeats the address it started with: what it has seen since counts.
        async with stream(address, watched, "?after=0", **{"Last-Event-ID": "6"}) as events:
            assert [message.get("id") for message in await events.rest()] == ["7", None]


async def test_a_browser_that_has_everything_is_told_to_stay_away(watched: Watched) -> None:
    last = await sync_to_async(end)(watched.run.pk)
    async with served() as address, stream(address, watched, **{"Last-Event-ID": str(last)}) as events:
        assert events.response.status_code == 204


async def test_a_lost_poke_loses_nothing(watched: Watched) -> None:
    async with served() as address, stream(address, watched, "?after=1") as events:
        await events.message()
        await sync_to_async(end)(watched.run.pk)
        assert [message["event"] for message in await events.rest()] == ["run_succeeded", "end"]


async def test_many_streams_of_many_runs_are_served_from_one_subscription(watched: Watched) -> None:
    runs = [watched.run, *[await sync_to_async(start_run)(watched.run.owner) for _ in range(4)]]
    every = [Watched(run=run, headers=watched.headers) for run in runs for _ in range(6)]

    async def follow(address: str, one: Watched, started: asyncio.Semaphore) -> list[str]:
        async with stream(address, one) as events:
            first = await events.event()
            started.release()
            return [first["id"], *[message.get("id", message["event"]) for message in await events.rest()]]

    async with served() as address:
        started = asyncio.Semaphore(0)
        tasks = [asyncio.create_task(follow(address, one, started)) for one in every]
        for _ in every:
            await started.acquire()
        assert hub().watched == {run.pk: 6 for run in runs}
        for run in runs:
            await poke(run.pk, await sync_to_async(append)(run.pk, *[COMMITTED] * 20))
            await poke(run.pk, await sync_to_async(end)(run.pk))
        expected = [*map(str, range(1, 23)), "end"]
        assert [await task for task in tasks] == [expected] * len(every)


async def test_a_client_that_leaves_is_forgotten(watched: Watched) -> None:
    async with served() as address:
        async with stream(address, watched) as events:
            await events.event()
            assert hub().watched == {watched.run.pk: 1}
        await until(lambda: not hub().watched)


async def test_a_process_that_is_told_to_stop_ends_its_streams_at_once_and_without_an_end(watched: Watched) -> None:
    told = []
    before = signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    try:
        async with served() as address, stream(address, watched) as events:
            await events.event()
            signal.raise_signal(signal.SIGTERM)
            assert await events.rest() == []
    finally:
        signal.signal(signal.SIGTERM, before)
    assert told == [signal.SIGTERM]


async def test_json_pages_tell_where_to_go_on(watched: Watched) -> None:
    headers = {**watched.headers, "Accept": "*/*"}
    path = f"/api/v1/runs/{watched.run.pk}/events"
    await sync_to_async(append)(watched.run.pk, COMMITTED, COMMITTED)
    async with served() as address, httpx.AsyncClient(base_url=f"http://{address}", trust_env=False) as client:

        async def ask(query: str) -> Any:
            return (await client.get(path + query, headers=headers)).json()

        first = await ask("?limit=2")
        assert [item["seq"] for item in first["items"]] == [1, 2]
        assert (first["next"], first["state"]) == (2, "running")
        rest = await ask("?after=2")
        assert ([item["seq"] for item in rest["items"]], rest["next"]) == ([3], 3)
        assert (await ask("?after=3"))["next"] == 3
        await sync_to_async(end)(watched.run.pk)
        last = await ask("?after=3")
        assert ([item["kind"] for item in last["items"]], last["next"]) == (["run_succeeded"], None)


@pytest.mark.parametrize("query", ["?after=x", "?after=-1", "?limit=0", "?limit=1001", f"?after={2**31}"])
async def test_a_bad_cursor_is_refused(watched: Watched, query: str) -> None:
    async with served() as address, httpx.AsyncClient(trust_env=False) as client:
        url = f"http://{address}/api/v1/runs/{watched.run.pk}/events{query}"
        response = await client.get(url, headers=watched.headers)
    assert (response.status_code, response.headers["Content-Type"]) == (422, "application/problem+json")


async def test_a_bad_last_event_id_is_refused(watched: Watched) -> None:
    async with served() as address, stream(address, watched, **{"Last-Event-ID": "moon"}) as events:
        assert events.response.status_code == 422


async def test_a_quiet_run_sends_heartbeats(watched: Watched) -> None:
    found = []
    async with hub().watch(watched.run.pk):
        async for text in sse_events(hub(), watched.run.pk, 1, heartbeat_s=0.0, now=lambda: 12.5):
            found.append(text)
            if len(found) == 3:
                break
    assert found == [b"retry: 2000\n\n", b": alive 12.500\n\n", b": alive 12.500\n\n"]
    await hub().close()


def test_a_message_is_one_line_of_data() -> None:
    text = sse_text([{"seq": 3, "kind": "node_failed", "at": 1.0, "data": {"error": "two\nlines\r"}}], 2.0)
    assert text.count("\n") == 4
    assert json.loads(text.split("data: ", 1)[1])["data"] == {"error": "two\nlines\r"}
    assert sse_end(3, 2.0) == 'event: end\ndata: {"seq":3,"server_time":2.0}\n\n'
