"""A world in virtual time for the engine: a dispatcher with given durations and answers, loads that a test sets, and
stores that crash where a test wants them to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from runtime.engine.clock import VirtualClock, run_virtual
from runtime.engine.control import LocalControl
from runtime.engine.engine import Released, execute
from runtime.engine.events import EventKind
from runtime.engine.memory_store import MemoryStore, StoredRun
from runtime.engine.ports import (
    CallRequest,
    CallResult,
    ClassLoad,
    Commit,
    Committed,
    Ports,
    RunEnd,
    RunSnapshot,
    RunStore,
    Tool,
)
from runtime.engine.tools.registry import registry
from tests.runtime.engine.samples import BIG, SMALL, START

T = TypeVar("T")
Seconds = Callable[[CallRequest], float]
Answers = Callable[[CallRequest], "str | CallResult | BaseException"]


def one_second(request: CallRequest) -> float:
    return 1.0


def plain_answer(request: CallRequest) -> str:
    """Accepts, chooses the first, and otherwise says who answered; JSON outputs are all equal."""
    if request.response.kind == "choice":
        return request.response.choices[0]
    if request.response.kind == "json":
        return json.dumps({"answer": 42})
    return f"{request.node}/{request.role}{request.copy} by {request.model}"


def result(text: str, finish_reason: str = "stop", started_at: float = START, finished_at: float = START) -> CallResult:
    return CallResult(
        text=text,
        reasoning="",
        prompt_tokens=10,
        output_tokens=len(text.split()),
        finish_reason=finish_reason,
        replica="replica-0",
        started_at=started_at,
        finished_at=finished_at,
    )


class SimDispatcher:
    """Every call takes `seconds(request)` of virtual time and then gives `answers(request)`."""

    def __init__(self, seconds: Seconds = one_second, answers: Answers = plain_answer) -> None:
        self.clock = VirtualClock(START)
        self.seconds, self.answers = seconds, answers
        self.sent: list[CallRequest] = []
        self.sent_at: list[float] = []
        self.in_flight = 0
        self.cancelled = 0
        self.on_point: Callable[[], None] = lambda: None

    async def call(self, request: CallRequest) -> CallResult:
        self.sent.append(request)
        self.sent_at.append(self.clock.now())
        self.in_flight += 1
        started_at = self.clock.now()
        try:
            self.on_point()
            await self.clock.sleep(self.seconds(request))
            self.on_point()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.in_flight -= 1
        answer = self.answers(request)
        if isinstance(answer, BaseException):
            raise answer
        return answer if isinstance(answer, CallResult) else result(answer, "stop", started_at, self.clock.now())

    def nodes(self) -> list[str]:
        return [request.node for request in self.sent]


class FakePressure:
    """Loads that a test sets; by default both classes are nearly idle."""

    def __init__(self, loads: Mapping[str, float | None] | None = None) -> None:
        self.by_model: dict[str, float | None] = dict({BIG: 0.1, SMALL: 0.1} if loads is None else loads)
        self.reads = 0

    def loads(self) -> Mapping[str, ClassLoad]:
        self.reads += 1
        return {
            model: ClassLoad(model=model, load=load, state="unknown" if load is None else "ok", capacity=100.0)
            for model, load in self.by_model.items()
        }


class FakePlanned:
    """Planned demand as a log and as what is announced now."""

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.now: dict[str, tuple[str, int, float]] = {}

    def add(self, run_id: str, model: str, calls: int, until: float) -> None:
        self.log.append(("add", model, calls, until))
        self.now[run_id] = (model, calls, until)

    def clear(self, run_id: str) -> None:
        self.log.append(("clear",))
        self.now.pop(run_id, None)


class SlowTool:
    """A tool that takes a while and counts how often it was finished and cut off."""

    name = "slow"

    def __init__(self, seconds: float = 5.0) -> None:
        self.seconds, self.finished, self.cut_off = seconds, 0, 0

    async def invoke(self, arguments: Mapping[str, Any]) -> Any:
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.cut_off += 1
            raise
        self.finished += 1
        return "slow result"


class Crash(Exception):
    """The worker dies here."""


class WrappedStore:
    """A store that does something before and after every commit (`number` counts from 1)."""

    def __init__(
        self,
        store: RunStore,
        before: Callable[[int, Commit], Awaitable[None] | None] = lambda number, commit: None,
        after: Callable[[int, Commit], Awaitable[None] | None] = lambda number, commit: None,
    ) -> None:
        self.store, self.before, self.after = store, before, after
        self.commits: list[Commit] = []

    async def commit(self, commit: Commit) -> Committed:
        self.commits.append(commit)
        number = len(self.commits)
        await _maybe(self.before(number, commit))
        answer = await self.store.commit(commit)
        await _maybe(self.after(number, commit))
        return answer


async def _maybe(awaitable: Awaitable[None] | None) -> None:
    if awaitable is not None:
        await awaitable


@dataclass(kw_only=True)
class World:
    """One worker's ports in virtual time around one in-memory store."""

    dispatcher: SimDispatcher = field(default_factory=SimDispatcher)
    pressure: FakePressure = field(default_factory=FakePressure)
    planned: FakePlanned = field(default_factory=FakePlanned)
    tools: tuple[Tool, ...] = ()
    store: MemoryStore = field(default_factory=lambda: MemoryStore(VirtualClock(START)))
    control: LocalControl = field(default_factory=LocalControl)
    wrapped: RunStore | None = None

    @property
    def ports(self) -> Ports:
        return Ports(
            clock=VirtualClock(START),
            store=self.wrapped or self.store,
            dispatcher=self.dispatcher,
            tools=registry(self.tools),
            pressure=self.pressure,
            planned=self.planned,
        )

    async def serve(self, snapshot: RunSnapshot) -> RunEnd | Released:
        """Accept, claim and execute a run."""
        self.store.accept(snapshot)
        return await self.resume(snapshot.run_id)

    async def resume(self, run_id: str) -> RunEnd | Released:
        """Claim a run that is there already and execute it."""
        return await execute(self.store.claim(run_id), self.ports, self.control)

    def cancel(self, run_id: str = "run_1") -> None:
        """What a person's cancel does: the barrier in the store, then the poke."""
        self.store.request_cancel(run_id, by="someone")
        self.control.cancel()


@dataclass(frozen=True, kw_only=True)
class Finished:
    """What is left after a run in virtual time."""

    end: RunEnd | Released
    run: StoredRun
    seconds: float

    def data(self, kind: EventKind) -> list[dict[str, Any]]:
        return [event.data for event in self.run.events if event.kind is kind]

    def kinds(self) -> list[str]:
        return [str(event.kind) for event in self.run.events]

    def bindings(self) -> dict[str, str]:
        """The label of every dispatched LLM node's implementation."""
        return {
            node: known.binding.label for node, known in self.run.snapshot.nodes.items() if known.binding is not None
        }


def serve(world: World, snapshot: RunSnapshot, beside: Callable[[], Awaitable[None]] | None = None) -> Finished:
    """Run a snapshot to its end in virtual time, with something happening beside it."""

    async def main() -> tuple[RunEnd | Released, float]:
        async with asyncio.TaskGroup() as group:
            other = group.create_task(_maybe(beside() if beside else None))
            end = await world.serve(snapshot)
            seconds = asyncio.get_running_loop().time()
            other.cancel()
        left = [task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        assert left == [], f"the run left tasks behind: {left}"
        return end, seconds

    end, seconds = run_virtual(main())
    return Finished(end=end, run=world.store.run(snapshot.run_id), seconds=seconds)
