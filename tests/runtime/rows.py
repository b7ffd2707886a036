"""Rows that the runtime's tests start from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from django.contrib.auth.models import User
from django.utils import timezone

from fleet.models import Fleet
from fleet.services import seed_demo_fleet
from planner.compiler.bundle import to_positions
from planner.compiler.plan import Bundle, Plan
from planner.compiler.weights import Weights
from planner.compiler.workflow import Workflow
from planner.importers.native import content_digest, dump_native
from planner.models import PlanBundle, PlanVariant, WorkflowVersion
from planner.services import ensure_profiles
from runtime.engine.events import EventKind
from runtime.engine.ports import RunSnapshot
from runtime.models import LedgerEntry, Run, RunEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    owner: User
    fleet: Fleet


def make_world() -> World:
    ensure_profiles()
    return World(owner=User.objects.create_user("ann"), fleet=seed_demo_fleet(18100, 100.0))


def user(name: str = "ann") -> User:
    return User.objects.get_or_create(username=name)[0]


def fleet(name: str = "test") -> Fleet:
    return Fleet.objects.get_or_create(name=name)[0]


def version(workflow: Workflow, owner: User | None = None) -> WorkflowVersion:
    owner = owner or user()
    return WorkflowVersion.objects.get_or_create(
        owner=owner,
        workflow=None,
        digest=content_digest(workflow),
        defaults={
            "document": dump_native(workflow),
            "source_format": "native",
            "node_count": len(workflow.nodes),
        },
    )[0]


def plan_bundle(bundle: Bundle, workflow: Workflow, key: str) -> PlanBundle:
    state = PlanBundle.State.READY if bundle.complete else PlanBundle.State.PREPARING
    row = PlanBundle.objects.create(
        key=key,
        fleet=fleet(),
        state=state,
        levels=[plan.level for plan in bundle.variants],
        weights=asdict(Weights()),
        effort=0.5,
        versions={},
        request={},
        ready_at=timezone.now() if bundle.complete else None,
    )
    for index, plan in enumerate(bundle.variants):
        PlanVariant.objects.create(
            bundle=row,
            index=index,
            level=plan.level,
            dominant_model=plan.dominant_model or "",
            estimated_quality=plan.estimated_quality,
            makespan_s=plan.makespan_s,
            cost=plan.cost,
            objective=plan.objective,
            solver=plan.solver,
            solve_s=plan.solve_s,
            gap=plan.gap,
            digest=plan.digest,
            plan=to_positions(_timed(plan, workflow), workflow).to_json(),
        )
    return row


def _timed(plan: Plan, workflow: Workflow) -> Plan:
    """Stored plans have a duration for every node; the samples give only those that matter to them."""
    return replace(plan, durations_s={node.id: plan.durations_s.get(node.id, 1.0) for node in workflow.nodes})


def accept(snapshot: RunSnapshot, *, planned: bool = True) -> Run:
    """An accepted run as `submit_run` leaves it, with the snapshot's bundle unless it is to be planned yet."""
    run = Run.objects.create(
        owner=user(),
        fleet=fleet(),
        version=version(snapshot.workflow),
        inputs=dict(snapshot.inputs),
        deadline_s=snapshot.deadline_s,
        seed=snapshot.seed,
        nodes_total=len(snapshot.workflow.nodes),
        last_seq=1,
    )
    if planned:
        run.bundle = plan_bundle(snapshot.bundle, snapshot.workflow, f"key of {run.pk}")
        run.save()
    RunEvent.objects.create(
        run=run, seq=1, kind=EventKind.RUN_ACCEPTED, at=run.accepted_at.timestamp(), data={"workflow": "sample"}
    )
    return run


def events(run_id: str) -> list[tuple[int, str, dict[str, Any]]]:
    return list(RunEvent.objects.filter(run_id=run_id).order_by("seq").values_list("seq", "kind", "data"))


def kinds(run_id: str) -> list[str]:
    return [kind for _, kind, _ in events(run_id)]


def ledger(run_id: str) -> Sequence[tuple[int, int | None, str]]:
    return list(LedgerEntry.objects.filter(run_id=run_id).order_by("seq").values_list("seq", "to_variant", "reason"))
