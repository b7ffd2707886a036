"""A process that executes runs: Celery threads that block, and one asyncio loop on which all their runs live.

A Celery task is its run's admission: as many run at once as the process has threads, and the broker keeps the rest.
Claims, renewals and commits go through the writer's thread; plans are compiled on a few threads of their own, never on
the loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Protocol

from fleet.common.loops import let_cancellation_through
from planner.compiler.plan import Bundle
from planner.errors import PlanInfeasible, PlannerError
from planner.models import PlanBundle
from planner.selectors import bundle_value
from runtime import leases
from runtime.database import DATABASE_ERRORS
from runtime.engine.engine import Released, execute
from runtime.engine.events import RunState
from runtime.engine.ports import (
    Clock,
    Commit,
    Dispatcher,
    LeaseLost,
    PlannedDemand,
    Ports,
    PressureSource,
    RunEnd,
    RunStore,
)
from runtime.engine.tools.registry import registry
from runtime.loop import LoopThread, every
from runtime.owned import BundleNeed, OwnedRun, OwnedRuns
from runtime.pokes import CONTROL_GROUP, LAYER_ERRORS, ChannelLayer, PokeSender
from runtime.snapshots import ClaimedRun, Compile, load_claimed, plan_run
from runtime.threads import DatabaseThreads
from runtime.writer import Writer

logger = logging.getLogger(__name__)


class Link(Protocol):
    """What a worker needs of the fleet (runtime/adapters/fleet.py)."""

    @property
    def dispatcher(self) -> Dispatcher: ...

    @property
    def planned(self) -> PlannedDemand: ...

    def pressure(self, fleet: str) -> PressureSource: ...

    async def run(self) -> None: ...

    async def aclose(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """`preparers`: threads that compile; pi(0) takes milliseconds, so more would only take turns. `drain_s`: what runs
    get to let go before they are cut off."""

    runs: int
    lease_s: float
    look_s: float = 2.0
    preparers: int = 3
    drain_s: float = 2.5
    layer_retry_s: float = 1.0

    @property
    def renew_s(self) -> float:
        return min(self.look_s, self.lease_s / 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerParts:
    """What the composition root hands to a worker. `publish` has a run enqueued and returns at once."""

    worker_id: str
    clock: Clock
    writer: Writer
    store: RunStore
    link: Link
    pokes: PokeSender
    layer: ChannelLayer
    compile_plan: Compile
    publish: Callable[[str], None]
    on_broken: Callable[[], None]


class RunsWorker:
    """One per process; starts with its first run."""

    def __init__(self, parts: WorkerParts, settings: WorkerSettings) -> None:
        self._parts, self._settings = parts, settings
        self._slots = threading.BoundedSemaphore(settings.runs)
        self._starting = threading.Lock()
        self._started = False
        self._draining = threading.Event()
        self._preparers = DatabaseThreads(settings.preparers, "dyserve-prepare")
        self._loop = LoopThread(self._main, on_broken=parts.on_broken)
        self._owned = OwnedRuns()
        self._tasks: set[asyncio.Task[RunEnd | Released]] = set()
        self._tools = registry()

    # --- From Celery's threads ---

    def execute(self, run_id: str) -> None:
        """Execute a run to its end or release; returns at once when somebody else owns it or it has ended."""
        with self._slots:
            self.start()
            if self._draining.is_set():
                self._parts.writer.call(partial(leases.hand_back, run_id)).result()
                return
            owned = self._claim(run_id)
            if owned is not None:
                self._execute(owned)

    def drain(self) -> None:
        """Let go of all runs, soon; safe in a signal handler. Runs that come later are handed back."""
        self._draining.set()
        self._loop.call_soon(self._drain)

    def stop(self) -> None:
        """End the threads; runs should have been drained. The worker cannot be used again."""
        with self._starting:
            if self._started:
                self._loop.stop()
                self._preparers.stop()
                self._parts.writer.stop()

    def start(self) -> None:
        """Beats and listens from now on; at the latest with the first run. Doing it again does nothing."""
        with self._starting:
            if not self._started:
                self._loop.start()
                self._parts.writer.start()
                self._started = True

    def _claim(self, run_id: str) -> OwnedRun | None:
        parts = self._parts
        claim = partial(leases.claim, run_id, worker=parts.worker_id, lease_s=self._settings.lease_s)
        epoch = parts.writer.call(claim).result()
        if epoch is None:
            logger.debug("run %s is not to be claimed", run_id)
            return None
        owned = OwnedRun(run_id=run_id, epoch=epoch)
        # From here on the lease is renewed, so that a long solve does not lose it.
        self._loop.call_soon(partial(self._owned.add, owned))
        return owned

    def _execute(self, owned: OwnedRun) -> None:
        ended: RunEnd | Released = Released(reason="drain")
        try:
            prepared = self._preparers.call(partial(self._prepare, owned)).result()
            ended = self._loop.submit(self._execution(owned, prepared)).result()
        except CancelledError:
            logger.warning("run %s was cut off while the worker drains", owned.run_id)
        except DATABASE_ERRORS as error:
            logger.warning("run %s is left to the reaper, the database is away: %s", owned.run_id, error)
            return
        finally:
            self._loop.call_soon(partial(self._owned.remove, owned))
        if isinstance(ended, Released) and ended.reason == "drain":
            self._give_back(owned)

    def _prepare(self, owned: OwnedRun) -> ClaimedRun | RunEnd:
        """The run with its plan, or the end of a run that has none. Raises the database's errors."""
        try:
            plan_run(owned.run_id, owned.epoch, self._parts.compile_plan)
            return load_claimed(owned.run_id, owned.epoch)
        except DATABASE_ERRORS:
            raise
        except PlanInfeasible as error:
            conflicts = [asdict(conflict) for conflict in error.conflicts]
            return self._failure("no_plan", str(error), **({"conflicts": conflicts} if conflicts else {}))
        except PlannerError as error:
            return self._failure("no_plan", str(error))
        except Exception as error:
            logger.exception("run %s could not be prepared", owned.run_id)
            return self._defect(error)

    def _failure(self, code: str, message: str, **more: Any) -> RunEnd:
        failure = {"code": code, "message": message, "node": None, **more}
        return RunEnd(state=RunState.FAILED, at=self._parts.clock.now(), error=failure)

    def _defect(self, error: Exception) -> RunEnd:
        """A defect ends its run with a reason: taken over by others it would fail again and again."""
        return self._failure("internal_error", f"{type(error).__name__}: {error}")

    def _give_back(self, owned: OwnedRun) -> None:
        release = partial(leases.release, owned.run_id, worker=self._parts.worker_id, epoch=owned.epoch)
        if self._parts.writer.call(release).result():
            self._parts.publish(owned.run_id)

    # --- On the loop ---

    async def _main(self, ready: Callable[[], None]) -> None:
        link, settings = self._parts.link, self._settings
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(link.run(), name="fleet")
                group.create_task(self._parts.pokes.run(), name="pokes")
                group.create_task(self._listen(), name="control")
                group.create_task(
                    every(settings.renew_s, "renewing leases", self._look, DATABASE_ERRORS), name="leases"
                )
                ready()
        finally:
            await link.aclose()

    async def _execution(self, owned: OwnedRun, prepared: ClaimedRun | RunEnd) -> RunEnd | Released:
        task = asyncio.ensure_future(self._run(owned, prepared))
        self._tasks.add(task)
        try:
            return await task
        finally:
            self._tasks.discard(task)

    async def _run(self, owned: OwnedRun, prepared: ClaimedRun | RunEnd) -> RunEnd | Released:
        if isinstance(prepared, RunEnd):
            return await self._end(owned, prepared)
        owned.workflow = prepared.snapshot.workflow
        owned.waits_for = None if prepared.snapshot.bundle.complete else prepared.bundle_id
        if prepared.cancel_requested:
            owned.control.cancel()
        try:
            return await execute(prepared.snapshot, self._ports(prepared.fleet), owned.control)
        except Exception as error:
            logger.exception("run %s broke", owned.run_id)
            return await self._end(owned, self._defect(error))

    async def _end(self, owned: OwnedRun, end: RunEnd) -> RunEnd | Released:
        try:
            await self._parts.store.commit(Commit(run_id=owned.run_id, epoch=owned.epoch, at=end.at, end=end))
        except LeaseLost:
            return Released(reason="lease_lost")
        return end

    def _ports(self, fleet: str) -> Ports:
        return Ports(
            clock=self._parts.clock,
            store=self._parts.store,
            dispatcher=self._parts.link.dispatcher,
            tools=self._tools,
            pressure=self._parts.link.pressure(fleet),
            planned=self._parts.link.planned,
        )

    async def _look(self) -> None:
        """Renew all leases in one statement, and learn what became of the runs: lost wake-ups are repaired here."""
        renew = partial(leases.renew, self._owned.ids(), worker=self._parts.worker_id, lease_s=self._settings.lease_s)
        ready = self._owned.learn(await asyncio.wrap_future(self._parts.writer.call(renew)))
        await self._deliver(ready)

    async def _deliver(self, bundle_ids: Iterable[int]) -> None:
        """Hand completed bundles to the runs that wait for them. Raises the database's errors."""
        for need in self._owned.needs(bundle_ids):
            try:
                bundle = await asyncio.wrap_future(self._preparers.call(partial(_read_bundle, need)))
            except ValueError:
                logger.exception("bundle %s does not fit its runs, which go on without it", need.bundle_id)
                self._owned.give_up(need)
                continue
            if bundle.complete:
                self._owned.deliver(need, bundle)

    async def _listen(self) -> None:
        """Control messages of the channel layer, which connects anew by itself once it has begun to listen."""
        layer = self._parts.layer
        while True:
            try:
                channel = await layer.new_channel()
                await layer.group_add(CONTROL_GROUP, channel)
                while True:
                    message = await layer.receive(channel)
                    let_cancellation_through()
                    self._owned.cancel(message.get("cancel", ()))
                    await self._deliver(message.get("bundles", ()))
            except (*LAYER_ERRORS, *DATABASE_ERRORS) as error:
                let_cancellation_through()
                logger.warning(
                    "control messages are lost at present, runs look every %g s: %s", self._settings.look_s, error
                )
                await asyncio.sleep(self._settings.layer_retry_s)

    def _drain(self) -> None:
        logger.info("letting go of %d runs", len(self._owned))
        self._owned.release_all()
        asyncio.get_running_loop().call_later(self._settings.drain_s, self._cut_off)

    def _cut_off(self) -> None:
        for task in self._tasks:
            task.cancel()


def _read_bundle(need: BundleNeed) -> Bundle:
    return bundle_value(PlanBundle.objects.get(pk=need.bundle_id), need.workflow)
