from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from planner.answers import Answers
from planner.errors import Busy


def one(_: object) -> int:
    return 1


def refused() -> str:
    raise AssertionError("computed a second time")


class Slow:
    """An answer that is computed when `release` is set."""

    def __init__(self) -> None:
        self.started, self.release = threading.Event(), threading.Event()
        self.times = 0

    def __call__(self) -> str:
        self.times += 1
        self.started.set()
        assert self.release.wait(30)
        return "slow"


def test_an_answer_is_computed_once() -> None:
    answers = Answers(room=10)
    assert answers.get(("a",), lambda: "x", one) == answers.get(("a",), refused, one) == "x"


def test_the_ones_not_asked_for_longest_go_first() -> None:
    answers = Answers(room=2)
    for name in ("a", "b"):
        answers.get((name,), lambda: "x", one)
    answers.get(("a",), refused, one)
    answers.get(("c",), lambda: "x", one)
    assert answers.get(("a",), refused, one) == "x"
    assert answers.get(("b",), lambda: "new", one) == "new"


def test_one_that_fills_the_room_is_kept_until_the_next() -> None:
    answers = Answers(room=2)
    answers.get(("big",), lambda: "x", lambda _: 100)
    assert answers.get(("big",), refused, one) == "x"
    answers.get(("small",), lambda: "y", one)
    assert answers.get(("big",), lambda: "again", one) == "again"


def test_what_is_forgotten_is_computed_again() -> None:
    answers = Answers(room=2)
    answers.get(("a",), lambda: "x", one)
    answers.clear()
    assert answers.get(("a",), lambda: "y", one) == "y"


def test_a_failure_is_raised_and_not_kept() -> None:
    answers = Answers(room=2)

    def broken() -> str:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        answers.get(("a",), broken, one)
    assert answers.get(("a",), lambda: "x", one) == "x"


def with_threads(work: Callable[[Answers, Slow, Callable[..., Future[str]]], None], **settings: float) -> None:
    """`work` asks in threads; all of them end before this does."""
    answers, slow = Answers(room=10, **settings), Slow()  # type: ignore[arg-type]
    with ThreadPoolExecutor(8) as pool:
        try:
            work(answers, slow, lambda name, compute: pool.submit(answers.get, (name,), compute, one))
        finally:
            slow.release.set()


def test_equal_questions_at_the_same_moment_are_one() -> None:
    def work(answers: Answers, slow: Slow, ask: Callable[..., Future[str]]) -> None:
        asked = [ask("a", slow) for _ in range(6)]
        assert slow.started.wait(30)
        slow.release.set()
        assert [future.result(30) for future in asked] == ["slow"] * 6
        assert slow.times == 1

    with_threads(work, patience_s=30)


def test_another_question_waits_for_its_turn() -> None:
    def work(answers: Answers, slow: Slow, ask: Callable[..., Future[str]]) -> None:
        first = ask("a", slow)
        assert slow.started.wait(30)
        second = ask("b", lambda: "after" if first.done() or slow.release.is_set() else "before")
        slow.release.set()
        assert (first.result(30), second.result(30)) == ("slow", "after")

    with_threads(work, patience_s=30)


@pytest.mark.parametrize("name", ["a", "b"])
def test_nobody_waits_forever(name: str) -> None:
    def work(answers: Answers, slow: Slow, ask: Callable[..., Future[str]]) -> None:
        ask("a", slow)
        assert slow.started.wait(30)
        with pytest.raises(Busy, match="ask again in 5 s"):
            answers.get((name,), lambda: "x", one)

    with_threads(work, patience_s=0.01)


def test_only_so_many_wait_and_what_is_known_is_answered_all_the_same() -> None:
    def work(answers: Answers, slow: Slow, ask: Callable[..., Future[str]]) -> None:
        answers.get(("known",), lambda: "x", one)
        ask("a", slow)
        assert slow.started.wait(30)
        with pytest.raises(Busy):
            answers.get(("b",), lambda: "x", one)
        assert answers.get(("known",), refused, one) == "x"

    with_threads(work, waiting=1, patience_s=30)
