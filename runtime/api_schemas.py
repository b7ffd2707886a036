"""What the API says of runs. Times in epoch seconds, durations in seconds."""

from __future__ import annotations

from typing import Any, Literal, Self

from ninja import Schema
from pydantic import Field

from fleet.common.schemas import JsonObject, PageQuery
from planner.api_schemas import BundleIn, LimitsIn
from planner.compiler.plan import BundleKind
from planner.marks import Marks, ProfileMark
from planner.requests import SourceIn
from runtime.engine.events import RunState
from runtime.listing import workflow_name
from runtime.models import Call, Invocation, LedgerEntry, Run
from runtime.selectors import NodeRow

MAX_SEQ = 2**31 - 1
ADDED = ("bundle", "limits")
"""Members of `RunIn` that an earlier version did not know."""


class RunIn(SourceIn):
    inputs: JsonObject = Field(default_factory=dict, max_length=1000)
    fleet: str | None = Field(None, max_length=63)
    deadline_s: float | None = Field(
        None, gt=0, description="A target, counted from acceptance; the workflow's without."
    )
    effort: float | None = Field(None, ge=0, le=1)
    weights: dict[str, float] | str | None = Field(None, description="A preset's name, or overrides of single weights.")
    bundle: BundleIn = None
    limits: LimitsIn = None
    controller: Literal["", "off", "threshold"] = Field("", description="Empty: the fleet's.")
    seed: int | None = Field(None, ge=0)


class IdempotencyHeaders(Schema):
    idempotency_key: str | None = Field(
        None, alias="Idempotency-Key", min_length=1, max_length=200, pattern=r"^[\x21-\x7e]+$"
    )


class RunsQuery(PageQuery):
    state: RunState | None = None
    workflow: str | None = Field(None, min_length=1, max_length=80, description="A workflow's id or slug.")


class RunSummaryOut(Schema):
    id: str
    state: RunState
    workflow: str = Field(description="The workflow's name.")
    workflow_id: int | None = Field(description="null: the run brought its DAG along.")
    version_id: int
    version: int | None
    fleet: str
    plan: str | None = Field(description="Id of the plan; null until the first variant is solved.")
    active_variant: int
    source: str
    accepted_at: float
    started_at: float | None
    finished_at: float | None
    deadline_s: float | None
    late: bool | None
    cancel_requested: bool
    nodes_done: int
    nodes_total: int
    calls: int
    prompt_tokens: int
    output_tokens: int
    switches: int
    emulated: bool = Field(description="Served by an emulator: times are its model's, not a GPU's.")
    profiles: ProfileMark

    @classmethod
    def of(cls, run: Run, marks: Marks, **more: Any) -> Self:
        """`run` comes from `listed`."""
        same = {name: getattr(run, name) for name in _SAME}
        return cls(
            id=run.pk,
            workflow=workflow_name(run),
            workflow_id=run.version.workflow_id,
            version=run.version.number,
            fleet=run.fleet.name,
            plan=None if run.bundle_id is None else f"{run.version_id}-{run.bundle_id}",
            accepted_at=run.accepted_at.timestamp(),
            cancel_requested=run.cancel_requested_at is not None,
            emulated=marks.emulated(run.fleet),
            profiles=marks.profiles(run.bundle),
            **same,
            **more,
        )


_SAME = (
    "state",
    "version_id",
    "active_variant",
    "source",
    "started_at",
    "finished_at",
    "deadline_s",
    "late",
    "nodes_done",
    "nodes_total",
    "calls",
    "prompt_tokens",
    "output_tokens",
    "switches",
)


