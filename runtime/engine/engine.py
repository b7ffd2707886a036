"""The durable engine: executes one run step by step over its ports (paper 5; durability ours).

A step commits what has ended, what was decided and what is to be dispatched, in ONE commit, before a call leaves and
before anyone is told. So calls are at-least-once, commits exactly-once, and bindings immutable.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Literal

from planner.compiler.plan import Bundle, Plan
from runtime.engine.demand import planned_calls, planned_until, uses
from runtime.engine.flights import Flights
from runtime.engine.invocations import Invocation
from runtime.engine.ports import (
    Commit,
    Control,
    ControlState,
    Decision,
    Intent,
    LeaseLost,
    Outcome,
    Ports,
    RunEnd,
    RunSnapshot,
)
from runtime.engine.state import RunProgress, next_ready, progress_of, with_decision, with_intents, with_outcomes
from runtime.engine.steps import end_of, intents_in_flight, intents_of, is_empty, safe_point
from runtime.engine.switching import is_quiet, repeats


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """The engine let go of a run that has not ended: the worker drains, or another worker owns the run."""

    reason: Literal["drain", "lease_lost"]


async def execute(snapshot: RunSnapshot, ports: Ports, control: Control) -> RunEnd | Released:
    """Execute a claimed run to its end, or until it is released. Nothing of it is running when this returns or raises.

    Nodes that are committed are never executed again; those in flight at the claim are issued again, whole, with their
    bindings. An error of the store other than LeaseLost is raised: the run stays claimable.
    """
    run = _Execution(snapshot, ports, control)
    try:
        return await run.execute()
    except LeaseLost:
        return Released(reason="lease_lost")
    finally:
        await run.close()


class _Execution:
    def __init__(self, snapshot: RunSnapshot, ports: Ports, control: Control) -> None:
        self._run, self._ports, self._control = snapshot, ports, control
        self._bundle = snapshot.bundle
        self._uncommitted_bundle: Bundle | None = snapshot.bundle
        self._progress = progress_of(snapshot)
        self._flights = Flights(ports, control)
        self._previous: Decision | None = None
        self._announced: str | None = None

    async def execute(self) -> RunEnd | Released:
        world = self._control.state()
        if not (world.cancel or world.release or self._progress.failed):
            self._dispatch(intents_in_flight(self._progress))
        outcomes: tuple[Outcome, ...] = ()
        while True:
            ended = await self._step(outcomes, world)
            if ended is not None:
                return ended
            outcomes = await self._next_outcomes()
            world = self._control.state()

    async def close(self) -> None:
        """Stop everything, and take back what was announced."""
        self._announce_nothing()
        await self._flights.stop()

    # --- Steps ---

    async def _step(self, outcomes: tuple[Outcome, ...], world: ControlState) -> RunEnd | Released | None:
        """One step: one commit, then what follows from it. None while the run goes on."""
        self._take_bundle(world)
        progress = with_outcomes(self._progress, outcomes)
        if world.release:
            await self._commit(outcomes=outcomes)
            return Released(reason="drain")
        if progress.complete or progress.failed or world.cancel:
            return await self._wind_down(outcomes, cancelled=world.cancel)
        now = self._ports.clock.now()
        decision = self._decide(progress, bool(outcomes), now)
        switched = with_decision(progress, decision)
        intents = intents_of(self._run, self._bundle, switched, now)
        is_barred = await self._commit(outcomes=outcomes, decisions=self._to_record(decision), intents=intents)
        self._progress = progress if is_barred else with_intents(switched, intents)
        if is_barred:
            return await self._wind_down((), cancelled=True)
        self._dispatch(intents)
        return None

    async def _wind_down(self, outcomes: tuple[Outcome, ...], *, cancelled: bool) -> RunEnd | Released:
        """Stop the calls, let tools in flight finish, and end the run. Nothing new is dispatched."""
        await self._flights.stop_calls()
        outcomes += self._flights.collect()
        while True:
            progress, now = with_outcomes(self._progress, outcomes), self._ports.clock.now()
            end = None if self._flights.any else end_of(progress, now, cancelled=cancelled)
            await self._commit(outcomes=outcomes, end=end)
            self._progress = progress
            if end is not None:
                return end
            outcomes = await self._next_outcomes()
            if self._control.state().release:
                await self._commit(outcomes=outcomes)
                return Released(reason="drain")

    async def _next_outcomes(self) -> tuple[Outcome, ...]:
        """What has ended; waits for it, or for the control to change, when nothing has."""
        outcomes = self._flights.collect()
        if outcomes:
            return outcomes
        await self._flights.changed()
        return self._flights.collect()

    async def _commit(
        self,
        *,
        outcomes: tuple[Outcome, ...] = (),
        decisions: tuple[Decision, ...] = (),
        intents: tuple[Intent, ...] = (),
        end: RunEnd | None = None,
    ) -> bool:
        """Make a step durable; True when a cancel barred its intents and decisions. Raises LeaseLost."""
        commit = Commit(
            run_id=self._run.run_id,
            epoch=self._run.epoch,
            at=self._ports.clock.now(),
            outcomes=outcomes,
            bundle=self._uncommitted_bundle,
            decisions=decisions,
            intents=intents,
            end=end,
        )
        if is_empty(commit):
            return False
        write = asyncio.ensure_future(self._ports.store.commit(commit))
        try:
            answer = await asyncio.shield(write)
        except asyncio.CancelledError:
            # The outcomes are paid for: the write ends before the cancellation goes on.
            await asyncio.wait({write})
            raise
        self._uncommitted_bundle = None
        return answer.barred is not None

    def _dispatch(self, intents: tuple[Intent, ...]) -> None:
        """Start the invocations of committed intents."""
        if not intents:
            return
        by_id, outputs = self._progress.workflow.by_id, self._progress.outputs
        self._flights.start(
            Invocation(run=self._run, node=by_id[intent.node], intent=intent, outputs=outputs) for intent in intents
        )
        model = self._announced
        if model is not None and any(uses(intent.binding, model) for intent in intents):
            # After the tasks' first turn: by then the dispatcher counts the calls, so the load never dips in between.
            asyncio.get_running_loop().call_soon(self._announce_nothing)

    # --- Switching ---

    def _take_bundle(self, world: ControlState) -> None:
        """Take the completed bundle once; its pi(0) is the one that the run started with."""
        if world.bundle is not None and world.bundle.complete and not self._bundle.complete:
            self._bundle = self._uncommitted_bundle = world.bundle

    def _decide(self, progress: RunProgress, has_outcomes: bool, now: float) -> Decision | None:
        """The decision of this safe point; None when there is nothing to decide on. Announces planned demand."""
        if not (has_outcomes or progress.ready or self._uncommitted_bundle):
            return None
        decision = safe_point(self._run, self._bundle, progress, self._ports.pressure, now)
        if decision is not None and decision.to_variant is not None:
            self._announce(self._bundle.variants[decision.to_variant], progress, now)
        return decision

    def _to_record(self, decision: Decision | None) -> tuple[Decision, ...]:
        """The decision unless it says nothing new: the ledger has one entry while nothing changes."""
        if decision is None:
            return ()
        is_news = not (is_quiet(decision) or repeats(decision, self._previous))
        self._previous = decision
        return (decision,) if is_news else ()

    def _announce(self, plan: Plan, progress: RunProgress, now: float) -> None:
        """Announce what the run is about to send, before the switch is durable: runs that decide meanwhile see it."""
        model, settings = plan.dominant_model, self._run.settings
        self._announce_nothing()
        if model is None or not settings.count_planned:
            return
        calls = planned_calls(next_ready(progress), plan, self._run.policies, model)
        if calls:
            self._ports.planned.add(self._run.run_id, model, calls, planned_until(now, settings.dwell_s))
            self._announced = model

    def _announce_nothing(self) -> None:
        if self._announced is not None:
            self._announced = None
            self._ports.planned.clear(self._run.run_id)
