"""`/api/v1/runs` (schemas in runtime/api_schemas.py)."""

from __future__ import annotations

import hashlib
import json
import time
from collections import defaultdict

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from ninja import Header, Query, Router
from ninja.responses import Status

from fleet.common.access import fleet_for
from fleet.common.pagination import page, slice_page
from fleet.common.problems import ApiProblem, not_found
from fleet.common.schemas import PageOut, PageQuery
from fleet.common.scopes import Scope, caller, requires
from fleet.common.threads import in_thread
from planner.marks import Marks
from planner.requests import version_of, workflow_for
from runtime.api_schemas import (
    ADDED,
    EventOut,
    EventsOut,
    EventsQuery,
    IdempotencyHeaders,
    InvocationOut,
    LedgerOut,
    NodeDetailOut,
    NodeOut,
    ResumeHeaders,
    RunIn,
    RunOut,
    RunsQuery,
    RunSummaryOut,
    SwitchesQuery,
)
from runtime.engine.events import RunState
from runtime.listing import listed
from runtime.live import hub
from runtime.models import Call, Run
from runtime.selectors import calls_of, events_after, invocations_of, ledger_of, node_rows, run_for, runs_for
from runtime.services import cancel_run, submit_run
from runtime.streams import sse_events

router = Router(tags=["runs"])

EVENT_STREAM = "text/event-stream"
_STREAM_DOCS = {
    "responses": {
        200: {
            "description": "JSON; with `Accept: text/event-stream` server-sent events, resumed by `Last-Event-ID`.",
            "content": {EVENT_STREAM: {"schema": {"type": "string"}}},
        }
    }
}


@router.post("/runs", response={200: RunOut, 201: RunOut}, summary="Start a run")
@requires(Scope.RUNS_WRITE)
def create_run(request: HttpRequest, body: RunIn, headers: Header[IdempotencyHeaders]) -> Status[RunOut]:
    """201: accepted, it will be executed. With an `Idempotency-Key`, the same request again is answered 200 with the
    run that it made, and another request with that key 409."""
    user = caller(request)
    submitted = submit_run(
        owner=user,
        fleet=fleet_for(user, body.fleet),
        version=version_of(user, body),
        inputs=body.inputs,
        deadline_s=body.deadline_s,
        effort=body.effort,
        weights=body.weights,
        bundle=body.bundle,
        limits=body.limits,
        controller=body.controller,
        seed=body.seed,
        idempotency_key=headers.idempotency_key,
        request_digest=_digest(body),
    )
    return Status(201 if submitted.created else 200, _run_out(user, submitted.run.pk))


@router.get("/runs", response=PageOut[RunSummaryOut], summary="Your runs, newest first")
@requires(Scope.RUNS_READ)
def list_runs(request: HttpRequest, query: Query[RunsQuery]) -> PageOut[RunSummaryOut]:
    user = caller(request)
    runs = listed(runs_for(user))
    if query.state is not None:
        runs = runs.filter(state=query.state)
    if query.workflow is not None:
        runs = runs.filter(version__workflow=workflow_for(user, query.workflow).pk)
    found = page(runs, cursor=query.cursor, limit=query.limit)
    marks = Marks()
    return PageOut(items=[RunSummaryOut.of(run, marks) for run in found.items], next=found.next)


@router.post("/runs/{run_id}:cancel", response=RunOut, summary="Cancel a run")
@requires(Scope.RUNS_WRITE)
def cancel(request: HttpRequest, run_id: str) -> RunOut:
    """Nothing new is dispatched after this; calls that left before may finish. 409 when the run has ended otherwise."""
    user = caller(request)
    run = run_for(user, run_id)
    if not cancel_run(run=run, by=user):
        run.refresh_from_db()
        if run.state != RunState.CANCELLED:
            raise ApiProblem(409, "run_ended", f"The run has {run.state} already.")
    return _run_out(user, run_id)


@router.get("/runs/{run_id}", response=RunOut, summary="One run")
@requires(Scope.RUNS_READ)
def get_run(request: HttpRequest, run_id: str) -> RunOut:
    return _run_out(caller(request), run_id)


