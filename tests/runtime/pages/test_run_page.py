"""The page of one run, its parts and its nodes, as the server renders them."""

from __future__ import annotations

import json
import re
from html import escape
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from fleet.models import Fleet, PressureSample
from runtime.engine.events import RunState
from runtime.models import Run
from runtime.services import cancel_run
from tests.runtime.engine.samples import BIG, bundle, impl, plan
from tests.runtime.pages.staged import StagedRun, chain_flow, flow

HOSTILE = "</script><img src=x onerror=alert(1)>"
MAX_QUERIES = 14
"""Session, user, run, events, attempts (2), variants, calls, ledger (2), plan event, samples, rule, emulated fleet."""


def script(html: str) -> dict[str, Any]:
    found = re.search(r'<script id="run-state" type="application/json">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    state: dict[str, Any] = json.loads(found.group(1))
    return state


def nodes_of(html: str) -> dict[str, dict[str, str]]:
    """Attributes of every node of the graph."""
    tags = re.findall(r'<g class="dag-node ([^"]*)" ([^>]*)>', html)
    found = {}
    for classes, attributes in tags:
        values = dict(re.findall(r'data-([a-z]+)="([^"]*)"', attributes))
        found[values["node"]] = {**values, "classes": classes}
    return found


@pytest.fixture
def staged(ann: User, fleet: Fleet) -> StagedRun:
    """P is committed, C is on its way under pi(0), a switch moved D and A to 9B."""
    run = StagedRun.accept(ann, fleet).start()
    return run.dispatch("P").finish("P", verify=True).dispatch("C").switch(1)


def page(browser: Client, run: StagedRun) -> str:
    response = browser.get(reverse("runtime:run", args=[run.run_id]))
    assert response.status_code == 200
    return response.content.decode()


def test_the_graph_shows_states_locks_and_what_a_switch_reassigned(browser: Client, staged: StagedRun) -> None:
    nodes = nodes_of(page(browser, staged))
    states = {node: (values["state"], values["locked"], values["reassigned"]) for node, values in nodes.items()}
    assert states == {
        "P": ("committed", "true", "false"),
        "C": ("dispatched", "true", "false"),
        "D": ("ready", "false", "true"),
        "R": ("waiting", "false", "false"),
        "A": ("waiting", "false", "false"),
    }
    assert "model-27b" in nodes["C"]["classes"]
    assert "model-9b" in nodes["D"]["classes"]


def test_a_run_that_waits_shows_its_whole_graph(browser: Client, ann: User, fleet: Fleet) -> None:
    html = page(browser, StagedRun.accept(ann, fleet))
    states = {node: values["state"] for node, values in nodes_of(html).items()}
    assert states == {"P": "ready", "C": "waiting", "D": "waiting", "R": "waiting", "A": "waiting"}
    assert "not compiled yet" in html


def test_the_script_continues_after_the_last_event_on_the_page(browser: Client, staged: StagedRun) -> None:
    state = script(page(browser, staged))
    assert state["seq"] == staged.row.last_seq == state["events"][-1]["seq"]
    assert [event["kind"] for event in state["events"]] == [
        "run_accepted",
        "run_claimed",
        "plan_ready",
        "bundle_ready",
        "node_dispatched",
        "node_committed",
        "node_dispatched",
        "switched",
    ]
    assert state["nodes"]["C"] == {"state": "dispatched", "attempt": 1, "variant": 0}


def test_bars_split_queueing_base_call_and_verification(browser: Client, staged: StagedRun) -> None:
    row = re.search(r'id="time-P".*?</div>\s*</div>', page(browser, staged), re.DOTALL)
    assert row is not None
    assert re.findall(r"segment (seg-\w+)", row.group()) == ["seg-queued", "seg-base", "seg-queued", "seg-verify"]


def test_what_is_on_its_way_grows_with_the_clock(browser: Client, staged: StagedRun) -> None:
    row = re.search(r'id="time-C".*?</div>\s*</div>', page(browser, staged), re.DOTALL)
    assert row is not None
    assert "is-open" in row.group()
    assert "--b:var(--now)" in row.group()


def test_the_strip_has_variants_switches_and_the_load_behind(browser: Client, staged: StagedRun, fleet: Fleet) -> None:
    origin = staged.row.accepted_at.timestamp()
    Run.objects.filter(pk=staged.run_id).update(state=RunState.SUCCEEDED, finished_at=staged.at + 30)
    PressureSample.objects.bulk_create(
        PressureSample(
            fleet=fleet, model=BIG, at=origin + at, load=0.75, state="ok", outstanding=1, planned=0, capacity=1
        )
        for at in (0.2, 0.9)
    )
    html = page(browser, staged)
    assert re.findall(r'class="variant-span model-(\w+)"', html) == ["27b", "9b"]
    assert reverse("runtime:switch", args=[staged.run_id, 8]) in html
    area = re.search(r'<path class="model-27b" d="([^"]*)"', html)
    assert area is not None
    assert "V0.500" in area.group(1)


def test_a_finished_run_shows_its_output_first_and_can_run_again(browser: Client, staged: StagedRun) -> None:
    staged.finish("C").complete("the final answer")
    html = page(browser, staged)
    assert html.index("the final answer") < html.index('id="run-dag"')
    assert "Run again" in html
    assert reverse("runtime:cancel", args=[staged.run_id]) not in html
    assert script(html)["ended"] is True


def test_a_failed_run_names_node_code_and_message(browser: Client, staged: StagedRun) -> None:
    staged.fail("C", "the backend is away")
    html = page(browser, staged)
    assert "the backend is away" in html
    assert 'data-open-node="C"' in html
    assert "timeout" in html
    assert nodes_of(html)["C"]["state"] == "failed"


def test_texts_of_people_and_models_are_texts(browser: Client, ann: User, fleet: Fleet) -> None:
    run = StagedRun.accept(ann, fleet, flow(HOSTILE, P=HOSTILE), inputs={"topic": HOSTILE}).start()
    run.dispatch("P").finish("P", HOSTILE, text=HOSTILE).switch(1, HOSTILE).complete(HOSTILE)
    drawer = browser.get(reverse("runtime:node", args=[run.run_id, "P"])).content.decode()
    switch = browser.get(reverse("runtime:switch", args=[run.run_id, 7])).content.decode()
    for html in (page(browser, run), drawer, switch):
        assert "<img" not in html
    assert escape(HOSTILE) in drawer


def test_nobody_sees_another_persons_run(stranger: Client, staged: StagedRun) -> None:
    run = staged.run_id
    read = [
        reverse("runtime:run", args=[run]),
        reverse("runtime:parts", args=[run]),
        reverse("runtime:output", args=[run]),
        reverse("runtime:node", args=[run, "P"]),
        reverse("runtime:node-output", args=[run, "P", 1]),
        reverse("runtime:switch", args=[run, 8]),
    ]
    assert {stranger.get(address).status_code for address in read} == {404}
    acts = [reverse("runtime:cancel", args=[run]), reverse("runtime:again", args=[run])]
    assert {stranger.post(address).status_code for address in acts} == {404}
    assert staged.row.cancel_requested_at is None
    assert Run.objects.count() == 1


def test_pages_ask_for_a_login(staged: StagedRun) -> None:
    for name in ("run", "parts", "cancel", "again"):
        response = Client().get(reverse(f"runtime:{name}", args=[staged.run_id]))
        assert response.status_code == 302
        assert response["Location"].startswith("/login/")


# --- Parts -----------------------------------------------------------------------------------------------------------


def test_only_the_parts_that_are_asked_for_come(browser: Client, staged: StagedRun) -> None:
    address = reverse("runtime:parts", args=[staged.run_id])
    html = browser.get(address, {"part": ["head", "strip", "nonsense"], "node": ["C", "unknown"]}).content.decode()
    assert re.findall(r'<(?:header|div|section) class="[^"]*" id="([^"]*)"', html) == [
        "run-head",
        "run-strip",
        "time-C",
    ]


def test_the_table_behind_the_bars(browser: Client, staged: StagedRun) -> None:
    html = browser.get(reverse("runtime:parts", args=[staged.run_id]), {"part": "table"}).content.decode()
    assert html.count("<tr>") == 1 + 5
    assert "27B · none" in html


def test_a_page_reads_no_more_for_many_nodes(
    browser: Client, ann: User, fleet: Fleet, django_assert_max_num_queries: Any
) -> None:
    value = chain_flow(200)
    given = bundle(*(plan({node.id: impl(model) for node in value.llm_nodes}) for model in (BIG,)))
    run = StagedRun.accept(ann, fleet, value, given).start()
    run.dispatch(*(f"n{index}" for index in range(10)))
    for index in range(10):
        run.finish(f"n{index}")
    page(browser, run)
    with django_assert_max_num_queries(MAX_QUERIES):
        html = page(browser, run)
    assert len(nodes_of(html)) == 200
    with django_assert_max_num_queries(MAX_QUERIES):
        parts = browser.get(
            reverse("runtime:parts", args=[run.run_id]),
            {"part": ["head", "result", "strip", "ledger", "badges", "table"], "node": list(value.by_id)},
        )
    assert parts.content.decode().count('class="time-row"') == 200


# --- Nodes -----------------------------------------------------------------------------------------------------------


def test_a_node_shows_attempts_calls_and_verdicts(browser: Client, staged: StagedRun) -> None:
    html = browser.get(reverse("runtime:node", args=[staged.run_id, "P"])).content.decode()
    for words in ("Attempt 1", "generate", "verdict", "reject", "27b-0", "Prompt of P", "120 in, 30 out", "Plan it."):
        assert words in html


def test_a_node_that_waits_shows_what_is_planned(browser: Client, staged: StagedRun) -> None:
    html = browser.get(reverse("runtime:node", args=[staged.run_id, "D"])).content.decode()
    assert "planned, not dispatched" in html
    assert "reassigned by a switch" in html
    assert "Not dispatched yet" in html


def test_an_unknown_node_does_not_exist(browser: Client, staged: StagedRun) -> None:
    assert browser.get(reverse("runtime:node", args=[staged.run_id, "nowhere"])).status_code == 404


def test_a_long_output_is_cut_on_the_page_and_whole_in_the_download(browser: Client, ann: User, fleet: Fleet) -> None:
    run = (
        StagedRun.accept(ann, fleet).start().dispatch("P").finish("P", "x" * 50_000).complete({"answer": "y" * 50_000})
    )
    html = browser.get(reverse("runtime:node", args=[run.run_id, "P"])).content.decode()
    assert "x" * 20_000 in html
    assert "x" * 20_001 not in html
    node = browser.get(reverse("runtime:node-output", args=[run.run_id, "P", 1]))
    assert node.content == b"x" * 50_000
    whole = browser.get(reverse("runtime:output", args=[run.run_id]))
    assert json.loads(whole.content) == {"answer": "y" * 50_000}
    for download in (node, whole):
        assert download["Content-Disposition"].startswith("attachment")
        assert download["Content-Type"] == "text/plain; charset=utf-8"


def test_a_missing_output_does_not_exist(browser: Client, staged: StagedRun) -> None:
    assert browser.get(reverse("runtime:output", args=[staged.run_id])).status_code == 404
    assert browser.get(reverse("runtime:node-output", args=[staged.run_id, "C", 1])).status_code == 404


# --- Actions ---------------------------------------------------------------------------------------------------------


def test_cancel_is_recorded_and_the_button_goes(browser: Client, staged: StagedRun) -> None:
    address = reverse("runtime:cancel", args=[staged.run_id])
    assert address in page(browser, staged)
    assert browser.get(address).status_code == 405
    response = browser.post(address)
    assert response["Location"] == reverse("runtime:run", args=[staged.run_id])
    assert staged.row.cancelled_by == "ann"
    html = page(browser, staged)
    assert "cancelling" in html
    assert address not in html


def test_cancelling_an_ended_run_says_so(browser: Client, staged: StagedRun) -> None:
    staged.finish("C").complete()
    response = browser.post(reverse("runtime:cancel", args=[staged.run_id]), follow=True)
    assert "had ended already" in response.content.decode()
    assert staged.row.state == RunState.SUCCEEDED


def test_a_queued_run_that_was_cancelled_keeps_its_graph(browser: Client, ann: User, fleet: Fleet) -> None:
    run = StagedRun.accept(ann, fleet)
    cancel_run(run=run.row, by=ann)
    html = page(browser, run)
    assert {values["state"] for values in nodes_of(html).values()} == {"waiting"}
    assert "Run again" in html


def test_run_again_takes_inputs_and_settings_along(browser: Client, staged: StagedRun) -> None:
    Run.objects.filter(pk=staged.run_id).update(
        effort=0.25, controller="off", deadline_s=30.0, bundle_kind="priced", limits={"max_calls": 9}
    )
    response = browser.post(reverse("runtime:again", args=[staged.run_id]))
    run = Run.objects.exclude(pk=staged.run_id).get()
    assert response["Location"] == reverse("runtime:run", args=[run.pk])
    assert (run.inputs, run.effort, run.controller, run.deadline_s) == (
        {"topic": "bridges", "count": 2},
        0.25,
        "off",
        30.0,
    )
    assert (run.bundle_kind, run.limits) == ("priced", {"max_calls": 9})
    assert (run.state, run.source, run.version_id) == (RunState.QUEUED, "page", staged.row.version_id)
