"""Bundles on both databases: requests at the same moment, and counts over JSON columns."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from django.db import connection, connections

from fleet.models import Backend, Fleet
from fleet.redis import connection as redis_connection
from fleet.services import record_rates
from planner.bundling import CompiledVersion, compile_version
from planner.data import load_profiles
from planner.models import PlanBundle, RefusedPlan
from planner.options import KINDS, PlanOptions
from planner.outbox import outbox
from planner.selectors import outdated_bundles
from planner.services import prepare_variants, record_profiles
from tests.fleet.rows import rates
from tests.planner.rows import demo, version
from tests.runtime.conftest import _postgresql, database  # noqa: F401  # fixtures


@pytest.fixture
def fleet(database: str, valkey: str) -> Iterator[Fleet]:  # noqa: F811
    yield demo()
    assert outbox().flush(60), "every message was tried before the rows go away"


def at_once(options: list[PlanOptions], fleet: Fleet) -> list[CompiledVersion | Exception]:
    """One request each, by threads that start together; every one has its own document of one structure."""
    versions = [version(prefix=f"v{number}") for number in range(len(options))]
    together = threading.Barrier(len(options))

    def request(number: int) -> CompiledVersion | Exception:
        together.wait()
        try:
            return compile_version(versions[number], fleet=fleet, options=options[number])
        except Exception as error:
            return error
        finally:
            connection.close()
            del connections["default"]

    with ThreadPoolExecutor(len(options)) as threads:
        return list(threads.map(request, range(len(options))))


def test_requests_at_the_same_moment_make_one_row_per_key(fleet: Fleet) -> None:
    """One miss of each kind, the others hits; each miss is prepared once."""
    results = at_once([PlanOptions.of(bundle=kind) for kind in KINDS for _ in range(4)], fleet)
    bundles = [result.bundle for result in results if isinstance(result, CompiledVersion)]
    assert len(bundles) == 8, results
    assert {bundle.kind for bundle in bundles[:4]} == {"levels"}
    assert {bundle.kind for bundle in bundles[4:]} == {"priced"}
    rows = list(PlanBundle.objects.order_by("kind"))
    assert [(row.kind, row.hits, row.variants.count()) for row in rows] == [("levels", 3, 1), ("priced", 3, 1)]
    assert outbox().flush(60)
    assert redis_connection().llen("dyserve:plans") == 2
    for row in rows:
        prepare_variants(row.pk)
    assert set(PlanBundle.objects.values_list("state", flat=True)) == {"ready"}


def test_plans_refused_at_the_same_moment_are_all_counted(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.bundling.verify_plan", lambda problem, plan: ("cost is 1.0, the inputs give 2.0",))
    results = at_once([PlanOptions()] * 4, fleet)
    assert {type(result).__name__ for result in results} == {"PlanRefused"}
    assert RefusedPlan.objects.get().times == 4
    assert not PlanBundle.objects.exists()


def test_outdated_bundles_are_counted(fleet: Fleet) -> None:
    for kind in KINDS:
        compile_version(version(), fleet=fleet, options=PlanOptions.of(bundle=kind))
    assert outdated_bundles() == 0
    record_rates(Backend.objects.get(name="h200-27b"), rates())
    compile_version(version(), fleet=fleet, options=PlanOptions())
    assert outdated_bundles() == 2
    record_profiles(replace(load_profiles(), pairs=load_profiles().pairs[:-1]), name="new")
    assert outdated_bundles() == 3
