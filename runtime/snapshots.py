"""A claimed run as the engine's value: what the database knows of it, and its plan (paper 4.4: pi(0) comes first)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

from django.db import transaction

from fleet.models import Fleet
from planner.compiler.plan import Implementation
from planner.compiler.policies import POLICIES
from planner.compiler.workflow import Workflow
from planner.models import PlanBundle, WorkflowVersion
from planner.options import PlanOptions
from planner.selectors import bundle_value, workflow_value
from runtime.engine.events import NodeState
from runtime.engine.ports import NodeSnapshot, RunSnapshot, SwitchSettings
from runtime.models import ControllerSettings, Invocation, Run


class Compiled(Protocol):
    """What compiling gives back: pi(0)'s bundle row, and the seconds it took."""

    @property
    def bundle(self) -> PlanBundle: ...

    @property
    def compile_s(self) -> float: ...


class Compile(Protocol):
    """Solve pi(0) and find or make the bundle of the version's planning structure."""

    def __call__(self, version: WorkflowVersion, *, fleet: Fleet, options: PlanOptions) -> Compiled: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedRun:
    """A run that is about to be executed; `bundle_id` is the row its further variants will appear in."""

    snapshot: RunSnapshot
    fleet: str
    bundle_id: int
    cancel_requested: bool


def plan_run(run_id: str, epoch: int, compile_plan: Compile) -> None:
    """Compile pi(0) for a run that has no plan yet. Raises planner.errors.PlannerError.

    A run that was taken over keeps the bundle it started with: its bindings are of that bundle.
    """
    run = Run.objects.select_related("version", "fleet").get(pk=run_id)
    if run.bundle_id is not None:
        return
    options = PlanOptions.of(effort=run.effort, weights=run.weights or None, bundle=run.bundle_kind, limits=run.limits)
    compiled = compile_plan(run.version, fleet=run.fleet, options=options)
    with transaction.atomic():
        Run.objects.filter(pk=run_id, epoch=epoch, bundle=None).update(
            bundle=compiled.bundle, compile_s=compiled.compile_s
        )


def load_claimed(run_id: str, epoch: int) -> ClaimedRun:
    """A planned run as the engine's value. Raises ValueError when it has no bundle."""
    run = Run.objects.select_related("version", "fleet", "bundle").get(pk=run_id)
    if run.bundle is None:
        raise ValueError(f"run {run_id} has no plan")
    workflow = workflow_value(run.version)
    snapshot = RunSnapshot(
        run_id=run.pk,
        epoch=epoch,
        workflow=workflow,
        inputs=run.inputs,
        bundle=bundle_value(run.bundle, workflow),
        policies=POLICIES,
        settings=switch_settings(run.fleet, run.controller),
        accepted_at=run.accepted_at.timestamp(),
        active_variant=run.active_variant,
        last_switch_at=run.last_switch_at,
        deadline_s=run.deadline_s,
        seed=run.seed,
        nodes=node_snapshots(run_id, workflow),
    )
    return ClaimedRun(
        snapshot=snapshot,
        fleet=run.fleet.name,
        bundle_id=run.bundle.pk,
        cancel_requested=run.cancel_requested_at is not None,
    )


def switch_settings(fleet: Fleet, controller: str = "") -> SwitchSettings:
    """The fleet's switching rule; a run may choose another controller."""
    row = ControllerSettings.objects.filter(fleet=fleet).first()
    chosen = controller or (row.controller if row else ControllerSettings.Controller.THRESHOLD)
    if row is None:
        return SwitchSettings(controller=cast("Any", str(chosen)))
    return SwitchSettings(
        controller=cast("Any", str(chosen)),
        high=row.high,
        low=row.low,
        ratio=row.ratio,
        dwell_s=row.dwell_s,
        drop_absolute=row.drop_absolute,
        drop_relative=row.drop_relative,
        count_planned=row.count_planned,
    )


def node_snapshots(run_id: str, workflow: Workflow) -> Mapping[str, NodeSnapshot]:
    """The last attempt at every node that was ever dispatched."""
    rows = Invocation.objects.filter(run_id=run_id).order_by("attempt")
    return {row.node: _node(row) for row in rows if row.node in workflow.by_id}


def _node(row: Invocation) -> NodeSnapshot:
    return NodeSnapshot(
        state=NodeState(row.state),
        attempt=row.attempt,
        binding=Implementation.from_json(row.binding) if row.binding is not None else None,
        variant=row.variant,
        dispatched_at=row.dispatched_at,
        output=row.output,
        error=row.error,
    )
