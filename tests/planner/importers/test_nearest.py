from __future__ import annotations

import pytest

from planner.importers import nearest as nearest_module
from planner.importers.nearest import MAX_COMPARED, nearest


def test_a_slip_of_the_pen_is_recognised() -> None:
    assert nearest("plna", ["plan", "code"]) == "plan"
    assert nearest("plan", ["tool", "writing"]) is None
    assert nearest("plan", []) is None


def test_a_hostile_number_of_names_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []

    def counting(name: str, known: list[str], n: int) -> list[str]:
        compared.append(len(name) * len(known))
        return known[:n]

    monkeypatch.setattr(nearest_module, "get_close_matches", counting)
    for names in (1, 10, 100, 1000):
        nearest("ab" * 30, [f"{'ab' * 29}{number}" for number in range(names)])
    assert compared == [60, 600]
    assert max(compared) <= MAX_COMPARED
