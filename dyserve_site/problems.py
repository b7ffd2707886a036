"""The one mapping from every app's exceptions, and the framework's, to the API's problems.

A test walks the exception trees of the apps: a new class without a line here fails it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from django.conf import settings
from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.db import OperationalError
from django.http import Http404, HttpRequest, HttpResponse, UnreadablePostError
from django.http.multipartparser import MultiPartParserError
from ninja.errors import HttpError, ValidationError

from fleet.common.pointers import json_pointer
from fleet.common.problems import (
    ApiProblem,
    FieldProblem,
    forbidden,
    internal,
    not_found,
    problem_response,
    rejected,
    too_large,
    unauthorized,
    unavailable,
)
from fleet.errors import FleetError, NoDefaultFleet, ReplicaRejected
from fleet.redis import REDIS_ERRORS
from planner.errors import (
    Busy,
    NoActiveProfiles,
    NoAnswer,
    OptionsInvalid,
    Outdated,
    PlanInfeasible,
    PlannerError,
    PlanRefused,
)
from planner.importers.problems import WorkflowRejected
from planner.requests import rejection
from runtime.errors import IdempotencyConflict, RunNotFound, RunRejected, RuntimeFailure

logger = logging.getLogger("dyserve.api")

Mapper = Callable[[Any], ApiProblem]


def problem_of(error: BaseException) -> ApiProblem | None:
    """The problem that an exception stands for, None for a bug."""
    return next((MAPPERS[kind](error) for kind in type(error).__mro__ if kind in MAPPERS), None)


def answer(request: HttpRequest, error: Exception) -> HttpResponse:
    """The response to any exception. A bug is logged with its trace and answered with a bare 500."""
    problem = problem_of(error)
    if problem is None:
        logger.error("%s %s failed", request.method, request.path, exc_info=error)
        problem = internal()
    elif problem.status >= 500:
        logger.warning("%s %s: %s", request.method, request.path, error)
    return problem_response(request, problem)


# --- One function per family -----------------------------------------------------------------------------------------


def _itself(error: ApiProblem) -> ApiProblem:
    return error


def _run_rejected(error: RunRejected) -> ApiProblem:
    count = len(error.problems)
    detail = f"The run was not accepted: {count} problem{'s' * (count != 1)}. Nothing was stored."
    return rejected("run_rejected", detail, map(FieldProblem.of, error.problems))


def _run_not_found(_: RunNotFound) -> ApiProblem:
    return not_found("run")


def _idempotency_conflict(error: IdempotencyConflict) -> ApiProblem:
    return ApiProblem(409, "idempotency_conflict", f"{error}.")


def _runtime_failure(error: RuntimeFailure) -> ApiProblem:
    return ApiProblem(409, "conflict", f"{error}.")


def _options_invalid(error: OptionsInvalid) -> ApiProblem:
    errors = [
        FieldProblem(
            code="invalid_option",
            message=f"{option} {message}.",
            remedy="Correct it, or leave it out for the default.",
            pointer=json_pointer(option.split(".", 2)),  # names of model classes and nodes hold dots
        )
        for option, message in error.problems.items()
    ]
    return rejected("invalid_options", "The planning options are wrong.", errors)


def _infeasible(error: PlanInfeasible) -> ApiProblem:
    """Reasons as errors; a limit that conflicts with others is one with its place and what would do."""
    texts = {conflict.text for conflict in error.conflicts}
    together = " together with the others of `conflicts`" if len(error.conflicts) > 1 else ""
    errors = [
        FieldProblem(code="infeasible", message=reason, remedy="") for reason in error.reasons if reason not in texts
    ]
    errors += [
        FieldProblem(
            code="limit_conflict",
            message=f"No plan keeps {conflict.limit}={conflict.asked}{together}.",
            remedy=f"{conflict.text[0].upper()}{conflict.text[1:]}.",
            pointer=json_pointer(["limits", *conflict.limit.split(".", 1)]),
        )
        for conflict in error.conflicts
    ]
    more = {"conflicts": [asdict(conflict) for conflict in error.conflicts], "proved": error.proved}
    return ApiProblem(422, "plan_infeasible", _without_plan(error), errors=errors, more=more)


def _without_plan(error: PlanInfeasible) -> str:
    if not error.proved:
        return "No plan that keeps these limits was found in time; there may be one."
    return "No plan keeps these limits." if error.conflicts else "The workflow has no plan on this fleet."


def _plan_refused(error: PlanRefused) -> ApiProblem:
    return ApiProblem(500, "plan_refused", f"{error}.")


def _no_profiles(error: NoActiveProfiles) -> ApiProblem:
    return ApiProblem(409, "no_profiles", f"{error}.")


def _no_answer(error: NoAnswer) -> ApiProblem:
    return ApiProblem(409, "no_answer", _sentence(error))


def _outdated(error: Outdated) -> ApiProblem:
    return ApiProblem(409, "stale_plan", _sentence(error))


def _busy(error: Busy) -> ApiProblem:
    return unavailable(_sentence(error), retry_after_s=error.retry_after_s)


def _sentence(error: Exception) -> str:
    text = str(error)
    return f"{text[0].upper()}{text[1:]}."


def _planner_error(error: PlannerError) -> ApiProblem:
    return ApiProblem(409, "conflict", f"{error}.")


def _no_fleet(error: NoDefaultFleet) -> ApiProblem:
    return ApiProblem(409, "no_fleet", f"{error}.")


def _fleet_error(error: FleetError) -> ApiProblem:
    return ApiProblem(409, "conflict", f"{error}.")


def _replica_rejected(error: ReplicaRejected) -> ApiProblem:
    errors = [
        FieldProblem(code="invalid", message=message, remedy="Correct the value.", pointer=json_pointer([field]))
        for field, messages in error.problems.items()
        for message in messages
    ]
    return rejected("replica_rejected", "The replica was rejected.", errors)


def _database_away(_: OperationalError) -> ApiProblem:
    return unavailable("The database did not answer. Try again.")


def _redis_away(_: Exception) -> ApiProblem:
    return unavailable("Redis did not answer. Try again.")


def _too_big(_: RequestDataTooBig) -> ApiProblem:
    return too_large(settings.DATA_UPLOAD_MAX_MEMORY_SIZE)


def _bad_request(error: Exception) -> ApiProblem:
    return ApiProblem(400, "bad_request", "The request could not be read.")


def _http_error(error: HttpError) -> ApiProblem:
    """django-ninja wraps what a body parser raised; the cause says more."""
    if error.__cause__ is not None:
        return problem_of(error.__cause__) or _bad_request(error)
    known: Mapping[int, ApiProblem] = {401: unauthorized(), 403: forbidden(f"{error}."), 404: not_found("object")}
    if error.status_code in known:
        return known[error.status_code]
    return ApiProblem(error.status_code, _CODES.get(error.status_code, "bad_request"), str(error))


_CODES: Mapping[int, str] = {409: "conflict", 429: "too_many_requests", 503: "unavailable"}

_REMEDIES: Mapping[str, str] = {
    "missing": "Add it.",
    "extra_forbidden": "Remove it; the API does not know it.",
    "string_type": "Send text.",
    "int_type": "Send a whole number.",
    "float_type": "Send a number.",
    "bool_type": "Send true or false.",
    "dict_type": "Send a JSON object.",
    "list_type": "Send a JSON array.",
}


def _validation(error: ValidationError) -> ApiProblem:
    errors = list(_field_problems(error.errors))
    return rejected("invalid_request", f"{len(errors)} value(s) of the request are wrong.", errors)


def _field_problems(errors: list[dict[str, Any]]) -> Iterator[FieldProblem]:
    for error in errors:
        source, *path = error["loc"]
        in_body = source == "body"
        # A body is one parameter of the view; its name is ours, not the caller's.
        place = json_pointer(path[1:]) if in_body else ""
        where = "" if in_body else f"{source} parameter {'.'.join(map(str, path))}: "
        kind = str(error["type"])
        yield FieldProblem(
            code=kind,
            message=f"{where}{error['msg']}.",
            remedy=_REMEDIES.get(kind, "Correct the value."),
            pointer=place,
        )


MAPPERS: Mapping[type[BaseException], Mapper] = {
    ApiProblem: _itself,
    WorkflowRejected: rejection,
    RunRejected: _run_rejected,
    RunNotFound: _run_not_found,
    IdempotencyConflict: _idempotency_conflict,
    RuntimeFailure: _runtime_failure,
    OptionsInvalid: _options_invalid,
    PlanInfeasible: _infeasible,
    PlanRefused: _plan_refused,
    NoActiveProfiles: _no_profiles,
    Busy: _busy,
    Outdated: _outdated,
    NoAnswer: _no_answer,
    PlannerError: _planner_error,
    NoDefaultFleet: _no_fleet,
    ReplicaRejected: _replica_rejected,
    FleetError: _fleet_error,
    ValidationError: _validation,
    HttpError: _http_error,
    Http404: lambda _: not_found("object"),
    PermissionDenied: lambda _: forbidden("You may not do this."),
    RequestDataTooBig: _too_big,
    SuspiciousOperation: _bad_request,
    MultiPartParserError: _bad_request,
    UnreadablePostError: _bad_request,
    OperationalError: _database_away,
    **{kind: _redis_away for kind in REDIS_ERRORS if kind is not OSError},
}
