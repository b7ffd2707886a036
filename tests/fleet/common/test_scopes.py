import asyncio
import inspect
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.http import HttpRequest

from fleet.common.problems import ApiProblem
from fleet.common.scopes import ALL_SCOPES, Principal, Scope, requires


def request(*scopes: Scope) -> HttpRequest:
    made: Any = HttpRequest()
    made.auth = Principal(user=User(username="ann"), scopes=frozenset(scopes), kind="token")
    return made  # type: ignore[no-any-return]  # an HttpRequest with django-ninja's attribute


@requires(Scope.RUNS_READ)
def view(request: HttpRequest, run: str) -> str:
    return run


@requires(Scope.RUNS_READ)
async def later(request: HttpRequest, run: str) -> str:
    return run


def test_a_view_answers_whoever_holds_its_scope() -> None:
    assert view(request(Scope.RUNS_READ), "r") == "r"
    assert view(request(Scope.ADMIN), "r") == "r"
    assert asyncio.run(later(request(Scope.RUNS_READ), "r")) == "r"


@pytest.mark.parametrize("scopes", [(), (Scope.RUNS_WRITE,), tuple(ALL_SCOPES - {Scope.RUNS_READ, Scope.ADMIN})])
def test_a_view_refuses_everybody_else(scopes: tuple[Scope, ...]) -> None:
    with pytest.raises(ApiProblem) as caught:
        view(request(*scopes), "r")
    assert caught.value.status == 403
    with pytest.raises(ApiProblem):
        asyncio.run(later(request(*scopes), "r"))


def test_the_mark_keeps_the_signature_that_the_api_reads() -> None:
    assert list(inspect.signature(view).parameters) == ["request", "run"]
    assert inspect.iscoroutinefunction(later)
