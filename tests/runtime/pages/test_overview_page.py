"""The overview: its document, its charts, the demo burst."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from fleet.models import Fleet, PressureSample
from runtime.burst import MAX_RUNS, burst_choices, send_burst
from runtime.engine.events import RunState
from runtime.models import Run
from runtime.overview import overview
from runtime.stats import percentile, recent_stats
from tests.runtime.engine.samples import BIG, SMALL
from tests.runtime.pages.staged import StagedRun, flow, stored


@pytest.fixture(autouse=True)
def _redis(valkey: str) -> None:
    """A real, empty server: nobody publishes pressure."""


def finished(owner: User, fleet: Fleet, latency_s: float, **fields: Any) -> Run:
    """A run that ended now, `latency_s` after it was accepted."""
    version, now = stored(owner, flow()), time.time()
    run = Run.objects.create(owner=owner, fleet=fleet, version=version, **{"state": RunState.SUCCEEDED, **fields})
    accepted = datetime.fromtimestamp(now - latency_s, UTC)
    Run.objects.filter(pk=run.pk).update(accepted_at=accepted, finished_at=now)
    return run


def document(html: str) -> dict[str, Any]:
    found = re.search(r'<script id="overview-document" type="application/json">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found.group(1))
    return data


def test_stats_count_what_is_active_and_what_ended_in_the_window(ann: User, fleet: Fleet) -> None:
    StagedRun.accept(ann, fleet)
    StagedRun.accept(ann, fleet).start().switch(1)
    finished(ann, fleet, 1.0, deadline_s=5.0, late=False)
    finished(ann, fleet, 9.0, deadline_s=5.0, late=True)
    finished(ann, fleet, 2.0, deadline_s=5.0, late=False, state=RunState.FAILED)
    finished(ann, fleet, 3.0, deadline_s=5.0, late=False, state=RunState.CANCELLED)
    finished(ann, fleet, 4.0)
    old = finished(ann, fleet, 100.0)
    Run.objects.filter(pk=old.pk).update(finished_at=time.time() - 3600)
    stats = recent_stats(ann, time.time())
    assert (stats.running, stats.queued, stats.succeeded, stats.failed, stats.cancelled) == (1, 1, 3, 1, 1)
    assert (stats.attained, stats.with_deadline, stats.switches) == (1, 3, 1)
    assert stats.attainment == pytest.approx(1 / 3)
    assert stats.p50_s == pytest.approx(4.0, abs=0.1)
    assert stats.p95_s == pytest.approx(9.0, abs=0.1)


def test_nobody_counts_in_another_persons_figures(ann: User, fleet: Fleet) -> None:
    finished(User.objects.create_user("bob"), fleet, 1.0)
    assert recent_stats(ann, time.time()).succeeded == 0
    assert overview(ann, time.time())["runs"] == []


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([], 0.95, None), ([3.0], 0.95, 3.0), ([1.0, 2.0], 0.5, 1.0), (list(map(float, range(1, 101))), 0.95, 95.0)],
)
def test_percentiles_are_observed_values(values: list[float], share: float, expected: float | None) -> None:
    assert percentile(values, share) == expected


def test_the_page_carries_the_sockets_document(browser: Client, ann: User, fleet: Fleet) -> None:
    run = StagedRun.accept(ann, fleet).start().switch(1)
    data = document(browser.get("/").content.decode())
    assert data["type"] == "overview"
    assert [(row["id"], row["state"], row["nodes_total"]) for row in data["runs"]] == [(run.run_id, "running", 5)]
    assert [(row["run"], row["to_variant"], row["workflow"]) for row in data["switches"]] == [
        (run.run_id, 1, "Walk-through")
    ]
    assert data["loads"] == []


def test_the_page_reads_the_same_for_many_runs(
    browser: Client, ann: User, fleet: Fleet, django_assert_max_num_queries: Any
) -> None:
    for index in range(12):
        finished(ann, fleet, float(index))
    with django_assert_max_num_queries(22):
        browser.get("/")


def test_an_empty_overview_names_the_next_action(browser: Client) -> None:
    html = browser.get("/").content.decode()
    assert "No workflow to run yet" in html
    assert reverse("planner:upload") in html


def test_charts_come_with_figure_and_table(browser: Client, ann: User, fleet: Fleet) -> None:
    now = time.time()
    for model, load in ((BIG, 1.2), (SMALL, None)):
        PressureSample.objects.create(
            fleet=fleet, model=model, at=now - 30, load=load, state="ok", outstanding=0, planned=0, capacity=1
        )
    StagedRun.accept(ann, fleet).start().switch(1)
    found = browser.get(reverse("runtime:charts"), {"window": "120"}).json()
    traces = {trace["name"]: trace for trace in found["load"]["figure"]["data"]}
    assert set(traces) == {"27B", "9B", "switches"}
    assert traces["27B"]["y"] == [1.2]
    assert traces["9B"]["y"] == [None]
    assert found["load"]["figure"]["layout"]["xaxis"]["range"] == [-2.0, 0]
    assert "1.20" in found["load"]["table"]
    assert sum(found["arrivals"]["figure"]["data"][0]["y"]) == 1


def test_a_persons_text_in_a_chart_is_a_text(browser: Client, ann: User, fleet: Fleet) -> None:
    StagedRun.accept(ann, fleet).start().switch(1, "<b>bold</b>")
    found = browser.get(reverse("runtime:charts")).json()
    (marker,) = (trace for trace in found["load"]["figure"]["data"] if trace["name"] == "switches")
    assert marker["customdata"] == ["&lt;b&gt;bold&lt;/b&gt;"]


# --- Burst -----------------------------------------------------------------------------------------------------------


def test_a_burst_goes_round_the_chosen_workflows(browser: Client, ann: User, fleet: Fleet) -> None:
    first, second, third = (stored(ann, flow(name)) for name in ("One", "Two", "Three"))
    response = browser.post(reverse("runtime:burst"), {"runs": "5", "versions": [str(first.pk), str(third.pk)]})
    assert response["Location"] == "/"
    versions = list(Run.objects.order_by("pk").values_list("version_id", flat=True))
    assert sorted(versions) == sorted([first.pk] * 3 + [third.pk] * 2)
    assert set(Run.objects.values_list("owner_id", "source", "state")) == {(ann.pk, "burst", "queued")}
    assert second.pk not in versions


@pytest.mark.parametrize("runs", ["", "0", "-1", "201", "1e2", "²", "many"])
def test_a_burst_is_bounded(browser: Client, ann: User, runs: str) -> None:
    version = stored(ann, flow())
    response = browser.post(reverse("runtime:burst"), {"runs": runs, "versions": [str(version.pk)]})
    assert response.status_code == 422
    assert f"from 1 to {MAX_RUNS}" in response.content.decode()
    assert not Run.objects.exists()


def test_a_burst_without_a_workflow_says_so(browser: Client, ann: User) -> None:
    stored(ann, flow())
    response = browser.post(reverse("runtime:burst"), {"runs": "3"})
    assert response.status_code == 422
    assert "Choose at least one workflow." in response.content.decode()


def test_a_burst_never_takes_another_persons_workflow(browser: Client, ann: User, fleet: Fleet) -> None:
    foreign = stored(User.objects.create_user("bob"), flow())
    assert browser.post(reverse("runtime:burst"), {"runs": "3", "versions": [str(foreign.pk)]}).status_code == 422
    assert not Run.objects.exists()


def test_workflows_that_need_inputs_cannot_burst(ann: User, fleet: Fleet) -> None:
    needy = flow("Needy")
    needy = replace(needy, inputs=tuple(replace(spec, required=True, default=None) for spec in needy.inputs))
    stored(ann, needy)
    stored(ann, flow("Ready"))
    assert [(choice.name, choice.missing) for choice in burst_choices(ann)] == [
        ("Needy", ("topic", "count")),
        ("Ready", ()),
    ]


def test_the_service_refuses_what_the_page_refuses(ann: User, fleet: Fleet) -> None:
    version = stored(ann, flow())
    with pytest.raises(ValueError, match="1 to 200"):
        send_burst(ann, [version], 201)
    with pytest.raises(ValueError, match="workflow"):
        send_burst(ann, [], 1)