@router.get(
    "/runs/{run_id}/events", response=EventsOut, openapi_extra=_STREAM_DOCS, summary="The run's log, or a stream"
)
@requires(Scope.RUNS_READ)
async def list_events(
    request: HttpRequest,
    run_id: str,
    query: Query[EventsQuery],
    headers: Header[ResumeHeaders],
) -> EventsOut | HttpResponseBase:
    """The stream sends what there is, then what happens, heartbeats, and an event `end` after the run has ended."""
    run = await in_thread(run_for, caller(request), run_id)
    if request.get_preferred_type(["application/json", EVENT_STREAM]) == EVENT_STREAM:
        return _stream(run, query.after, headers.last_event_id)
    return await in_thread(_events_out, run, query)


@router.get("/runs/{run_id}/nodes", response=PageOut[NodeOut], summary="Its nodes, in file order")
@requires(Scope.RUNS_READ)
def list_nodes(request: HttpRequest, run_id: str, query: Query[PageQuery]) -> PageOut[NodeOut]:
    rows = node_rows(run_for(caller(request), run_id))
    items, following = slice_page(rows, cursor=query.cursor, limit=query.limit)
    return PageOut(items=[NodeOut.of(row) for row in items], next=following)


@router.get("/runs/{run_id}/nodes/{node}", response=NodeDetailOut, summary="A node with every attempt and call")
@requires(Scope.RUNS_READ)
def get_node(request: HttpRequest, run_id: str, node: str) -> NodeDetailOut:
    run = run_for(caller(request), run_id)
    row = next((row for row in node_rows(run) if row.node == node), None)
    if row is None:
        raise not_found("node")
    calls: dict[int, list[Call]] = defaultdict(list)
    for call in calls_of(run, node):
        calls[call.attempt].append(call)
    marks = Marks()
    return NodeDetailOut.of(
        row,
        run=run.pk,
        invocations=[InvocationOut.with_calls(item, calls[item.attempt]) for item in invocations_of(run, node)],
        emulated=marks.emulated(run.fleet),
        profiles=marks.profiles(run.bundle),
    )


@router.get("/runs/{run_id}/switches", response=PageOut[LedgerOut], summary="The ledger, newest first")
@requires(Scope.RUNS_READ)
def list_switches(request: HttpRequest, run_id: str, query: Query[SwitchesQuery]) -> PageOut[LedgerOut]:
    rows = ledger_of(run_for(caller(request), run_id), switches_only=query.switches_only)
    found = page(rows, cursor=query.cursor, limit=query.limit)
    return PageOut(items=[LedgerOut.of(row) for row in found.items], next=found.next)


# --- Inside ----------------------------------------------------------------------------------------------------------


def _digest(body: RunIn) -> str:
    """Of what was asked, not of how it was written: order and white space of the JSON do not matter.

    Members that came later are left out where they are not set: keys outlive an update.
    """
    asked = body.model_dump(mode="json")
    asked = {name: value for name, value in asked.items() if value is not None or name not in ADDED}
    text = json.dumps(asked, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _run_out(user: User, run_id: str) -> RunOut:
    run = listed(runs_for(user)).defer(None).defer("version__document", "version__source").filter(pk=run_id).first()
    if run is None:
        raise not_found("run")
    return RunOut.detailed(run, server_time=time.time())


def _events_out(run: Run, query: EventsQuery) -> EventsOut:
    """`run` was read first: if it had ended then, a short page is the last one."""
    events = events_after(run.pk, query.after, query.limit)
    reached = events[-1]["seq"] if events else query.after
    whole = RunState(run.state).ended and reached >= run.last_seq
    return EventsOut(
        items=[EventOut(**event) for event in events],
        next=None if whole else reached,
        state=RunState(run.state),
        server_time=time.time(),
    )


def _stream(run: Run, after: int, last_event_id: int | None) -> HttpResponseBase:
    """`last_event_id` is what a client that lost its connection has; it is newer than the address it connects to."""
    after = after if last_event_id is None else last_event_id
    if last_event_id is not None and RunState(run.state).ended and after >= run.last_seq:
        # What tells a browser's EventSource to stay away.
        return HttpResponse(status=204)
    response = StreamingHttpResponse(sse_events(hub(), run.pk, after), content_type=EVENT_STREAM)
    response.headers["Cache-Control"] = "no-cache"
    response.headers["X-Accel-Buffering"] = "no"
    return response
