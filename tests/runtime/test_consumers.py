"""WebSockets over a real uvicorn, a real database and a real Valkey."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.test import Client
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from fleet.common.feeds import Feed, Produce
from fleet.models import Fleet
from runtime.consumers import after_of
from runtime.engine.events import EventKind
from runtime.live import hub
from runtime.models import LedgerEntry, Run
from tests.runtime.live_runs import append, end, poke, start_run
from tests.served import served, session_cookie, until

pytestmark = pytest.mark.django_db(transaction=True)

COMMITTED = EventKind.NODE_COMMITTED


@pytest.fixture
def ann(transactional_db: None, valkey: str) -> User:
    return User.objects.create_user("ann")


@pytest.fixture
def run(ann: User) -> Run:
    return start_run(ann)


@pytest.fixture
def cookie(ann: User) -> str:
    return session_cookie(ann)


@asynccontextmanager
async def socket(
    address: str, path: str, cookie: str = "", origin: str | None = None
) -> AsyncIterator[ClientConnection]:
    headers = {"Cookie": cookie} if cookie else {}
    url, origin = f"ws://{address}{path}", origin if origin is not None else f"http://{address}"
    async with connect(url, additional_headers=headers, origin=origin or None, proxy=None) as connection:  # type: ignore[arg-type]  # an origin is text
        yield connection


async def message(connection: ClientConnection) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(await connection.recv())
    return found


async def close_code(connection: ClientConnection) -> int | None:
    """How the server closed it, after whatever it still sent."""
    with suppress(ConnectionClosed):
        while True:
            await connection.recv()
    return connection.close_code


async def test_a_socket_sends_what_there_is_then_what_happens_and_closes(run: Run, cookie: str) -> None:
    async with served() as address, socket(address, f"/ws/runs/{run.pk}/", cookie) as connection:
        first = await message(connection)
        assert (first["type"], first["run"], [event["seq"] for event in first["events"]]) == ("events", run.pk, [1])
        assert first["server_time"] > 1e9
        assert set(first["events"][0]) == {"seq", "kind", "at", "data"}
        await poke(run.pk, await sync_to_async(append)(run.pk, COMMITTED))
        assert [event["seq"] for event in (await message(connection))["events"]] == [2]
        await poke(run.pk, await sync_to_async(end)(run.pk))
        assert (await message(connection))["events"][-1]["kind"] == "run_succeeded"
        assert await close_code(connection) == 1000


async def test_a_socket_resumes_after_its_cursor(run: Run, cookie: str) -> None:
    await sync_to_async(append)(run.pk, *[COMMITTED] * 4)
    async with served() as address, socket(address, f"/ws/runs/{run.pk}/?after=3", cookie) as connection:
        assert [event["seq"] for event in (await message(connection))["events"]] == [4, 5]


async def test_a_lost_poke_loses_nothing(run: Run, cookie: str) -> None:
    async with served() as address, socket(address, f"/ws/runs/{run.pk}/?after=1", cookie) as connection:
        await until(lambda: hub().watched == {run.pk: 1})
        await sync_to_async(append)(run.pk, COMMITTED)
        assert [event["seq"] for event in (await message(connection))["events"]] == [2]


async def test_a_page_that_leaves_is_forgotten(run: Run, cookie: str) -> None:
    async with served() as address:
        async with socket(address, f"/ws/runs/{run.pk}/", cookie) as connection:
            await message(connection)
            assert hub().watched == {run.pk: 1}
        await until(lambda: not hub().watched)


@pytest.mark.parametrize("path", ["/ws/runs/{}/", "/ws/overview/", "/ws/fleet/"])
async def test_nobody_watches_without_a_login(run: Run, path: str) -> None:
    async with served() as address, socket(address, path.format(run.pk)) as connection:
        assert await close_code(connection) == 4401


async def test_another_persons_run_is_not_found(run: Run) -> None:
    bob = await sync_to_async(session_cookie)(await sync_to_async(User.objects.create_user)("bob"))
    async with served() as address:
        for path in (f"/ws/runs/{run.pk}/", "/ws/runs/none/", "/ws/moon/"):
            async with socket(address, path, bob) as connection:
                assert await close_code(connection) == 4404


@pytest.mark.parametrize("after", ["x", "-1", "1.5", "9" * 30, "٣"])
async def test_a_bad_cursor_closes_the_socket(run: Run, cookie: str, after: str) -> None:
    async with served() as address, socket(address, f"/ws/runs/{run.pk}/?after={after}", cookie) as connection:
        assert await close_code(connection) == 4400


@pytest.mark.parametrize("origin", ["http://evil.example", "null", ""])
async def test_a_page_of_another_site_may_not_open_a_socket(run: Run, cookie: str, origin: str) -> None:
    async with served() as address:
        with pytest.raises(InvalidStatus):
            async with socket(address, f"/ws/runs/{run.pk}/", cookie, origin=origin):
                pass


async def test_a_page_that_another_program_serves_on_this_host_may_not_either(run: Run, cookie: str) -> None:
    async with served() as address:
        host, port = address.rsplit(":", 1)
        with pytest.raises(InvalidStatus):
            async with socket(address, f"/ws/runs/{run.pk}/", cookie, origin=f"http://{host}:{int(port) + 1}"):
                pass


async def test_what_a_client_sends_is_ignored(run: Run, cookie: str) -> None:
    async with served() as address, socket(address, f"/ws/runs/{run.pk}/", cookie) as connection:
        await message(connection)
        await connection.send("{")
        await connection.send(b"\x00")
        await poke(run.pk, await sync_to_async(append)(run.pk, COMMITTED))
        assert [event["seq"] for event in (await message(connection))["events"]] == [2]


async def test_many_sockets_of_one_run_share_a_subscription_and_miss_nothing(run: Run, cookie: str) -> None:
    async def follow(address: str, opened: asyncio.Semaphore) -> list[int]:
        seen: list[int] = []
        async with socket(address, f"/ws/runs/{run.pk}/", cookie) as connection:
            opened.release()
            async for text in connection:
                seen += [event["seq"] for event in json.loads(text)["events"]]
        return seen

    async with served() as address:
        opened = asyncio.Semaphore(0)
        tasks = [asyncio.create_task(follow(address, opened)) for _ in range(20)]
        for _ in tasks:
            await opened.acquire()
        for _ in range(10):
            await poke(run.pk, await sync_to_async(append)(run.pk, *[COMMITTED] * 7))
        await poke(run.pk, await sync_to_async(end)(run.pk))
        assert [await task for task in tasks] == [list(range(1, 73))] * 20


async def test_a_client_that_reads_nothing_delays_nobody(run: Run, cookie: str) -> None:
    async with served() as address:
        path = f"/ws/runs/{run.pk}/"
        async with socket(address, path, cookie), socket(address, path, cookie) as reading:
            for batch in range(3):
                await poke(run.pk, await sync_to_async(append)(run.pk, *[COMMITTED] * 400))
                last = 0
                while last < 1 + 400 * (batch + 1):
                    last = (await message(reading))["events"][-1]["seq"]


# --- Overview and fleet ----------------------------------------------------------------------------------------------


async def test_the_overview_shows_the_users_runs_and_switches(run: Run, cookie: str) -> None:
    bob = await sync_to_async(User.objects.create_user)("bob")
    await sync_to_async(start_run)(bob)
    await LedgerEntry.objects.acreate(
        run=run,
        seq=2,
        at=5.0,
        active_variant=0,
        to_variant=1,
        reason="congested",
        text="Because.",
        loads={},
        thresholds={},
        candidates=[],
        changed=[],
        kept=[],
    )
    async with served() as address, socket(address, "/ws/overview/", cookie) as connection:
        found = await message(connection)
        assert (found["type"], found["stats"]["running"], found["stats"]["queued"]) == ("overview", 1, 0)
        assert [(row["id"], row["workflow"]) for row in found["runs"]] == [(run.pk, "One step")]
        assert [(item["run"], item["to_variant"]) for item in found["switches"]] == [(run.pk, 1)]
        assert found["loads"] == []
        assert (await message(connection))["server_time"] > found["server_time"]


async def test_the_fleet_is_unknown_while_nobody_publishes(run: Run, cookie: str) -> None:
    async with served() as address, socket(address, "/ws/fleet/", cookie) as connection:
        found = await message(connection)
    assert (found["type"], found["fleet"], found["pressure"]) == ("pressure", "test", None)
    assert "monitor" in found["reason"]


async def test_without_a_fleet_the_remedy_is_told(ann: User, cookie: str) -> None:
    assert not await Fleet.objects.aexists()
    async with served() as address, socket(address, "/ws/fleet/", cookie) as connection:
        found = await message(connection)
    assert (found["fleet"], found["pressure"]) == (None, None)
    assert "default" in found["reason"]


async def test_all_pages_share_one_feed(run: Run, cookie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Feed] = []
    original = Feed.__init__

    def noting(feed: Feed, produce: Produce) -> None:
        made.append(feed)
        original(feed, produce)

    monkeypatch.setattr(Feed, "__init__", noting)
    async with (
        served() as address,
        socket(address, "/ws/fleet/", cookie) as one,
        socket(address, "/ws/fleet/", cookie) as two,
    ):
        await message(one)
        await message(two)
    assert len(made) == 1


def test_a_query_without_a_cursor_starts_at_the_beginning() -> None:
    assert after_of(b"") == 0
    assert after_of(b"x=1&after=7") == 7


def test_sockets_are_no_pages(client: Client) -> None:
    assert client.get("/ws/overview/").status_code == 404
