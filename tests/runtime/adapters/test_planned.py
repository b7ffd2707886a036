from __future__ import annotations

from runtime.adapters.planned import PlannedBook


class Clock:
    now_s = 100.0

    def now(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def test_planned_demand_adds_up_by_class() -> None:
    book = PlannedBook(Clock())
    book.add("run_1", "9b", 3, 105.0)
    book.add("run_2", "9b", 1, 105.0)
    book.add("run_3", "27b", 5, 105.0)
    assert book.totals() == {"9b": 4, "27b": 5}


def test_a_run_has_one_announcement_and_may_take_it_back() -> None:
    book = PlannedBook(Clock())
    book.add("run_1", "9b", 3, 105.0)
    book.add("run_1", "27b", 2, 105.0)
    assert book.totals() == {"27b": 2}
    book.clear("run_1")
    book.clear("run_1")
    assert book.totals() == {}


def test_an_announcement_lapses() -> None:
    clock = Clock()
    book = PlannedBook(clock)
    book.add("run_1", "9b", 3, 105.0)
    clock.now_s = 104.9
    assert book.totals() == {"9b": 3}
    clock.now_s = 105.0
    assert book.totals() == {}
