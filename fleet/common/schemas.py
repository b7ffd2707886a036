"""What the API's schemas share. Unknown members of a body are errors: a misspelt option must not be ignored."""

from __future__ import annotations

from typing import Annotated, Any, Generic, TypeVar

from ninja import Schema
from pydantic import ConfigDict, Field

from fleet.common.pagination import DEFAULT_LIMIT, MAX_LIMIT

Item = TypeVar("Item")

Cursor = Annotated[str, Field(max_length=200, description="`next` of the page before.")]
Limit = Annotated[int, Field(ge=1, le=MAX_LIMIT)]


class Body(Schema):
    model_config = ConfigDict(extra="forbid")


class PageQuery(Schema):
    cursor: Cursor = ""
    limit: Limit = DEFAULT_LIMIT


class FieldProblemOut(Schema):
    pointer: str = Field(description="JSON pointer into the body, or into the document where it was sent as text.")
    line: int | None
    column: int | None
    code: str
    message: str
    remedy: str


class ConflictOut(Schema):
    """One limit of a set that no plan keeps, though one would keep any smaller set."""

    limit: str
    asked: float | str
    needed: float | str | None = Field(description="The least that would do, the others kept; null: not found in time.")
    text: str = Field(description="The change as a sentence.")
    least: bool = Field(description="false: enough, but perhaps more than needed.")


class ProblemOut(Schema):
    """RFC 9457, sent as application/problem+json."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    instance: str
    errors: list[FieldProblemOut]
    conflicts: list[ConflictOut] | None = Field(None, description="Of `plan_infeasible` alone: limits in conflict.")
    proved: bool | None = Field(None, description="Of `plan_infeasible` alone; false: no plan was found in time.")


class PageOut(Schema, Generic[Item]):
    items: list[Item]
    next: str | None = Field(None, description="Cursor of the next page; null on the last one.")


JsonObject = dict[str, Any]
