"""`/api/v1`: the JSON API's routers, authentication and errors put together, and its documentation page."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any, cast

from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.urls import URLPattern, URLResolver, re_path
from django.views.decorators.csrf import csrf_exempt
from django.views.defaults import bad_request as default_bad_request
from ninja import NinjaAPI, Swagger
from ninja.errors import HttpError, ValidationError
from ninja.parser import Parser

from dyserve_site.problems import answer
from dyserve_site.tokens import BrowserAuth, TokenAuth
from dyserve_site.tokens_api import router as tokens
from fleet.api import router as fleet
from fleet.common.problems import ApiProblem, problem_response, too_large, unsupported_media_type
from fleet.common.schemas import ProblemOut
from fleet.common.strict_json import parse_body
from planner.api import plans
from planner.api import router as workflows
from runtime.api import router as runs

DESCRIPTION = """Workflows, plans, runs and the fleet of dyserve.

Authenticate with `Authorization: Bearer dys_...`, or with a browser's session and its `X-CSRFToken`. Errors are
`application/problem+json` (RFC 9457) with `errors: [{pointer, line, column, code, message, remedy}]`. Lists are pages:
send `next` as `cursor`. What belongs to somebody else is 404. Figures that an emulator or shipped profiles gave are
marked: `emulated: true`, `profiles: {version, illustrative: true}`."""

PROBLEM_STATUSES = (400, 401, 403, 404, 409, 413, 415, 422, 500, 503)
JSON_TYPES = ("application/json",)

View = Callable[..., HttpResponseBase | Awaitable[HttpResponseBase]]


class StrictParser(Parser):
    """JSON bodies alone, read strictly (fleet/common/strict_json.py)."""

    def parse_body(self, request: HttpRequest) -> Any:
        if request.content_type not in JSON_TYPES:
            raise unsupported_media_type("application/json")
        return parse_body(request.body)


class Api(NinjaAPI):
    def get_openapi_schema(self, **options: Any) -> Any:
        """Every operation's errors have one shape; stated here once instead of at every route."""
        schema = super().get_openapi_schema(**options)
        schema["components"].setdefault("schemas", {}).update(_problem_schemas())
        for operations in schema["paths"].values():
            for operation in operations.values():
                operation["responses"].update(_problem_responses())
        return schema


def _problem_schemas() -> dict[str, Any]:
    own = ProblemOut.model_json_schema(ref_template="#/components/schemas/{model}")
    return {**own.pop("$defs"), ProblemOut.__name__: own}


def _problem_responses() -> dict[str, Any]:
    content = {"application/problem+json": {"schema": {"$ref": f"#/components/schemas/{ProblemOut.__name__}"}}}
    return {str(status): {"description": "Problem", "content": content} for status in PROBLEM_STATUSES}


api = Api(
    title="dyserve",
    version="1",
    description=DESCRIPTION,
    urls_namespace="api",
    auth=[TokenAuth(), BrowserAuth()],
    docs=Swagger(settings={"persistAuthorization": True, "validatorUrl": None}),
    parser=StrictParser(),
)
# django-ninja's own handlers are for more specific classes than Exception: one mapping answers for them, too.
for kind in (Exception, Http404, HttpError, ValidationError):
    api.add_exception_handler(kind, cast(Any, answer))

for router in (workflows, plans, runs, fleet, tokens):
    api.add_router("", router)


# --- The edges that django-ninja leaves to Django --------------------------------------------------------------------


@csrf_exempt
def unknown_address(request: HttpRequest, **_: Any) -> HttpResponse:
    return problem_response(request, ApiProblem(404, "not_found", "There is no such address in this API."))


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's handler of requests that reach no view, such as one for another host; the API's keep the API's shape."""
    if request.path_info.startswith("/api/"):
        return answer(request, exception)
    return default_bad_request(request, exception)


def _method_not_allowed(request: HttpRequest, response: HttpResponseBase) -> HttpResponse:
    allowed = response.headers["Allow"]
    detail = f"{request.method} is not allowed here; allowed: {allowed}."
    return problem_response(request, ApiProblem(405, "method_not_allowed", detail, headers={"Allow": allowed}))


def _refused(request: HttpRequest) -> HttpResponse | None:
    announced = request.META.get("CONTENT_LENGTH") or "0"
    limit = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    too_long = announced.isdigit() and int(announced[:20]) > limit
    return problem_response(request, too_large(limit)) if too_long else None


def _checked(view: View) -> View:
    """The view with the API's errors for what happens around django-ninja: sizes, methods, escaped exceptions."""
    if iscoroutinefunction(view):

        @functools.wraps(view)
        async def checked_later(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            refused = _refused(request)
            if refused is not None:
                return refused
            try:
                return _shaped(request, await cast(Awaitable[HttpResponseBase], view(request, *args, **kwargs)))
            except Exception as error:  # answered, and logged where it is a bug
                return answer(request, error)

        return checked_later

    @functools.wraps(view)
    def checked(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        refused = _refused(request)
        if refused is not None:
            return refused
        try:
            return _shaped(request, cast(HttpResponseBase, view(request, *args, **kwargs)))
        except Exception as error:  # answered, and logged where it is a bug
            return answer(request, error)

    return checked


def _shaped(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    return _method_not_allowed(request, response) if response.status_code == 405 else response


def _urls() -> tuple[list[URLPattern | URLResolver], str, str]:
    patterns, app_name, namespace = api.urls
    for pattern in patterns:
        if isinstance(pattern, URLPattern):
            pattern.callback = _checked(pattern.callback)
    return [*patterns, re_path("", unknown_address, name="unknown")], app_name, namespace


urls = _urls()
