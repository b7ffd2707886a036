"""The list of runs: filters, counts, pages; and starting a run from a form."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from fleet.models import Fleet
from runtime.engine.events import RunState
from runtime.models import Run
from runtime.views.runs import PAGE_SIZE
from tests.runtime.pages.staged import StagedRun, flow, stored

RUNS = "/runs/"


def ids(html: str) -> list[str]:
    return re.findall(r'<tr id="row-(run_\w+)"', html)


def counts(html: str) -> dict[str, int]:
    found = re.findall(r">(\w+) <span class=\"badge badge-count\">([\d,]+)<", html)
    return {word: int(number.replace(",", "")) for word, number in found}


def get(browser: Client, **query: str) -> str:
    response = browser.get(RUNS, query)
    assert response.status_code == 200
    return response.content.decode()


@pytest.fixture
def runs(ann: User, fleet: Fleet) -> list[str]:
    """Oldest first: a finished one, a running one, a queued one of another workflow."""
    done = StagedRun.accept(ann, fleet).start().complete()
    running = StagedRun.accept(ann, fleet).start().dispatch("P")
    queued = StagedRun.accept(ann, fleet, flow("Another"))
    return [done.run_id, running.run_id, queued.run_id]


def test_runs_come_newest_first_with_counts_per_state(browser: Client, runs: list[str]) -> None:
    html = get(browser)
    assert ids(html) == runs[::-1]
    expected = {"all": 3, "queued": 1, "running": 1, "succeeded": 1, "failed": 0, "cancelled": 0}
    assert counts(html) == expected


def test_filters_live_in_the_address(browser: Client, runs: list[str]) -> None:
    assert ids(get(browser, state="running")) == [runs[1]]
    other = Run.objects.get(pk=runs[2]).version.workflow_id
    html = get(browser, workflow=str(other))
    assert ids(html) == [runs[2]]
    assert counts(html)["all"] == 1
    Run.objects.filter(pk=runs[0]).update(late=True)
    assert ids(get(browser, late="1")) == [runs[0]]
    assert f'href="?workflow={other}&amp;state=queued"' in get(browser, workflow=str(other), state="running")


@pytest.mark.parametrize("query", [{"state": "lost"}, {"workflow": "x"}, {"workflow": "9" * 30}, {"after": "!"}])
def test_an_address_that_no_page_gave_out_does_not_exist(browser: Client, query: dict[str, str]) -> None:
    assert browser.get(RUNS, query).status_code == 404


def test_nobody_sees_another_persons_runs(stranger: Client, runs: list[str]) -> None:
    html = get(stranger)
    assert ids(html) == []
    assert counts(html)["all"] == 0
    assert "No runs yet" in html


def test_pages_follow_a_cursor_and_read_the_same_for_many_rows(
    browser: Client, ann: User, fleet: Fleet, django_assert_max_num_queries: Any
) -> None:
    version = stored(ann, flow())
    Run.objects.bulk_create(
        Run(id=f"run_{index:026d}", owner=ann, fleet=fleet, version=version, nodes_total=5) for index in range(60)
    )
    with django_assert_max_num_queries(6):
        first = get(browser, state="queued")
    following = re.search(r'href="\?([^"]*after=[^"]*)"', first)
    assert following is not None
    second = browser.get(f"{RUNS}?{unescape(following.group(1))}").content.decode()
    assert len(ids(first)) == len(ids(second)) == PAGE_SIZE
    assert min(ids(first)) > max(ids(second))
    assert "state=queued" in following.group(1)
    assert "First page" in second


def test_rows_alone_are_the_same_rows(browser: Client, runs: list[str]) -> None:
    html = get(browser, rows="1", state="running")
    assert ids(html) == [runs[1]]
    assert "<html" not in html


def test_empty_lists_name_the_next_action(browser: Client, runs: list[str]) -> None:
    assert "Show all runs" in get(browser, state="failed")


def test_a_row_says_late_and_in_time(browser: Client, runs: list[str]) -> None:
    assert "in time" in get(browser, state="succeeded")
    Run.objects.filter(pk=runs[0]).update(late=True)
    html = get(browser, state="succeeded")
    assert 'data-state="late"' in html
    assert "in time" not in html


# --- The form --------------------------------------------------------------------------------------------------------


def submit_url(owner: User) -> str:
    return reverse("runtime:submit", args=[stored(owner, flow()).pk])


def test_a_form_starts_a_run(browser: Client, ann: User) -> None:
    response = browser.post(submit_url(ann), {"input.topic": "tunnels", "deadline_s": "12.5", "effort": "0.75"})
    run = Run.objects.get()
    assert response["Location"] == reverse("runtime:run", args=[run.pk])
    assert (run.inputs, run.deadline_s, run.effort) == ({"topic": "tunnels", "count": 2}, 12.5, 0.75)
    assert (run.owner, run.state, run.source) == (ann, RunState.QUEUED, "page")


def test_a_form_beside_a_plan_runs_that_plan(browser: Client, ann: User) -> None:
    """Effort, weights, bundle and limits as the page's address writes them."""
    plan = "effort=0.7&lambda_l=0.4&bundle=priced&max_calls=90"
    browser.post(submit_url(ann), {"input.topic": "tunnels", "plan": plan, "effort": "0.1"})
    run = Run.objects.get()
    assert (run.effort, run.weights["lambda_l"], run.bundle_kind, run.limits) == (0.7, 0.4, "priced", {"max_calls": 90})
    browser.post(submit_url(ann), {"input.topic": "tunnels", "plan": ""})
    assert (Run.objects.latest("accepted_at").effort, Run.objects.latest("accepted_at").limits) == (0.5, {})


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ("max_cost=-1", "must not be negative"),
        ("limits=pin.nobody%3D27b", "nobody"),
        ("bundle=magic", "must be one of"),
    ],
)
def test_a_plan_that_means_nothing_starts_nothing(browser: Client, ann: User, plan: str, words: str) -> None:
    response = browser.post(submit_url(ann), {"input.topic": "kept text", "plan": plan})
    html = unescape(response.content.decode())
    assert response.status_code == 422
    assert words in html
    assert "kept text" in html
    assert not Run.objects.exists()


