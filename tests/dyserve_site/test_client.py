"""The Python client against the real API, served by a real uvicorn in the test's loop; the client runs in a thread."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, TypeVar

import httpx
import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User

from dyserve_site.client import (
    Client,
    Conflict,
    Event,
    Forbidden,
    InvalidRequest,
    NotFound,
    ServerError,
    Unauthorized,
    Unavailable,
    Unreachable,
    WaitTimedOut,
)
from dyserve_site.client.errors import BY_STATUS, ApiError, ProblemItem, error_of
from dyserve_site.client.transport import sse_messages
from dyserve_site.tokens import create_token
from fleet.common.scopes import Scope
from fleet.services import seed_demo_fleet
from planner.services import ensure_profiles
from runtime.engine.events import EventKind
from runtime.live import close_hub
from tests.api.samples import DOCUMENT, YAML
from tests.runtime.live_runs import append, end
from tests.served import served, until

pytestmark = pytest.mark.django_db(transaction=True)

T = TypeVar("T")
INPUTS = {"topic": "tides"}


@pytest.fixture
def token(transactional_db: None, valkey: str) -> str:
    ensure_profiles()
    seed_demo_fleet(18100, 100.0)
    return create_token(User.objects.create_user("ann"), "test", [Scope.ADMIN])[1]


async def using(token: str, work: Callable[[Client], T]) -> T:
    """What `work` does with a client, in a thread, while the API is served."""

    def job(address: str) -> T:
        with Client(f"http://{address}", token) as client:
            return work(client)

    async with served() as address:
        return await asyncio.to_thread(job, address)


async def test_the_main_job(token: str) -> None:
    def work(client: Client) -> None:
        stored = client.store_workflow(YAML, filename="x.yaml")
        assert (stored.workflow.slug, stored.number, stored.created) == ("in-yaml", 1, True)
        assert client.workflow("in-yaml") == client.workflow(stored.workflow.id) == stored.workflow
        submitted = client.submit_run(workflow="in-yaml", deadline_s=60)
        run = client.run(submitted.id)
        assert (run.state, run.workflow, run.deadline_s, run.emulated) == ("queued", "In YAML", 60, True)
        assert (run.ended, run.latency_s) == (False, None)
        end(run.id)
        done = client.wait(run.id, timeout_s=5)
        assert (done.ended, done.nodes_total) == (True, 1)
        assert [node["node"] for node in client.nodes(run.id)] == ["only"]
        assert client.node(run.id, "only")["invocations"] == []
        assert client.switches(run.id) == []

    await using(token, work)


async def test_an_inline_document_and_an_idempotency_key(token: str) -> None:
    def work(client: Client) -> None:
        def submit() -> Any:
            return client.submit_run(document=DOCUMENT, inputs=INPUTS, idempotency_key="k")

        first, again = submit(), submit()
        assert (first.id, first.created, again.created) == (again.id, True, False)
        with pytest.raises(Conflict):
            client.submit_run(document=DOCUMENT, inputs=INPUTS, idempotency_key="k", seed=3)
        assert client.cancel(first.id).state == "cancelled"

    await using(token, work)


async def test_plans_fleet_and_pressure(token: str) -> None:
    def work(client: Client) -> None:
        plan = client.compile(document=DOCUMENT, effort=0.2)
        assert client.plan(plan["id"])["effort"] == 0.2
        assert client.validate_workflow(YAML)["name"] == "In YAML"
        assert client.fleet()["emulated"] is True
        assert client.pressure()["classes"] == []

    await using(token, work)


async def test_questions_about_a_plan(token: str) -> None:
    def work(client: Client) -> None:
        plan = client.compile(document=DOCUMENT, bundle="priced", levels=[0])["id"]
        assert [node["node"] for node in client.explanation(plan, most=2)["nodes"]] == ["draft", "answer"]
        assert [found["parameter"] for found in client.sensitivity(plan)["ranges"]] == ["level"]
        assert client.front(plan, "cost", most=5)["exact"] is True
        assert client.stability(plan, draws=2)["draws_asked"] == 2
        with pytest.raises(InvalidRequest) as raised:
            client.compile(document=DOCUMENT, limits={"max_calls": 1})
        assert [conflict["limit"] for conflict in raised.value.conflicts] == ["max_calls"]
        assert [item.pointer for item in raised.value.errors if item.pointer] == ["/limits/max_calls"]
        limited = client.submit_run(document=DOCUMENT, inputs=INPUTS, bundle="priced", limits={"max_calls": 2})
        assert limited.created

    await using(token, work)


async def test_lists_are_followed_over_all_pages(token: str) -> None:
    def work(client: Client) -> None:
        names = [f"Number {number}" for number in range(53)]
        for name in names:
            client.store_workflow(YAML, name=name)
        assert [workflow.name for workflow in client.workflows()] == names[::-1]
        client.submit_run(workflow="number-7")
        assert len(list(client.runs(state="queued", workflow="number-7"))) == 1
        assert list(client.runs(state="failed")) == []

    await using(token, work)


async def test_events_are_followed_to_the_end(token: str) -> None:
    def work(client: Client) -> list[Event]:
        run_id = client.submit_run(document=DOCUMENT, inputs=INPUTS).id
        append(run_id, EventKind.NODE_COMMITTED)
        end(run_id)
        assert [event.seq for event in client.events(run_id, after=1)] == [2, 3]
        return list(client.events(run_id))

    events = await using(token, work)
    assert [event.kind for event in events] == ["run_accepted", "node_committed", "run_succeeded"]
    assert events[1].data["node"] == "a"


async def test_a_stream_that_breaks_off_is_resumed_where_it_was(token: str) -> None:
    seen: list[int] = []
    note = seen.append

    def work(address: str) -> None:
        with Client(f"http://{address}", token, sleep=lambda _: None) as client:
            for event in client.events(run_id):
                note(event.seq)

    def submit(address: str) -> str:
        with Client(f"http://{address}", token) as client:
            return client.submit_run(document=DOCUMENT, inputs=INPUTS).id

    async with served() as address:
        run_id = await asyncio.to_thread(submit, address)
        task = asyncio.create_task(asyncio.to_thread(work, address))
        await until(lambda: seen == [1])
        # The streams end as they do when a process stops; the client comes back to another one.
        await close_hub()
        await sync_to_async(end)(run_id)
        await task
    assert seen == [1, 2]


async def test_errors_are_typed_and_tell_every_place(token: str) -> None:
    def work(client: Client) -> None:
        with pytest.raises(InvalidRequest) as caught:
            client.submit_run(document=DOCUMENT, inputs={"topic": 5, "moon": 1})
        assert {item.pointer for item in caught.value.errors} == {"/inputs/topic", "/inputs/moon"}
        assert "/inputs/topic" in str(caught.value)
        for missing in (lambda: client.run("none"), lambda: client.workflow("none"), lambda: client.plan("1-1")):
            with pytest.raises(NotFound):
                missing()
        with pytest.raises(NotFound):
            list(client.events("none"))

    await using(token, work)
    with pytest.raises(Unauthorized):
        await using("dys_a_b", lambda client: client.fleet())


async def test_a_user_without_staff_rights_is_forbidden_to_drain(token: str) -> None:
    def work(client: Client) -> None:
        name = client.fleet()["backends"][0]["replicas"][0]["name"]
        with pytest.raises(Forbidden):
            client.set_replica(name, "drain")

    await using(token, work)


async def test_waiting_has_an_end(token: str) -> None:
    times = iter([0.0, 1.0, 5.0])
    slept: list[float] = []

    def job(address: str) -> None:
        with Client(f"http://{address}", token, sleep=slept.append, clock=lambda: next(times)) as client:
            run_id = client.submit_run(document=DOCUMENT, inputs=INPUTS).id
            with pytest.raises(WaitTimedOut, match="queued"):
                client.wait(run_id, timeout_s=5, interval_s=0.25)

    async with served() as address:
        await asyncio.to_thread(job, address)
    assert slept == [0.25]


def test_an_address_where_nobody_listens_is_unreachable() -> None:
    with socket.socket() as taken:
        # Bound, but not listening: nobody else can take the port meanwhile.
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
        slept: list[float] = []
        with Client(address, "x", sleep=slept.append) as client:
            with pytest.raises(Unreachable, match=r"127\.0\.0\.1"):
                client.fleet()
            with pytest.raises(Unreachable):
                list(client.events("r"))
    assert len(slept) == 5


@pytest.mark.parametrize(("status", "kind"), [*BY_STATUS.items(), (500, ServerError), (418, ServerError)], ids=str)
def test_every_status_has_its_type(status: int, kind: type[ApiError]) -> None:
    body = {"code": "c", "detail": "d", "errors": [{"code": "e", "message": "m", "remedy": "r", "line": 3}]}
    found = error_of(httpx.Response(status, json=body))
    assert type(found) is kind
    assert (found.status, found.code, found.detail) == (status, "c", "d")
    assert str(found.errors[0]) == "line 3: m r"


@pytest.mark.parametrize("response", [httpx.Response(503, text="<html>"), httpx.Response(503, json=[1])])
def test_an_answer_that_is_no_problem_is_an_error_all_the_same(response: httpx.Response) -> None:
    assert isinstance(error_of(response), Unavailable)


def test_a_problem_item_reads_like_a_sentence() -> None:
    item = ProblemItem(code="c", message="It is wrong.", remedy="Correct it.", pointer="/a", line=2)
    assert str(item) == "line 2, /a: It is wrong. Correct it."
    assert str(ProblemItem(code="c", message="No.", remedy="")) == "No."


def test_server_sent_events_are_parsed() -> None:
    lines = [
        "retry: 2000",
        "",
        ": alive",
        "id: 1",
        "event: run_accepted",
        'data: {"seq": 1,',
        'data:"at": 2}',
        "",
        "event: end",
        "",
        'data: "x"',
        "",
        "data: 1",
    ]
    assert list(sse_messages(lines)) == [("run_accepted", {"seq": 1, "at": 2}), ("message", "x")]
