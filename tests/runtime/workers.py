"""Workers in this process: the real store, loop and leases, with a dispatcher that a test holds in its hands."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from planner.services import compile_version
from runtime.adapters.planned import PlannedBook
from runtime.engine.clock import SystemClock
from runtime.engine.ports import CallRequest, CallResult, ClassLoad, PressureSource
from runtime.pokes import PokeSender
from runtime.snapshots import Compile
from runtime.store import DjangoRunStore, Journal, write_batch
from runtime.worker import RunsWorker, WorkerParts, WorkerSettings
from runtime.writer import Writer
from tests.runtime.engine.fakes import plain_answer, result

Gate = Callable[[CallRequest], bool]


class GatedDispatcher:
    """Answers at once; a call that `holds` accepts waits until `open` is called, from any thread."""

    def __init__(self, holds: Gate = lambda request: False) -> None:
        self._holds = holds
        self.sent: list[CallRequest] = []
        self.cancelled: list[str] = []
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._arrived = threading.Semaphore(0)
        self._open = False

    async def call(self, request: CallRequest) -> CallResult:
        self.sent.append(request)
        if self._holds(request) and not self._open:
            gate = asyncio.Event()
            self._waiting.append((asyncio.get_running_loop(), gate))
            self._arrived.release()
            try:
                await gate.wait()
            except asyncio.CancelledError:
                self.cancelled.append(request.node)
                raise
        return result(str(plain_answer(request)))

    def wait_for_held(self, count: int = 1) -> None:
        """Block until that many more calls are held."""
        for _ in range(count):
            assert self._arrived.acquire(timeout=30), "no call arrived"

    def open(self) -> None:
        self._open = True
        for loop, gate in self._waiting:
            loop.call_soon_threadsafe(gate.set)


class FixedPressure:
    def __init__(self, loads: Mapping[str, ClassLoad]) -> None:
        self._loads = loads

    def loads(self) -> Mapping[str, ClassLoad]:
        return self._loads


@dataclass
class TestLink:
    """The worker's link to a fleet that is not there."""

    __test__ = False

    dispatcher: GatedDispatcher = field(default_factory=GatedDispatcher)
    planned: PlannedBook = field(default_factory=lambda: PlannedBook(SystemClock()))
    loads: Mapping[str, ClassLoad] = field(default_factory=dict)
    closed: bool = False

    def pressure(self, fleet: str) -> PressureSource:
        return FixedPressure(self.loads)

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def aclose(self) -> None:
        self.closed = True


class DeafLayer:
    """A channel layer that loses every message: what it would have told is found by looking again."""

    async def new_channel(self) -> str:
        return "deaf"

    async def group_add(self, group: str, channel: str) -> None:
        """Nobody will ever send."""

    async def group_send(self, group: str, message: Mapping[str, Any]) -> None:
        """Lost."""

    async def receive(self, channel: str) -> Mapping[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")


@dataclass
class Running:
    """A started worker, and a thread for each run that it is given, as Celery's pool has."""

    worker: RunsWorker
    writer: Writer
    link: TestLink
    published: list[str]
    threads: ThreadPoolExecutor

    @property
    def dispatcher(self) -> GatedDispatcher:
        return self.link.dispatcher

    def execute(self, run_id: str) -> Future[None]:
        return self.threads.submit(self.worker.execute, run_id)


@contextmanager
def running(
    worker_id: str = "host:1:a",
    *,
    link: TestLink | None = None,
    layer: Any = None,
    compile_plan: Compile = compile_version,
    on_broken: Callable[[], None] = lambda: None,
    **settings: Any,
) -> Iterator[Running]:
    link = link or TestLink()
    published: list[str] = []
    layer = layer or DeafLayer()
    pokes = PokeSender(layer)
    writer = Writer(
        write=write_batch, new_journal=Journal, window_s=0.002, patience_s=10.0, on_written=pokes.add_from_thread
    )
    parts = WorkerParts(
        worker_id=worker_id,
        clock=SystemClock(),
        writer=writer,
        store=DjangoRunStore(writer),
        link=link,
        pokes=pokes,
        layer=layer,
        compile_plan=compile_plan,
        publish=published.append,
        on_broken=on_broken,
    )
    worker = RunsWorker(parts, WorkerSettings(**{"runs": 300, "lease_s": 10.0, "look_s": 0.05, **settings}))
    threads = ThreadPoolExecutor(max_workers=300)
    try:
        yield Running(worker=worker, writer=writer, link=link, published=published, threads=threads)
    finally:
        link.dispatcher.open()
        worker.drain()
        threads.shutdown()
        worker.stop()
