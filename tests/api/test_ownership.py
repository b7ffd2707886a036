"""What belongs to somebody else is not there: every route, from the OpenAPI document, with a second user."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from dyserve_site.models import ApiToken
from fleet.models import Fleet, Replica
from runtime.engine.events import NodeState
from runtime.models import Run
from tests.api.conftest import Person
from tests.api.routes import ROUTES, Route
from tests.api.samples import DOCUMENT, problem
from tests.api.test_runs import invoke

pytestmark = pytest.mark.django_db(transaction=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Things:
    """One of everything that a user can own, by the name of the path parameter that means it."""

    params: Mapping[str, str]
    bodies: Mapping[str, Mapping[str, Any]]
    """Bodies that name the owner's things, by route."""


@pytest.fixture
def anns(ann: Person, fleet: Fleet) -> Things:
    Fleet.objects.filter(pk=fleet.pk).update(owner=ann.user)
    ann.api.post("/workflows", {"document": DOCUMENT})
    run = ann.api.post("/runs", {"workflow": "two-steps", "inputs": {"topic": "tides"}}).json()
    plan = ann.api.post("/plans", {"workflow": "two-steps"}).json()
    invoke(run["id"], "draft", NodeState.COMMITTED)
    params = {
        "workflow": str(run["workflow_id"]),
        "number": "1",
        "plan": plan["id"],
        "index": "0",
        "run_id": run["id"],
        "node": "draft",
        "name": Replica.objects.order_by("name")[0].name,
        "token_id": str(ApiToken.objects.get(owner=ann.user).pk),
    }
    source = {"workflow": params["workflow"], "fleet": fleet.name}
    return Things(params=params, bodies={"POST /plans": source, "POST /runs": source | {"inputs": {"topic": "x"}}})


NAMES_ITS_OWN = {
    "POST /workflows:validate": "the document comes with the request",
    "POST /workflows:upload": "the document comes with the request",
    "POST /workflows": "the document comes with the request",
    "POST /tokens": "it is made for the caller",
}
"""Routes that can name nobody's things, and why."""

LISTS = ("GET /workflows", "GET /runs", "GET /tokens")
FLEETS = ("GET /fleet", "GET /fleet/pressure")
OTHERS = [route for route in ROUTES if str(route) not in (*NAMES_ITS_OWN, *LISTS, *FLEETS)]


def ask(person: Person, route: Route, things: Things) -> Any:
    return person.api.request(route.method, route.filled(**things.params), things.bodies.get(str(route)))


@pytest.mark.parametrize("route", OTHERS, ids=str)
def test_another_persons_thing_is_not_found(route: Route, anns: Things, bob: Person) -> None:
    problem(ask(bob, route, anns), 404)


@pytest.mark.parametrize("route", OTHERS, ids=str)
def test_its_owner_finds_it(route: Route, anns: Things, ann: Person) -> None:
    """Otherwise the test above would prove nothing."""
    assert ask(ann, route, anns).status_code in (200, 201, 204)


@pytest.mark.parametrize("path", [route.removeprefix("GET ") for route in LISTS])
def test_lists_show_the_callers_own(path: str, anns: Things, ann: Person, bob: Person) -> None:
    owned = {str(item["id"]) for item in ann.api.get(path).json()["items"]}
    assert owned
    assert not owned & {str(item["id"]) for item in bob.api.get(path).json()["items"]}


@pytest.mark.parametrize("path", [route.removeprefix("GET ") for route in FLEETS])
def test_another_persons_fleet_is_not_found(path: str, anns: Things, ann: Person, bob: Person) -> None:
    name = Fleet.objects.get().name
    assert ann.api.get(f"{path}?fleet={name}").status_code == 200
    problem(bob.api.get(f"{path}?fleet={name}"), 404)


def test_nothing_of_the_others_was_changed(anns: Things, bob: Person) -> None:
    for route in OTHERS:
        ask(bob, route, anns)
    assert Run.objects.count() == 1
    assert Run.objects.get().cancel_requested_at is None
    assert not Replica.objects.exclude(state="enabled").exists()
    assert not ApiToken.objects.exclude(revoked_at=None).exists()


def test_filters_do_not_reach_another_persons_things(anns: Things, bob: Person) -> None:
    problem(bob.api.get(f"/runs?workflow={anns.params['workflow']}"), 404)
