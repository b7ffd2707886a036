"""What the runtime's SQL says differently on SQLite and PostgreSQL, and how values become text that both take."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from math import isfinite
from typing import Any, TypeVar

from django.db import DatabaseError, InterfaceError, OperationalError, connection
from django.utils.dateparse import parse_datetime

T = TypeVar("T")
DATABASE_ERRORS: tuple[type[Exception], ...] = (DatabaseError, InterfaceError)
CONNECTION_ERRORS: tuple[type[Exception], ...] = (OperationalError, InterfaceError)
"""The database cannot be reached, or cannot go on with this connection: a new one may work."""

# unixepoch('subsec') needs SQLite 3.42; julianday() has kept milliseconds since ever.
_NOW = {
    "sqlite": "((julianday('now') - 2440587.5) * 86400.0)",
    "postgresql": "extract(epoch from clock_timestamp())::float8",
}
_ROW_LOCK = {"sqlite": "", "postgresql": "FOR NO KEY UPDATE"}


def statement(template: str, **parts: str) -> str:
    """SQL for the present database. Parts are names and placeholders of ours; values travel as parameters, always.

    `{now}` is the database's own clock in epoch seconds: leases must not depend on the workers' clocks. `{row_lock}`
    locks the selected rows to the end of the transaction; SQLite's IMMEDIATE transaction has the whole file already.
    """
    return template.format(now=_NOW[connection.vendor], row_lock=_ROW_LOCK[connection.vendor], **parts)


def placeholders(count: int) -> str:
    return ", ".join(["%s"] * count)


def pair_placeholders(count: int) -> str:
    """For a join with `(VALUES ...)`: SQLite answers that from an index, and `(a, b) IN (VALUES ...)` by a scan."""
    return ", ".join(["(%s, %s)"] * count)


def database_now() -> float:
    """The database's clock, epoch seconds."""
    with connection.cursor() as cursor:
        cursor.execute(statement("SELECT {now}"))
        return float(cursor.fetchone()[0])


def in_database(function: Callable[[], T]) -> T:
    """Run a function on the thread's connection, which stays open for the next one unless the database failed."""
    try:
        return function()
    except DATABASE_ERRORS:
        connection.close()
        raise


def epoch_seconds(value: datetime | str) -> float:
    """A date-time column as a raw cursor returns it (SQLite: text in UTC)."""
    moment = parse_datetime(value) if isinstance(value, str) else value
    if moment is None:
        raise ValueError(f"{value!r} is no date and time")
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


# --- Text that both databases take -----------------------------------------------------------------------------------


def clean_text(text: str) -> str:
    """`text` without what PostgreSQL refuses: NUL characters and lone surrogates become the replacement character."""
    if "\x00" in text:
        text = text.replace("\x00", "\N{REPLACEMENT CHARACTER}")
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return "".join("\N{REPLACEMENT CHARACTER}" if "\ud800" <= c <= "\udfff" else c for c in text)
    return text


def json_text(value: Any) -> str:
    """Any JSON value as text; what JSON or PostgreSQL cannot hold (NaN, infinity, NUL, lone surrogates) is replaced.

    A model's or a tool's output decides what comes here, so a bad character must not cost the whole commit.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        text.encode()
    except (ValueError, UnicodeEncodeError):
        return json_text(_clean(value))
    return json_text(_clean(value)) if "\\u0000" in text and _clean(value) != value else text


def optional_json(value: Any) -> str | None:
    """None as SQL's NULL, as the models' nullable JSON fields store it."""
    return None if value is None else json_text(value)


def read_json(text: Any) -> Any:
    """A JSON column as a raw cursor returns it: text on both databases (Django switches PostgreSQL's decoding off)."""
    return json.loads(text) if isinstance(text, str) else text


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Mapping):
        return {clean_text(str(key)): _clean(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(member) for member in value]
    return value
