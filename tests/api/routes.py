"""Every route of the API, from its OpenAPI document: a new one is in all tests that go through this list."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from django.urls import URLPattern

from dyserve_site.api import api
from fleet.common.scopes import Scope

PREFIX = "/api/v1"
VALUES = {"number": "1", "index": "0", "token_id": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    method: str
    path: str
    scope: Scope | None

    def filled(self, **values: str) -> str:
        """The path with a value for every parameter, by default one that names nothing."""
        return re.sub(r"\{(\w+)\}", lambda found: (VALUES | values).get(found[1], "none"), self.path)

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def _routes() -> Iterator[Route]:
    scopes = {
        (method, f"{PREFIX}{path}"): getattr(operation.view_func, "required_scope", None)
        for bound in api._get_bound_routers()
        for path, view in bound.path_operations.items()
        for operation in view.operations
        for method in operation.methods
    }
    for path, operations in api.get_openapi_schema(path_prefix=f"{PREFIX}/")["paths"].items():
        for method in operations:
            yield Route(method=method.upper(), path=path.removeprefix(PREFIX), scope=scopes[method.upper(), path])


ROUTES = tuple(_routes())


def patterns() -> list[URLPattern]:
    return [pattern for pattern in api.urls[0] if isinstance(pattern, URLPattern)]
