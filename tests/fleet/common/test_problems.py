import json

from django.test import RequestFactory

from fleet.common.problems import (
    CONTENT_TYPE,
    ApiProblem,
    FieldProblem,
    internal,
    problem_response,
    unauthorized,
    unavailable,
)


def test_a_problem_has_the_members_of_rfc_9457_and_every_error_with_its_place() -> None:
    error = FieldProblem(
        code="missing", message="It is missing.", remedy="Add it.", pointer="/nodes/0", line=3, column=7
    )
    response = problem_response(
        RequestFactory().post("/api/v1/runs"), ApiProblem(422, "bad", "It is bad.", errors=[error])
    )
    assert response.status_code == 422
    assert response.headers["Content-Type"] == CONTENT_TYPE
    assert json.loads(response.content) == {
        "type": "urn:dyserve:problem:bad",
        "title": "Unprocessable Entity",
        "status": 422,
        "code": "bad",
        "detail": "It is bad.",
        "instance": "/api/v1/runs",
        "errors": [
            {
                "pointer": "/nodes/0",
                "line": 3,
                "column": 7,
                "code": "missing",
                "message": "It is missing.",
                "remedy": "Add it.",
            }
        ],
    }


def test_a_problem_moves_below_another_place() -> None:
    error = FieldProblem(code="c", message="m", remedy="r", pointer="/name", line=2)
    assert FieldProblem.of(error, below="/document").pointer == "/document/name"


def test_headers_tell_the_caller_what_to_do_next() -> None:
    assert unauthorized().headers["WWW-Authenticate"].startswith("Bearer")
    assert unavailable("away", retry_after_s=3).headers["Retry-After"] == "3"


def test_an_internal_error_says_nothing_of_its_cause() -> None:
    assert internal().errors == ()
    assert internal().status == 500
