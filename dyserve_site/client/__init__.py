"""A small synchronous Python client of the JSON API: `Client(url, token)`. Needs no settings and no database.

with Client("http://127.0.0.1:8000", token) as client:
    run = client.submit_run(workflow="research", inputs={"topic": "tides"})
    done = client.wait(run.id, timeout_s=120)
"""

from dyserve_site.client.client import Client
from dyserve_site.client.errors import (
    ApiError,
    ClientError,
    Conflict,
    Forbidden,
    InvalidRequest,
    NotFound,
    ProblemItem,
    ServerError,
    Unauthorized,
    Unavailable,
    Unreachable,
    WaitTimedOut,
)
from dyserve_site.client.values import Event, Run, RunSubmission, StoredWorkflow, Workflow

__all__ = [
    "ApiError",
    "Client",
    "ClientError",
    "Conflict",
    "Event",
    "Forbidden",
    "InvalidRequest",
    "NotFound",
    "ProblemItem",
    "Run",
    "RunSubmission",
    "ServerError",
    "StoredWorkflow",
    "Unauthorized",
    "Unavailable",
    "Unreachable",
    "WaitTimedOut",
    "Workflow",
]
