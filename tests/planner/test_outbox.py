"""The outbox never makes anyone wait, keeps the order, and survives what it cannot send."""

from __future__ import annotations

import threading
from functools import partial

import pytest
from kombu.exceptions import OperationalError

from planner.outbox import Outbox


def test_things_are_sent_in_order_by_another_thread() -> None:
    sent: list[tuple[int, str]] = []

    def note(number: int) -> None:
        sent.append((number, threading.current_thread().name))

    box = Outbox()
    for number in range(5):
        box.put("a number", partial(note, number))
    assert box.flush(60)
    assert sent == [(number, "planner outbox") for number in range(5)]


def test_put_does_not_wait_for_the_sender() -> None:
    release = threading.Event()
    box = Outbox()
    box.put("slow", release.wait)
    box.put("slow", release.wait)
    assert not box.flush(0.01), "both are still under way, and nobody waited for them"
    release.set()
    assert box.flush(60)


def test_what_cannot_be_sent_is_said_and_the_next_is_tried(caplog: pytest.LogCaptureFixture) -> None:
    sent: list[str] = []

    def away() -> None:
        raise OperationalError("nobody there")

    def bug() -> None:
        raise ZeroDivisionError

    box = Outbox()
    box.put("the first", away)
    box.put("the second", bug)
    box.put("the third", lambda: sent.append("third"))
    assert box.flush(60)
    assert sent == ["third"]
    assert "the first could not be sent, it will be tried again: nobody there" in caplog.text
    assert "the second could not be sent" in caplog.text