class RunOut(RunSummaryOut):
    inputs: JsonObject
    output: Any = Field(description="The output node's; null until the run succeeded.")
    error: JsonObject | None
    effort: float
    weights: JsonObject
    bundle: BundleKind
    limits: JsonObject = Field(description="Hard limits that are set.")
    controller: str
    seed: int
    compile_s: float | None
    last_seq: int = Field(description="Seq of the last event.")
    server_time: float

    @classmethod
    def detailed(cls, run: Run, *, server_time: float) -> Self:
        names = ("inputs", "output", "error", "effort", "weights", "controller", "seed", "compile_s", "last_seq")
        values = {name: getattr(run, name) for name in names}
        return cls.of(run, Marks(), server_time=server_time, bundle=run.bundle_kind, limits=run.limits, **values)


# --- Events ----------------------------------------------------------------------------------------------------------


class EventsQuery(Schema):
    after: int = Field(0, ge=0, le=MAX_SEQ, description="Seq of the last event you have.")
    limit: int = Field(500, ge=1, le=1000)


class ResumeHeaders(Schema):
    last_event_id: int | None = Field(None, alias="Last-Event-ID", ge=0, le=MAX_SEQ)


class EventOut(Schema):
    seq: int
    kind: str
    at: float
    data: JsonObject


class EventsOut(Schema):
    items: list[EventOut]
    next: int | None = Field(description="Send it as `after`; null: the run has ended and this is all of its log.")
    state: RunState
    server_time: float


# --- Nodes -----------------------------------------------------------------------------------------------------------


class NodeOut(Schema):
    """A node with its last invocation. `state` `ready`: all predecessors are committed."""

    node: str
    title: str
    kind: str
    state: str
    attempt: int
    binding: JsonObject | None
    variant: int | None
    predicted_s: float | None = Field(
        description="Planned seconds, no queueing: emulated or illustrative as the run is."
    )
    dispatched_at: float | None
    finished_at: float | None
    calls: int
    prompt_tokens: int
    output_tokens: int
    error: JsonObject | None

    @classmethod
    def of(cls, row: NodeRow, **more: Any) -> Self:
        return cls(**{name: getattr(row, name) for name in NodeOut.model_fields}, **more)


class CallOut(Schema):
    """One HTTP request of an invocation."""

    stage: int
    role: str
    index: int = Field(description="Parallel calls of one role are numbered.")
    model: str
    backend: str
    replica: str
    request_id: str
    messages: list[JsonObject]
    text: str
    reasoning: str
    verdict: str
    error: str
    finish_reason: str
    prompt_tokens: int
    output_tokens: int
    tries: int
    started_at: float
    finished_at: float
    queue_s: float | None
    ttft_s: float | None

    @classmethod
    def given(cls, call: Call) -> Self:
        same = {name: getattr(call, name) for name in cls.model_fields if name != "index"}
        return cls(index=call.copy, **same)


class InvocationOut(Schema):
    attempt: int
    state: str
    variant: int | None
    binding: JsonObject | None
    arguments: Any
    predicted_s: float
    dispatched_at: float
    finished_at: float | None
    output: Any
    error: JsonObject | None
    prompt_tokens: int
    output_tokens: int
    calls: list[CallOut]

    @classmethod
    def with_calls(cls, row: Invocation, calls: list[Call]) -> Self:
        names = [name for name in cls.model_fields if name != "calls"]
        return cls(calls=[CallOut.given(call) for call in calls], **{name: getattr(row, name) for name in names})


class NodeDetailOut(NodeOut):
    run: str
    invocations: list[InvocationOut] = Field(description="Every attempt, oldest first.")
    emulated: bool
    profiles: ProfileMark


# --- Switches --------------------------------------------------------------------------------------------------------


class SwitchesQuery(PageQuery):
    switches_only: bool = Field(False, description="Without the refusals.")


class LedgerOut(Schema):
    """One switch (`to_variant` set) or refusal, with everything that the rule read."""

    seq: int
    at: float
    active_variant: int
    to_variant: int | None
    reason: str
    text: str
    loads: Any
    thresholds: Any
    candidates: Any
    changed: Any
    kept: Any

    @classmethod
    def of(cls, row: LedgerEntry) -> Self:
        return cls(**{name: getattr(row, name) for name in cls.model_fields})
