"""The page of one decision: a person reads why."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from fleet.models import Fleet
from tests.runtime.pages.staged import StagedRun


@pytest.fixture
def staged(ann: User, fleet: Fleet) -> StagedRun:
    run = StagedRun.accept(ann, fleet).start().dispatch("P")
    return run.finish("P").dispatch("C").switch(None).switch(1)


def text_of(html: str) -> str:
    main = html[html.index("<main") :]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", main))


def decision(browser: Client, run: StagedRun, seq: int) -> str:
    response = browser.get(reverse("runtime:switch", args=[run.run_id, seq]))
    assert response.status_code == 200
    return response.content.decode()


def test_a_switch_says_why_what_it_read_and_what_it_changed(browser: Client, staged: StagedRun) -> None:
    words = text_of(decision(browser, staged, 9))
    for expected in (
        "π(0) → π(1)",
        "Switched to variant 1 because qwen3.5-27b is at 1.10 of its capacity (above 0.85).",
        "Trigger: its class is congested",
        "Estimated quality 0.890 → 0.810 (−0.080)",
        "qwen3.5-27b 1.10 above high",
        "35 outstanding of 32 slots; oldest signal 1.2 s old",
        "unknown: no fresh signal",
        "at most 0.7 of the congested load",
        "drop of at most 0.15 or 25%",
        "passes qwen3.5-9b 3 0.810 −0.080 qwen3.5-9b is at 0.20",
        "D 9B self_check → 9B none",
        "1 waiting node has the same implementation in both variants",
        "P 9B none already committed",
        "C 27B none already dispatched: a binding never changes",
    ):
        assert expected in words


def test_a_refusal_says_what_was_wrong_with_every_candidate(browser: Client, staged: StagedRun) -> None:
    words = text_of(decision(browser, staged, 8))
    assert "kept π(0)" in words
    assert "load unknown" in words
    assert "the load of qwen3.5-9b is unknown" in words
    assert "Nodes that changed" not in words


def test_decisions_lead_to_their_neighbours_and_back(browser: Client, staged: StagedRun) -> None:
    html = decision(browser, staged, 8)
    assert reverse("runtime:switch", args=[staged.run_id, 9]) in html
    assert reverse("runtime:run", args=[staged.run_id]) in html
    assert "Earlier" not in html


def test_the_run_lists_switches_and_refusals(browser: Client, staged: StagedRun) -> None:
    html = browser.get(reverse("runtime:run", args=[staged.run_id])).content.decode()
    assert [int(seq) for seq in re.findall(r'<li[^>]*><a href="[^"]*/switches/(\d+)/"', html)] == [9, 8]


def test_an_event_that_is_no_decision_has_no_page(browser: Client, staged: StagedRun) -> None:
    assert browser.get(reverse("runtime:switch", args=[staged.run_id, 1])).status_code == 404
