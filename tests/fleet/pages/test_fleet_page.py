"""The fleet's page, its chart, and what an operator may do there."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from fleet.charts import POINTS, load_chart, load_lines
from fleet.marks import LoadMarks, load_marks
from fleet.models import Backend, Fleet, PressureSample, Replica
from fleet.redis import PRESSURE_KEY, connection
from fleet.serving.pressure import ClassPressure, FleetPressure, ReplicaPressure
from tests.fleet import rows

BIG = "qwen3.5-27b"


@pytest.fixture(autouse=True)
def _redis(valkey: str) -> None:
    """A real, empty server."""


@pytest.fixture
def fleet(db: None) -> Fleet:
    return rows.demo()


def client(name: str, *, staff: bool = False) -> Client:
    browser = Client()
    browser.force_login(User.objects.create_user(name, is_staff=staff))
    return browser


@pytest.fixture
def ann(fleet: Fleet) -> Client:
    return client("ann")


@pytest.fixture
def operator(fleet: Fleet) -> Client:
    return client("operator", staff=True)


def page(browser: Client) -> str:
    response = browser.get("/fleet/")
    assert response.status_code == 200
    return response.content.decode()


def document(html: str) -> dict[str, Any]:
    found = re.search(r'<script id="fleet-document" type="application/json">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found.group(1))
    return data


def test_every_replica_has_a_card_with_its_capacity(ann: Client) -> None:
    html = page(ann)
    cards = re.findall(r'data-replica="([^"]*)" data-operator="enabled" data-slots="(\d+)"', html)
    assert dict(cards) == dict.fromkeys(("27b-0", "27b-1", "9b-0", "9b-1", "4b-0"), "32")
    assert re.findall(r'data-class="([^"]*)"', html) == ["qwen3.5-27b", "qwen3.5-9b", "qwen3.5-4b"]


def test_rates_say_what_they_rest_on(ann: Client) -> None:
    html = page(ann)
    assert "roofline rates v1" in html
    assert "emulated H200, time × 10" in html


def test_without_a_monitor_everything_is_unknown_never_idle(ann: Client) -> None:
    html = page(ann)
    assert document(html)["pressure"] is None
    assert 'data-field="running">0' not in html


def test_the_page_carries_the_published_pressure(ann: Client, fleet: Fleet) -> None:
    replica = ReplicaPressure(
        replica="27b-0",
        backend="h200-27b",
        model=BIG,
        state="stale",
        load=None,
        outstanding=3,
        capacity=32,
        inflight=3,
        running=3,
        waiting=0,
        kv_usage=0.1,
        prompt_tokens_per_s=None,
        generation_tokens_per_s=None,
        age_s=12.0,
    )
    published = FleetPressure(
        at=time.time(), replicas=(replica,), classes=(ClassPressure(model=BIG, state="unknown", load=None),)
    )
    connection().set(PRESSURE_KEY + fleet.name, json.dumps(published.to_json()))
    pressure = document(page(ann))["pressure"]
    assert pressure["replicas"][0]["state"] == "stale"
    assert pressure["classes"][0]["load"] is None


def test_only_staff_sees_and_uses_the_buttons(ann: Client, operator: Client) -> None:
    address = reverse("fleet:state", args=["9b-0"])
    assert address not in page(ann)
    assert address in page(operator)
    assert ann.post(address, {"state": "draining"}).status_code == 403
    assert Replica.objects.get(name="9b-0").state == "enabled"
    assert operator.get(address).status_code == 405
    response = operator.post(address, {"state": "draining"}, follow=True)
    assert "9b-0 takes no new calls" in response.content.decode()
    assert Replica.objects.get(name="9b-0").state == "draining"


def test_buttons_offer_what_makes_sense(operator: Client) -> None:
    Replica.objects.filter(name="9b-0").update(state="disabled")
    card = re.search(r'data-replica="9b-0".*?</article>', page(operator), re.DOTALL)
    assert card is not None
    assert re.findall(r'name="state" value="(\w+)"', card.group()) == ["enabled"]


def test_the_owner_of_a_fleet_manages_it(ann: Client, fleet: Fleet) -> None:
    fleet.owner = User.objects.get(username="ann")
    fleet.save()
    assert ann.post(reverse("fleet:state", args=["9b-0"]), {"state": "disabled"}).status_code == 302
    assert Replica.objects.get(name="9b-0").state == "disabled"


@pytest.mark.parametrize(("name", "state"), [("nowhere", "enabled"), ("9b-0", "broken")])
def test_what_does_not_exist_is_not_found(operator: Client, name: str, state: str) -> None:
    assert operator.post(reverse("fleet:state", args=[name]), {"state": state}).status_code == 404


def test_another_persons_fleet_does_not_exist(ann: Client, fleet: Fleet) -> None:
    fleet.owner = User.objects.create_user("bob")
    fleet.save()
    assert ann.post(reverse("fleet:state", args=["9b-0"]), {"state": "disabled"}).status_code == 404


def test_the_page_asks_for_a_login(fleet: Fleet) -> None:
    for address in ("/fleet/", reverse("fleet:charts"), reverse("fleet:state", args=["9b-0"])):
        assert Client().get(address).status_code == 302


def test_without_a_fleet_the_page_says_what_to_do(db: None) -> None:
    assert "There is no default fleet" in page(client("ann"))
    assert client("bob").get(reverse("fleet:charts")).json() == {}


def test_names_are_texts(operator: Client) -> None:
    Backend.objects.filter(name="h200-9b").update(served_name="</script><b>x")
    assert "<b>x" not in page(operator)


def test_the_page_reads_the_same_for_many_replicas(
    ann: Client, fleet: Fleet, django_assert_max_num_queries: Any
) -> None:
    Replica.objects.bulk_create(
        Replica(backend=rows.backend(), name=f"more-{index}", url=f"http://127.0.0.1:{20000 + index}")
        for index in range(30)
    )
    with django_assert_max_num_queries(12):
        assert page(ann).count("<article") == 35


# --- The chart -------------------------------------------------------------------------------------------------------


def sample(at: float, load: float | None, model: str = BIG) -> PressureSample:
    return PressureSample(model=model, at=at, load=load, state="ok", outstanding=0, planned=0, capacity=1)


def test_thinning_keeps_every_peak_and_every_gap() -> None:
    samples = [sample(1000 + at * 0.5, 0.1) for at in range(1800)]
    samples[777] = sample(samples[777].at, 3.0)
    samples[-8:] = [sample(item.at, None) for item in samples[-8:]]
    (line,) = load_lines(samples, now=1900.0, window_s=900.0)
    assert len(line.points) <= POINTS + 1
    assert line.top == 3.0
    assert line.points[-1][1] is None


def test_a_chart_marks_thresholds_and_orders_classes_by_size() -> None:
    lines = load_lines(
        [sample(10.0, 0.2, "qwen3.5-4b"), sample(10.0, 2.0), sample(10.0, 0.5, "qwen3.5-9b")], now=40.0, window_s=60.0
    )
    chart = load_chart(lines, LoadMarks(high=0.85, low=0.5), window_s=60.0)
    assert [trace["name"] for trace in chart.traces] == ["27B", "9B", "4B"]
    assert [shape["y0"] for shape in chart.layout["shapes"]] == [0.85, 0.5]
    assert chart.layout["yaxis"]["range"][1] > 2.0
    assert chart.table.rows == (("-0.5", "2.00", "0.50", "0.20"),)


def test_the_chart_comes_alone(ann: Client, fleet: Fleet) -> None:
    kept = sample(time.time() - 10, 0.4)
    kept.fleet = fleet
    kept.save()
    found = ann.get(reverse("fleet:charts"), {"window": "900"}).json()
    assert found["load"]["figure"]["data"][0]["y"] == [0.4]
    assert found["load"]["figure"]["layout"]["xaxis"]["range"] == [-15.0, 0]


def test_thresholds_come_from_the_layer_that_decides(fleet: Fleet) -> None:
    fleet.refresh_from_db()
    assert load_marks(fleet) == LoadMarks(high=0.85, low=0.5)


def test_other_thresholds_can_be_named(fleet: Fleet, settings: Any) -> None:
    settings.DYSERVE_LOAD_MARKS = "tests.fleet.pages.test_fleet_page.narrow_marks"
    assert load_marks(fleet) == LoadMarks(high=0.3, low=0.1)


def narrow_marks(fleet: Fleet) -> LoadMarks:
    return LoadMarks(high=0.3, low=0.1)
