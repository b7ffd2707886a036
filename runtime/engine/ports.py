"""The engine's ports and the values that cross them (paper 5).

The same engine runs on real vLLM, on the emulated fleet over HTTP, and in virtual time: only these ports differ.
All times are epoch seconds of the port's own clock; durations are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from planner.compiler.plan import Bundle, Implementation
from planner.compiler.policies import Policy
from planner.compiler.workflow import Workflow
from runtime.engine.events import NodeState, RunState


class Clock(Protocol):
    def now(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


# --- Calls -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseFormat:
    """`choice`: one of `choices`; `json`: valid against `schema` (None: any JSON); `text`: free."""

    kind: Literal["text", "choice", "json"] = "text"
    choices: tuple[str, ...] = ()
    schema: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRequest:
    """One HTTP request of an invocation. `request_id` is unique per run, node, attempt, stage and copy."""

    request_id: str
    run_id: str
    node: str
    attempt: int
    stage: int
    role: str
    copy: int
    model: str
    backend: str
    messages: tuple[Mapping[str, str], ...]
    max_tokens: int
    temperature: float
    seed: int
    thinking: bool
    response: ResponseFormat = ResponseFormat()
    timeout_s: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult:
    """`tries` counts the HTTP requests it took, fail-over inside the backend included."""

    text: str
    reasoning: str
    prompt_tokens: int
    output_tokens: int
    finish_reason: str
    replica: str
    started_at: float
    finished_at: float
    queue_s: float | None = None
    ttft_s: float | None = None
    tries: int = 1


class CallFailed(Exception):
    """A call that ended without an answer after the dispatcher's own retries.

    `code` is the typed error's name (fleet/serving/errors.py), `retryable` whether the same request may succeed later.
    """

    def __init__(self, code: str, message: str, *, retryable: bool, replica: str = "", tries: int = 1) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.retryable = code, message, retryable
        self.replica, self.tries = replica, tries


class Dispatcher(Protocol):
    """Sends a call to a replica of the binding's backend. Cancelling the coroutine frees the server's slot."""

    async def call(self, request: CallRequest) -> CallResult: ...


class ToolFailed(Exception):
    """A tool that refused or broke: malformed arguments, time-out, explicit error (paper 5.2's three triggers)."""

    def __init__(self, code: Literal["malformed_arguments", "timeout", "tool_error"], message: str, pointer: str = ""):
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.pointer = code, message, pointer


class Tool(Protocol):
    """One tool. `arguments` are rendered already; returns any JSON value; raises ToolFailed."""

    name: str

    async def invoke(self, arguments: Mapping[str, Any]) -> Any: ...


# --- Pressure --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassLoad:
    """Load of one model class (MATH.md, Load). `load` None: unknown; infinite when `state` is overloaded."""

    model: str
    load: float | None
    state: Literal["ok", "unknown", "overloaded"]
    outstanding: float = 0.0
    planned: float = 0.0
    capacity: float = 0.0
    age_s: float = 0.0

    def to_json(self) -> dict[str, Any]:
        data = {name: getattr(self, name) for name in self.__slots__}
        if self.load is not None and self.load == float("inf"):
            data["load"] = None
        return data


class PressureSource(Protocol):
    """The last published pressure, own in-flight counters and planned demand of all workers included."""

    def loads(self) -> Mapping[str, ClassLoad]: ...


class PlannedDemand(Protocol):
    """Planned demand of switched runs (MATH.md, planned(k)); shared by all workers."""

    def add(self, run_id: str, model: str, calls: int, until: float) -> None: ...

    def clear(self, run_id: str) -> None: ...


# --- The ledger ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """What the rule said of one variant. `verdict` accepted or skipped, with a stable `reason` code and a sentence."""

    variant: int
    level: float
    dominant_model: str | None
    estimated_quality: float
    verdict: Literal["accepted", "skipped"]
    reason: str
    text: str

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One entry of the ledger: a switch (`to_variant` set) or a refusal (None), with everything it read."""

    at: float
    active_variant: int
    to_variant: int | None
    reason: str
    text: str
    loads: Mapping[str, ClassLoad]
    thresholds: Mapping[str, float]
    candidates: tuple[Candidate, ...] = ()
    changed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchSettings:
    """MATH.md's switching rule. Loads are fractions of capacity, `dwell_s` seconds, drops estimated quality."""

    controller: Literal["off", "threshold"] = "threshold"
    high: float = 0.85
    low: float = 0.5
    ratio: float = 0.7
    dwell_s: float = 5.0
    drop_absolute: float = 0.15
    drop_relative: float = 0.25
    count_planned: bool = True


# --- The store -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """A dispatch intent: committed before the first call of the invocation leaves. `binding` is None for tools."""

    node: str
    attempt: int
    kind: Literal["llm", "tool"]
    at: float
    binding: Implementation | None = None
    variant: int | None = None
    predicted_s: float = 0.0
    arguments: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """One HTTP call of an invocation as it is kept: what was asked, what came back, when, where."""

    stage: int
    role: str
    copy: int
    model: str
    backend: str
    replica: str
    request_id: str
    messages: tuple[Mapping[str, str], ...]
    text: str
    reasoning: str
    prompt_tokens: int
    output_tokens: int
    finish_reason: str
    started_at: float
    finished_at: float
    queue_s: float | None = None
    ttft_s: float | None = None
    tries: int = 1
    verdict: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The end of an invocation: its output (any JSON value; text for text nodes) or its error."""

    node: str
    attempt: int
    started_at: float
    finished_at: float
    output: Any = None
    error: Mapping[str, Any] | None = None
    calls: tuple[CallRecord, ...] = ()

    @property
    def ok(self) -> bool:
        return self.error is None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    state: RunState
    at: float
    output: Any = None
    error: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """What one engine step makes durable, in one transaction, in this order: outcomes, bundle, decisions, intents, end.

    `bundle` is set in the step that first uses a bundle or its completed variants.
    """

    run_id: str
    epoch: int
    at: float
    outcomes: tuple[Outcome, ...] = ()
    bundle: Bundle | None = None
    decisions: tuple[Decision, ...] = ()
    intents: tuple[Intent, ...] = ()
    end: RunEnd | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """`barred`: a cancel came first, so the intents were NOT committed (outcomes were). `seq`: the last event's."""

    seq: int
    barred: Literal["cancel"] | None = None


class LeaseLost(Exception):
    """Another worker owns the run (a higher epoch), or the run has ended. The loser stops calling at once."""


class CommitRefused(Exception):
    """The commit breaks a rule of the log; nothing of it is durable.

    The rules: one outcome for one (node, attempt), none without its intent, and no intent for a node in flight.
    """


class RunStore(Protocol):
    """Durable commits of one worker; group commit is the adapter's business. Raises LeaseLost and CommitRefused."""

    async def commit(self, commit: Commit) -> Committed: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlState:
    """What the world asks of a run: cancel, stop (the worker drains or lost the lease), or a completed bundle."""

    cancel: bool = False
    release: bool = False
    bundle: Bundle | None = None


class Control(Protocol):
    """`wait` returns when `state` has changed since the last `state()`; a lost wake-up is repaired within 2 s."""

    def state(self) -> ControlState: ...

    async def wait(self) -> None: ...


# --- A run -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSnapshot:
    """A node as the store knows it at a claim; a dispatched one is issued again, whole, with its SAME binding.

    `error` is a failed node's (its run was claimed again before its end was recorded).
    """

    state: NodeState = NodeState.WAITING
    attempt: int = 0
    binding: Implementation | None = None
    variant: int | None = None
    dispatched_at: float | None = None
    output: Any = None
    error: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSnapshot:
    """Everything the engine needs to start or resume a run. Nodes that are missing in `nodes` are waiting."""

    run_id: str
    epoch: int
    workflow: Workflow
    inputs: Mapping[str, Any]
    bundle: Bundle
    policies: Mapping[str, Policy]
    settings: SwitchSettings
    accepted_at: float
    active_variant: int = 0
    last_switch_at: float | None = None
    deadline_s: float | None = None
    seed: int = 0
    nodes: Mapping[str, NodeSnapshot] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """One worker's adapters, constructed by the composition root."""

    clock: Clock
    store: RunStore
    dispatcher: Dispatcher
    tools: Mapping[str, Tool]
    pressure: PressureSource
    planned: PlannedDemand
