"""Lists are always pages: newest first by primary key, the next page named by an opaque cursor."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from django.core.exceptions import ValidationError
from django.db.models import Model, QuerySet

from fleet.common.problems import ApiProblem, invalid

DEFAULT_LIMIT = 50
MAX_LIMIT = 200

Row = TypeVar("Row", bound=Model)
Element = TypeVar("Element")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[Row]):
    """`next` is None on the last page."""

    items: Sequence[Row]
    next: str | None


def page(rows: QuerySet[Row], *, cursor: str = "", limit: int = DEFAULT_LIMIT) -> Page[Row]:
    """One page of `rows` by descending primary key; rows added meanwhile never shift it.

    Raises ApiProblem 422 on a cursor that no page gave out.
    """
    rows = rows.order_by("-pk")
    if cursor:
        rows = rows.filter(pk__lt=_key(rows, cursor))
    found = list(rows[: limit + 1])
    items = found[:limit]
    return Page(items=items, next=encode(items[-1].pk) if len(found) > limit else None)


def encode(key: Any) -> str:
    return base64.urlsafe_b64encode(str(key).encode()).decode().rstrip("=")


def decode(cursor: str) -> str:
    """Raises ApiProblem 422."""
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        raise _no_cursor() from None
    if not text or len(text) > 64 or not text.isprintable():
        raise _no_cursor()
    return text


def _key(rows: QuerySet[Row], cursor: str) -> Any:
    try:
        return rows.model._meta.pk.to_python(decode(cursor))
    except ValidationError:
        raise _no_cursor() from None


def _no_cursor() -> ApiProblem:
    return invalid("This cursor came from no page.", code="bad_cursor", remedy="Send `next` of a page, or no cursor.")


def slice_page(
    items: Sequence[Element], *, cursor: str = "", limit: int = DEFAULT_LIMIT
) -> tuple[Sequence[Element], str | None]:
    """One page of a list that is in memory anyway and never changes its order: the cursor is a position.

    Raises ApiProblem 422 on a cursor that no page gave out.
    """
    text = decode(cursor) if cursor else "0"
    if not text.isdigit():
        raise _no_cursor()
    start = int(text)
    rest = items[start : start + limit]
    return rest, encode(start + limit) if start + limit < len(items) else None
