"""What a person sees of runs and of the fleet while they move, in a real Chromium."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from playwright.sync_api import Locator, Page, WebSocketRoute, expect

from tests.browser.conftest import Site

pytestmark = [pytest.mark.browser, pytest.mark.process]

HOSTILE = "</script><img src=x onerror=alert(1)>"
NO_OVERFLOW = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"


class Stage:
    """The process that makes runs go (tests/browser/stage.py)."""

    def __init__(self, site: Site) -> None:
        with (site.home / "stage.log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.browser.stage"],
                cwd=settings.BASE_DIR,
                env=site.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._answer()

    def play(self, run: str | None, *steps: list[Any]) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"run": run, "steps": steps}) + "\n")
        self.process.stdin.flush()
        return str(self._answer().get("run"))

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the stage ended; its log is stage.log in the site's home"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        self.process.communicate(timeout=10)


@pytest.fixture(scope="module")
def stage(site: Site) -> Iterator[Stage]:
    stage = Stage(site)
    yield stage
    stage.close()


def node(page: Page, name: str) -> Locator:
    return page.locator(f'.dag-node[data-node="{name}"]')


def seqs(page: Page) -> list[int]:
    return [int(seq) for seq in page.locator(".log-row").evaluate_all("rows => rows.map(row => row.dataset.seq)")]


def connected(page: Page) -> None:
    expect(page.locator("[data-connection]")).to_have_attribute("data-connection", "live")


# --- A run -----------------------------------------------------------------------------------------------------------


def test_events_move_the_graph_the_log_and_the_head(page: Page, stage: Stage) -> None:
    run = stage.play(None, ["accept"])
    page.goto(f"/runs/{run}/")
    expect(node(page, "P")).to_have_attribute("data-state", "ready")
    expect(page.locator("#run-head .state").first).to_have_text("queued")
    stage.play(run, ["start"], ["dispatch", "P"])
    connected(page)
    expect(node(page, "P")).to_have_attribute("data-state", "dispatched")
    expect(node(page, "P")).to_have_attribute("data-locked", "true")
    expect(node(page, "C").locator(".badge-text")).to_have_text("27B · none")
    expect(page.locator("#run-head .state").first).to_have_text("running")
    stage.play(run, ["finish", "P"], ["dispatch", "C"])
    expect(node(page, "P")).to_have_attribute("data-state", "committed")
    expect(node(page, "D")).to_have_attribute("data-state", "ready")
    expect(page.locator("#time-P .seg-base")).to_have_count(1)
    expect(page.locator("#time-C .is-open")).to_have_count(1)
    stage.play(run, ["switch", 1])
    expect(node(page, "D").locator(".badge-text")).to_have_text("9B · none")
    expect(node(page, "D")).to_have_attribute("data-reassigned", "true")
    expect(node(page, "C")).to_have_attribute("data-reassigned", "false")
    expect(page.locator("#run-head")).to_contain_text("π(1)")
    expect(page.locator("#run-ledger")).to_contain_text("π(0) → π(1)")
    expect(page.locator("#run-strip .switch-mark")).to_have_count(1)
    expect(page.locator('.log-row[data-kind="switched"]')).to_contain_text("Changed D.")
    stage.play(run, ["finish", "C"], ["complete", "all of it"])
    expect(page.locator("#run-result")).to_contain_text("all of it")
    expect(page.locator("[data-connection]")).to_have_attribute("data-connection", "ended")
    expect(page.locator('.dag-node[data-state="committed"]')).to_have_count(5)
    expect(page.get_by_role("button", name="Run again")).to_be_visible()
    assert seqs(page) == list(range(1, len(seqs(page)) + 1))


def test_a_failure_shows_where_and_why(page: Page, stage: Stage) -> None:
    run = stage.play(None, ["accept"], ["start"], ["dispatch", "P"])
    page.goto(f"/runs/{run}/")
    connected(page)
    stage.play(run, ["fail", "P", "the backend is away"])
    expect(page.locator("#run-result")).to_contain_text("the backend is away")
    expect(node(page, "P")).to_have_attribute("data-state", "failed")
    page.get_by_role("button", name="Open node P").click()
    expect(page.locator("#drawer-body")).to_contain_text("the backend is away")


def test_a_lost_connection_is_said_and_resumed_without_gap_or_repetition(page: Page, stage: Stage) -> None:
    run = stage.play(None, ["accept"], ["start"], ["dispatch", "P"])
    sockets: list[WebSocketRoute] = []
    down = False

    def connect(socket: WebSocketRoute) -> None:
        sockets.append(socket)
        if down:
            socket.close(code=1012)
        else:
            socket.connect_to_server()

    page.route_web_socket(re.compile("/ws/runs/"), connect)
    page.goto(f"/runs/{run}/")
    stage.play(run, ["finish", "P"])
    expect(node(page, "P")).to_have_attribute("data-state", "committed")
    seen = seqs(page)[-1]
    down = True
    sockets[-1].close(code=1012)
    indicator = page.locator("[data-connection]")
    expect(indicator).to_have_text("Reconnecting")
    stage.play(run, ["dispatch", "C", "D"], ["finish", "C"])
    expect(node(page, "C")).to_have_attribute("data-state", "ready")
    down = False
    expect(node(page, "C")).to_have_attribute("data-state", "committed", timeout=15_000)
    expect(indicator).to_have_text("Live")
    assert sockets[-1].url.endswith(f"?after={seen}")
    assert seqs(page) == list(range(1, seqs(page)[-1] + 1))


def test_the_drawer_opens_by_mouse_and_keyboard_and_gives_the_focus_back(page: Page, stage: Stage) -> None:
    run = stage.play(None, ["accept"], ["start"], ["dispatch", "P"], ["finish", "P", "made", {"verify": True}])
    page.goto(f"/runs/{run}/")
    drawer = page.get_by_role("dialog")
    node(page, "P").click()
    expect(drawer).to_contain_text("Attempt 1")
    expect(page).to_have_url(re.compile("#node=P$"))
    drawer.locator("summary", has_text="verdict").click()
    expect(drawer.get_by_text("Prompt of P: made").last).to_be_visible()
    page.keyboard.press("Escape")
    expect(drawer).to_be_hidden()
    expect(node(page, "P")).to_be_focused()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(drawer).to_contain_text("Not dispatched yet")
    drawer.get_by_role("button", name="Close").click()
    expect(drawer).to_be_hidden()
    expect(page).not_to_have_url(re.compile("#node="))


def test_an_open_drawer_follows_its_node(page: Page, stage: Stage) -> None:
    run = stage.play(None, ["accept"], ["start"], ["dispatch", "P"])
    page.goto(f"/runs/{run}/#node=P")
    drawer = page.get_by_role("dialog")
    expect(drawer).to_contain_text("Its calls are recorded when the attempt ends.")
    stage.play(run, ["finish", "P", "what came out"])
    expect(drawer).to_contain_text("what came out")


def test_hostile_texts_stay_texts(page: Page, stage: Stage) -> None:
    run = stage.play(None, ["accept", HOSTILE, {"P": HOSTILE}], ["start"])
    page.goto(f"/runs/{run}/")
    connected(page)
    stage.play(run, ["dispatch", "P"], ["finish", "P", HOSTILE, {"text": HOSTILE}], ["switch", 1, HOSTILE])
    expect(page.locator("#run-ledger")).to_contain_text(HOSTILE)
    expect(page.locator('.log-row[data-kind="switched"]')).to_contain_text(HOSTILE)
    node(page, "P").click()
    expect(page.get_by_role("dialog")).to_contain_text(HOSTILE)
    page.keyboard.press("Escape")
    committed = page.locator('.log-row[data-kind="node_committed"]')
    committed.locator("summary").click()
    expect(committed.locator("pre")).to_contain_text(HOSTILE)
    stage.play(run, ["complete", HOSTILE])
    expect(page.locator("#output-text")).to_have_text(HOSTILE)
    page.goto("/")
    expect(page.locator("#recent-runs")).to_contain_text(HOSTILE)
    expect(page.locator("#recent-switches")).to_contain_text(HOSTILE)
    assert page.locator("img").count() == 0


def test_cancel_asks_first(page: Page, stage: Stage) -> None:
    run = stage.play(None, ["accept"], ["start"], ["dispatch", "P"])
    page.goto(f"/runs/{run}/")
    page.locator("summary", has_text="Cancel").click()
    page.get_by_role("button", name="Cancel the run").click()
    expect(page.locator("#run-head")).to_contain_text("cancelling")
    expect(page.locator("#toasts")).to_contain_text("Nothing more is dispatched")


def test_the_log_filters_follows_and_stays_bounded(page: Page, stage: Stage) -> None:
    run = stage.play(None, ["accept"], ["start"], ["flood", 900])
    page.goto(f"/runs/{run}/")
    connected(page)
    page.locator("#log").scroll_into_view_if_needed()
    stage.play(run, ["flood", 1300])
    last = page.locator(".log-row").last
    expect(last).to_contain_text("Kept 1300.")
    expect(last).to_be_in_viewport()
    assert len(seqs(page)) == 2000
    expect(page.locator("#log-earlier")).to_be_attached()
    page.get_by_label("Filter the log").fill("kept 1299.")
    expect(page.locator(".log-row:visible")).to_have_count(1)
    page.get_by_label("Filter the log").fill("")
    page.locator("#log").evaluate("box => { box.scrollTop = 0; }")
    expect(page.get_by_label("follow")).not_to_be_checked()


def test_two_hundred_nodes_are_drawn_and_move(page: Page, stage: Stage) -> None:
    run = stage.play(None, ["wide", 200])
    page.goto(f"/runs/{run}/")
    expect(page.locator(".dag-node")).to_have_count(200)
    expect(page.locator(".time-row")).to_have_count(200)
    connected(page)
    stage.play(run, ["dispatch", *(f"n{index}" for index in range(10))], ["finish", "n0"])
    expect(page.locator('.dag-node[data-state="dispatched"]')).to_have_count(9)
    expect(node(page, "n10")).to_have_attribute("data-state", "ready")
    expect(page.locator("#time-n0 .seg-base")).to_have_count(1)


def test_the_table_behind_the_bars_opens(page: Page, stage: Stage) -> None:
    run = stage.play(None, ["accept"], ["start"], ["dispatch", "P"], ["finish", "P"], ["complete"])
    page.goto(f"/runs/{run}/")
    page.locator("summary", has_text="Table").click()
    expect(page.locator("#timeline-table tbody tr")).to_have_count(5)


def test_a_switch_is_explained(page: Page, stage: Stage) -> None:
    run = stage.play(None, ["accept"], ["start"], ["dispatch", "P"], ["finish", "P"], ["switch", 1])
    page.goto(f"/runs/{run}/")
    page.locator("#run-strip .switch-mark").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("π(0) → π(1)")
    page.get_by_role("link", name="Back to the run").click()
    expect(page.get_by_role("heading", name="Graph")).to_be_visible()


# --- Lists and figures -----------------------------------------------------------------------------------------------


def test_the_list_shows_new_runs_and_new_states_in_place(page: Page, stage: Stage) -> None:
    first = stage.play(None, ["accept"])
    page.goto("/runs/")
    row = page.locator(f"#row-{first}")
    expect(row.locator(".state").first).to_have_text("queued")
    row.evaluate("element => { element.dataset.mark = 'same'; }")
    second = stage.play(None, ["accept"])
    stage.play(first, ["start"], ["complete"])
    expect(page.locator(f"#row-{second}")).to_be_visible()
    expect(row.locator(".state").first).to_have_text("succeeded")
    expect(row).to_contain_text("5/5")
    assert row.get_attribute("data-mark") == "same"
    page.get_by_label("late only").check()
    expect(page).to_have_url(re.compile(r"/runs/\?late=1$"))


def test_a_burst_from_the_overview_appears_on_it(page: Page, stage: Stage) -> None:
    stage.play(None, ["accept", "For the burst"])
    page.goto("/")
    connected(page)
    for box in page.locator(".burst-choices input").all():
        box.uncheck()
    page.get_by_label("For the burst").check()
    page.get_by_role("spinbutton").fill("7")
    page.get_by_role("button", name="Send burst").click()
    expect(page.locator("#toasts")).to_contain_text("Sent 7 runs.")
    expect(page.locator("#recent-runs tr", has_text="For the burst")).to_have_count(8)
    expect(page.locator("#recent-runs .state").first).to_have_text("queued")
    expect(page.locator("#load .main-svg").first).to_be_visible()


def test_the_fleet_shows_what_is_published_and_unknown_without_it(page: Page, stage: Stage) -> None:
    stage.play(None, ["quiet"])
    page.goto("/fleet/")
    expect(page.locator("#no-pressure")).to_be_visible()
    card = page.locator('[data-replica="27b-0"]')
    expect(card.locator('[data-field="running"]')).to_have_text("unknown")
    stage.play(None, ["pressure", 1.0])
    expect(card.locator('[data-field="running"]')).to_have_text("32 / 32")
    expect(card.locator('[data-field="health"]')).to_have_text("healthy")
    big = page.locator('[data-class="qwen3.5-27b"]')
    expect(big).to_have_attribute("data-level", "high")
    expect(big).to_contain_text("1.00")
    stage.play(None, ["pressure", 1.0, "stale"])
    expect(card.locator('[data-field="health"]')).to_have_text("stale")
    expect(card.locator('[data-field="running"]')).to_have_text("unknown")
    expect(big).to_have_attribute("data-level", "unknown")
    stage.play(None, ["quiet"])
    expect(page.locator("#no-pressure")).to_be_visible()


def test_a_replica_is_drained_from_its_card(page: Page, stage: Stage) -> None:
    page.goto("/fleet/")
    card = page.locator('[data-replica="4b-0"]')
    card.get_by_role("button", name="Drain").click()
    expect(page.locator("#toasts")).to_contain_text("4b-0 takes no new calls")
    expect(card).to_have_attribute("data-operator", "draining")
    card.get_by_role("button", name="Enable").click()
    expect(card).to_have_attribute("data-operator", "enabled")


def test_nothing_is_wider_than_a_telephone(narrow: Page, stage: Stage) -> None:
    run = stage.play(
        None, ["accept", "A workflow with a very long name " * 4, {"P": "T" * 60}], ["start"], ["dispatch", "P"]
    )
    stage.play(run, ["finish", "P", "w" * 500, {"verify": True}], ["switch", 1])
    stage.play(None, ["pressure", 0.9])
    wide = stage.play(None, ["wide", 40])
    addresses = ["/", "/runs/", "/fleet/", f"/runs/{run}/", f"/runs/{run}/#node=P", f"/runs/{run}/switches/7/"]
    for address in [*addresses, f"/runs/{wide}/"]:
        narrow.goto(address)
        expect(narrow.get_by_role("main")).to_be_visible()
        if address.endswith("#node=P"):
            narrow.locator("#drawer-body .call").first.click()
        assert narrow.evaluate(NO_OVERFLOW), address
