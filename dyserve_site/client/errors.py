"""What the client raises, as one tree.

ClientError
├── Unreachable        nobody answered at the address, or the answer broke off
├── WaitTimedOut       the run had not ended in time; it goes on
└── ApiError           a problem+json answer: status, code, detail, errors
    ├── InvalidRequest     400, 413, 415, 422: correct the request
    ├── Unauthorized       401
    ├── Forbidden          403
    ├── NotFound           404, 405
    ├── Conflict           409
    ├── Unavailable        429, 503: try again later
    └── ServerError        any other status
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import httpx


class ClientError(Exception):
    """Root of the tree."""


class Unreachable(ClientError):
    pass


class WaitTimedOut(ClientError):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemItem:
    """One error of a request or a document: where, what, and the remedy."""

    code: str
    message: str
    remedy: str
    pointer: str = ""
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        place = ", ".join(([f"line {self.line}"] if self.line else []) + ([self.pointer] if self.pointer else []))
        return ": ".join(part for part in (place, f"{self.message} {self.remedy}".strip()) if part)


class ApiError(ClientError):
    """`conflicts`: limits that no plan keeps together, each with what it asks and what is needed."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        errors: tuple[ProblemItem, ...] = (),
        conflicts: tuple[Mapping[str, Any], ...] = (),
    ) -> None:
        self.status, self.code, self.detail, self.errors, self.conflicts = status, code, detail, errors, conflicts
        super().__init__("\n".join([f"{status} {code}: {detail}", *map(str, errors)]))


class InvalidRequest(ApiError):
    pass


class Unauthorized(ApiError):
    pass


class Forbidden(ApiError):
    pass


class NotFound(ApiError):
    pass


class Conflict(ApiError):
    pass


class Unavailable(ApiError):
    pass


class ServerError(ApiError):
    pass


BY_STATUS: Mapping[int, type[ApiError]] = MappingProxyType(
    {
        400: InvalidRequest,
        401: Unauthorized,
        403: Forbidden,
        404: NotFound,
        405: NotFound,
        409: Conflict,
        413: InvalidRequest,
        415: InvalidRequest,
        422: InvalidRequest,
        429: Unavailable,
        503: Unavailable,
    }
)


def error_of(response: httpx.Response) -> ApiError:
    """The typed error of an answer whose body was read; an answer that is no problem+json keeps its text's start."""
    kind = BY_STATUS.get(response.status_code, ServerError)
    try:
        data: Any = response.json()
    except ValueError:
        data = None
    if not isinstance(data, dict) or "code" not in data:
        return kind(response.status_code, "no_problem", response.text[:200])
    items = tuple(ProblemItem(**{name: item.get(name) for name in _ITEM}) for item in data.get("errors", ()))
    conflicts = tuple(data.get("conflicts") or ())
    return kind(response.status_code, str(data["code"]), str(data.get("detail", "")), items, conflicts)


_ITEM = ("code", "message", "remedy", "pointer", "line", "column")
