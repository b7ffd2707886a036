"""Errors of the HTTP edge as `application/problem+json` (RFC 9457): one shape for every status.

Layers raise their own exceptions; whoever serves HTTP turns them into an `ApiProblem`. Only what is written into an
`ApiProblem` reaches a caller.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Protocol

from django.http import HttpRequest, HttpResponse

CONTENT_TYPE = "application/problem+json"


class Placed(Protocol):
    """What an importer's problem and a `FieldProblem` have in common."""

    @property
    def code(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def remedy(self) -> str: ...
    @property
    def pointer(self) -> str: ...
    @property
    def line(self) -> int | None: ...
    @property
    def column(self) -> int | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldProblem:
    """One thing that is wrong with a request: where (pointer into the body, line and column of a text), the remedy."""

    code: str
    message: str
    remedy: str
    pointer: str = ""
    line: int | None = None
    column: int | None = None

    @classmethod
    def of(cls, problem: Placed, *, below: str = "") -> FieldProblem:
        """The same problem, its pointer moved below another place of the body."""
        return cls(
            code=problem.code,
            message=problem.message,
            remedy=problem.remedy,
            pointer=below + problem.pointer,
            line=problem.line,
            column=problem.column,
        )

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("pointer", "line", "column", "code", "message", "remedy")}


class ApiProblem(Exception):
    """An error as a caller sees it. `code` is stable and tells problems of one status apart; `more` are its members."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        errors: Iterable[FieldProblem] = (),
        headers: Mapping[str, str] = MappingProxyType({}),
        more: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.status, self.code, self.detail = HTTPStatus(status), code, detail
        self.errors: Sequence[FieldProblem] = tuple(errors)
        self.headers, self.more = headers, more
        super().__init__(f"{status} {code}: {detail}")

    def to_json(self, instance: str) -> dict[str, Any]:
        return {
            "type": f"urn:dyserve:problem:{self.code}",
            "title": self.status.phrase,
            "status": int(self.status),
            "code": self.code,
            "detail": self.detail,
            "instance": instance,
            "errors": [error.to_json() for error in self.errors],
            **self.more,
        }


def problem_response(request: HttpRequest, problem: ApiProblem) -> HttpResponse:
    body = json.dumps(problem.to_json(request.path), ensure_ascii=True)
    return HttpResponse(body, status=int(problem.status), content_type=CONTENT_TYPE, headers=dict(problem.headers))


# --- The problems that several routes raise --------------------------------------------------------------------------


def unauthorized(detail: str = "Send a bearer token, or log in.") -> ApiProblem:
    return ApiProblem(401, "unauthorized", detail, headers={"WWW-Authenticate": 'Bearer realm="dyserve"'})


def forbidden(detail: str) -> ApiProblem:
    return ApiProblem(403, "forbidden", detail)


def not_found(what: str) -> ApiProblem:
    """Also for what belongs to someone else: its existence is nobody's business."""
    return ApiProblem(404, "not_found", f"There is no such {what}.")


def too_large(limit_bytes: int) -> ApiProblem:
    return ApiProblem(413, "too_large", f"The body is larger than {limit_bytes:,} bytes.")


def unsupported_media_type(expected: str) -> ApiProblem:
    return ApiProblem(415, "unsupported_media_type", f"Send the body as {expected}.")


def rejected(code: str, detail: str, errors: Iterable[FieldProblem]) -> ApiProblem:
    """422: the request was understood and is wrong; every error at once."""
    return ApiProblem(422, code, detail, errors=errors)


def invalid(
    message: str, *, pointer: str = "", code: str = "invalid", remedy: str = "Correct the value."
) -> ApiProblem:
    """422 with a single error."""
    return rejected(
        "invalid_request", message, [FieldProblem(code=code, message=message, remedy=remedy, pointer=pointer)]
    )


def unavailable(detail: str, *, retry_after_s: int = 1) -> ApiProblem:
    return ApiProblem(503, "unavailable", detail, headers={"Retry-After": str(retry_after_s)})


def internal() -> ApiProblem:
    """500: says nothing of the cause; the log has it."""
    return ApiProblem(500, "internal_error", "The server failed. The log has the cause.")
