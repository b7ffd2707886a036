from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from runtime import composition


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch, settings: Any) -> SimpleNamespace:
    """A composition root of its own, which counts what it makes."""
    monkeypatch.setattr(composition, "_made", {})
    made = SimpleNamespace(publishers=0)

    def publisher() -> object:
        made.publishers += 1
        return SimpleNamespace(stop=lambda timeout_s: None)

    module = ModuleType("tests.runtime.a_root")
    module.publisher = publisher  # type: ignore[attr-defined]  # a module made on the spot
    monkeypatch.setitem(sys.modules, module.__name__, module)
    settings.DYSERVE_WIRING = module.__name__
    return made


def test_a_process_has_one_of_each_whoever_comes_first(root: SimpleNamespace) -> None:
    barrier = threading.Barrier(8)

    def ask(_: int) -> object:
        barrier.wait()
        return composition.publisher()

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(ask, range(8)))
    assert all(one is found[0] for one in found)
    assert root.publishers == 1


def test_what_was_closed_is_made_anew(root: SimpleNamespace) -> None:
    first = composition.publisher()
    composition.close()
    assert composition.publisher() is not first
    assert root.publishers == 2


def test_a_worker_is_not_made_to_be_looked_at(root: SimpleNamespace) -> None:
    assert composition.started_worker() is None