def test_empty_fields_mean_the_workflows_defaults(browser: Client, ann: User) -> None:
    browser.post(submit_url(ann), {"input.topic": "", "deadline_s": "", "effort": "", "controller": ""})
    run = Run.objects.get()
    assert (run.inputs, run.deadline_s, run.controller) == ({"topic": "bridges", "count": 2}, 60.0, "")


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("deadline_s", "soon", "Enter a number of seconds"),
        ("deadline_s", "-1", "is no deadline"),
        ("deadline_s", "nan", "Enter a number of seconds"),
        ("effort", "7", "effort"),
        ("controller", "magic", "there is no controller"),
    ],
)
def test_wrong_settings_start_nothing_and_say_why(
    browser: Client, ann: User, field: str, value: str, words: str
) -> None:
    response = browser.post(submit_url(ann), {"input.topic": "kept text", field: value})
    html = unescape(response.content.decode())
    assert response.status_code == 422
    assert words.lower() in html.lower()
    assert "kept text" in html
    assert not Run.objects.exists()


@pytest.mark.parametrize(
    ("given", "field", "words"),
    [
        ({"input.count": "many"}, "input.count", "Enter a whole number."),
        ({"input.topic": "a\x00b"}, "input.topic", "U+0000"),
    ],
)
def test_errors_of_inputs_stand_at_their_fields(
    browser: Client, ann: User, given: dict[str, str], field: str, words: str
) -> None:
    response = browser.post(submit_url(ann), given)
    assert response.status_code == 422
    control = re.search(rf'name="{field}"[^>]*aria-describedby="([^"]*)"', response.content.decode())
    assert control is not None
    assert 'aria-invalid="true"' in control.group()
    hint = re.search(rf'id="{control.group(1)}">(.*?)</span></span>', response.content.decode())
    assert hint is not None
    assert words in hint.group(1)


def test_another_persons_version_does_not_exist(stranger: Client, ann: User) -> None:
    address = submit_url(ann)
    assert stranger.get(address).status_code == 404
    assert stranger.post(address, {"input.topic": "x"}).status_code == 404
    assert not Run.objects.exists()


def test_the_form_stands_alone_too(browser: Client, ann: User) -> None:
    html = browser.get(submit_url(ann)).content.decode()
    assert 'name="input.topic"' in html
    assert "bridges" in html
