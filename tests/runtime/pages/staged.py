"""A run that goes as a test says, written the way a worker writes: claims, commits, ends. Needs no fleet that serves.

The workflow is the paper's walk-through: P -> C, D -> R (a tool) -> A, with pi(0) on 27B and pi(1) on 9B.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

from django.contrib.auth.models import User
from django.utils import timezone

from fleet.models import Fleet
from planner.compiler.bundle import to_positions
from planner.compiler.plan import Bundle, Implementation
from planner.compiler.workflow import InputSpec, LlmNode, Workflow
from planner.importers.native import content_digest, dump_native
from planner.models import PlanBundle, PlanVariant, WorkflowVersion
from planner.models import Workflow as WorkflowRow
from runtime import leases
from runtime.engine.events import EventKind, RunState
from runtime.engine.ports import CallRecord, Candidate, ClassLoad, Commit, Decision, Intent, Outcome, RunEnd
from runtime.models import Run, RunEvent
from runtime.store import Journal, write_batch
from tests.runtime.engine.samples import BIG, SMALL, bundle, walkthrough, walkthrough_bundle

HIGH = 0.85
THRESHOLDS = {
    "high": HIGH,
    "low": 0.5,
    "ratio": 0.7,
    "dwell_s": 5.0,
    "drop_absolute": 0.15,
    "drop_relative": 0.25,
}


def flow(name: str = "Walk-through", **titles: str) -> Workflow:
    """The walk-through with inputs that have defaults; titles by node."""
    base = walkthrough()
    nodes = tuple(replace(node, title=titles.get(node.id, "")) for node in base.nodes)
    topic = InputSpec(name="topic", required=False, default="bridges", description="What it is about.")
    count = InputSpec(name="count", type="integer", required=False, default=2)
    return replace(base, name=name, nodes=nodes, inputs=(topic, count), deadline_s=60.0)


def chain_flow(count: int) -> Workflow:
    """`count` LLM nodes in layers of ten: each reads one of the layer before."""
    ids = [f"n{index}" for index in range(count)]
    nodes = tuple(LlmNode(id=node, skill="reasoning", prompt="Do it.") for node in ids)
    edges = tuple((ids[index - 10], ids[index]) for index in range(10, count))
    return Workflow(name=f"{count} nodes", nodes=nodes, edges=edges, output=ids[-1])


def stored(owner: User, value: Workflow) -> WorkflowVersion:
    row, _ = WorkflowRow.objects.get_or_create(
        owner=owner, slug=content_digest(value)[:20], defaults={"name": value.name}
    )
    return WorkflowVersion.objects.get_or_create(
        workflow=row,
        number=1,
        defaults={
            "owner": owner,
            "document": dump_native(value),
            "digest": content_digest(value),
            "source_format": "native",
            "node_count": len(value.nodes),
        },
    )[0]


def plans(fleet: Fleet, value: Workflow, given: Bundle) -> PlanBundle:
    """The bundle's row, shared by all runs of the workflow."""
    key = content_digest(value)
    found = PlanBundle.objects.filter(key=key).first()
    if found is not None:
        return found
    row = PlanBundle.objects.create(
        key=key,
        fleet=fleet,
        state=PlanBundle.State.READY,
        levels=[plan.level for plan in given.variants],
        weights={},
        effort=0.5,
        versions={},
        request={},
        ready_at=timezone.now(),
    )
    for index, plan in enumerate(given.variants):
        whole = replace(plan, durations_s={node.id: 1.0 for node in value.nodes})
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
            plan=to_positions(whole, value).to_json(),
        )
    return row


@dataclass(slots=True, kw_only=True)
class StagedRun:
    """One run of a stored workflow. Every method is one commit, a little later than the one before."""

    run_id: str
    value: Workflow
    given: Bundle
    epoch: int = 0
    at: float = 0.0

    @classmethod
    def accept(
        cls, owner: User, fleet: Fleet, value: Workflow | None = None, given: Bundle | None = None, **fields: Any
    ) -> StagedRun:
        """As `submit_run` leaves it: accepted, with one event, and nobody's yet."""
        value, given = value or flow(), given or walkthrough_bundle()
        version = stored(owner, value)
        run = Run.objects.create(
            **{
                "owner": owner,
                "fleet": fleet,
                "version": version,
                "inputs": {"topic": "bridges"},
                "deadline_s": value.deadline_s,
                "nodes_total": len(value.nodes),
                "last_seq": 1,
                **fields,
            }
        )
        data = {"workflow": value.name, "version": 1, "deadline_s": run.deadline_s, "effort": 0.5, "controller": ""}
        at = run.accepted_at.timestamp()
        RunEvent.objects.create(run=run, seq=1, kind=EventKind.RUN_ACCEPTED, at=at, data=data)
        return cls(run_id=run.pk, value=value, given=given, at=at)

    @property
    def row(self) -> Run:
        return Run.objects.get(pk=self.run_id)

    def start(self) -> StagedRun:
        """Claimed and planned, with the whole bundle."""
        run = self.row
        Run.objects.filter(pk=run.pk).update(bundle=plans(run.fleet, self.value, self.given))
        epoch = leases.claim(run.pk, worker="host:1:test", lease_s=600)
        assert epoch is not None
        self.epoch = epoch
        self._tick()
        self._write(bundle=self.given)
        return self

    def dispatch(self, *nodes: str) -> StagedRun:
        self._tick()
        self._write(intents=tuple(self._intent(node) for node in nodes))
        return self

    def finish(self, node: str, output: Any = "made", *, verify: bool = False, text: str = "made") -> StagedRun:
        """The node's base call, with a verdict after it where asked for, and its output."""
        began, now = self.row.invocations.get(node=node).dispatched_at, self._tick()
        calls = () if node == "R" else self._calls(node, text, began, verify=verify)
        outcome = Outcome(node=node, attempt=1, started_at=began, finished_at=now, output=output, calls=calls)
        self._write(outcomes=(outcome,))
        return self

    def fail(self, node: str, message: str = "no answer") -> StagedRun:
        error = {"node": node, "code": "timeout", "message": message, "tries": 3}
        now = self._tick()
        outcome = Outcome(node=node, attempt=1, started_at=now, finished_at=now, error=error)
        self._write(outcomes=(outcome,), end=RunEnd(state=RunState.FAILED, at=now, error=error))
        return self

    def switch(self, to: int | None = 1, text: str = "") -> StagedRun:
        """A switch, or with None a refusal."""
        self._tick()
        active = self.row.active_variant
        waiting = [node.id for node in self.value.llm_nodes if node.id not in self._dispatched()]
        target = self.given.variants[to if to is not None else 1]
        said = text or (
            f"Switched to variant {to} because {BIG} is at 1.10 of its capacity (above 0.85)."
            if to is not None
            else f"Kept variant {active}: {BIG} is at 1.10 of its capacity (above 0.85), but no variant passes."
        )
        self._write(
            decisions=(
                Decision(
                    at=self.at,
                    active_variant=active,
                    to_variant=to,
                    reason="congested" if to is not None else "no_candidate",
                    text=said,
                    loads={
                        BIG: ClassLoad(model=BIG, load=1.1, state="ok", outstanding=35, capacity=32, age_s=1.25),
                        SMALL: ClassLoad(model=SMALL, load=None, state="unknown"),
                    },
                    thresholds=THRESHOLDS,
                    candidates=(
                        Candidate(
                            variant=1,
                            level=target.level,
                            dominant_model=target.dominant_model,
                            estimated_quality=target.estimated_quality,
                            verdict="accepted" if to is not None else "skipped",
                            reason="accepted" if to is not None else "unknown_load",
                            text=f"{SMALL} is at 0.20" if to is not None else f"the load of {SMALL} is unknown",
                        ),
                    ),
                    changed=tuple(node for node in waiting if self._differs(node, active, to)),
                    kept=tuple(self._dispatched()) if to is not None else (),
                ),
            )
        )
        return self

    def succeed(self, output: Any = "the answer") -> StagedRun:
        self._tick()
        self._write(end=RunEnd(state=RunState.SUCCEEDED, at=self.at, output=output))
        return self

    def complete(self, output: Any = "the answer") -> StagedRun:
        """Everything that is missing, to the end."""
        for node in self.value.topological_order:
            if node not in self._dispatched(tools=True):
                self.dispatch(node)
            if self.row.invocations.filter(node=node, state="dispatched").exists():
                self.finish(node)
        return self.succeed(output)

    # --- Inside ---

    def _tick(self) -> float:
        """Half a second later, or now where that is not too far."""
        self.at = max(self.at + 0.5, min(time.time(), self.at + 2.5))
        return self.at

    def _write(self, **parts: Any) -> None:
        commit = Commit(run_id=self.run_id, epoch=self.epoch, at=self.at, **parts)
        for answer in write_batch((commit,), Journal()):
            if isinstance(answer, Exception):
                raise answer

    def _intent(self, node: str) -> Intent:
        variant = self.row.active_variant
        binding: Implementation | None = self.given.variants[variant].assignment.get(node)
        if binding is None:
            return Intent(node=node, attempt=1, kind="tool", at=self.at, arguments={"template": "x"})
        return Intent(node=node, attempt=1, kind="llm", at=self.at, binding=binding, variant=variant, predicted_s=2.5)

    def _calls(self, node: str, text: str, began: float, *, verify: bool) -> tuple[CallRecord, ...]:
        binding = Implementation.from_json(self.row.invocations.get(node=node).binding or {})
        base = CallRecord(
            stage=0,
            role="generate",
            copy=0,
            model=binding.model,
            backend=binding.backend,
            replica="27b-0",
            request_id=f"{self.run_id}-{node}-1-0",
            messages=({"role": "user", "content": f"Prompt of {node}: {text}"},),
            text=text,
            reasoning="",
            prompt_tokens=120,
            output_tokens=30,
            finish_reason="stop",
            started_at=began,
            finished_at=began + 0.3,
            queue_s=0.1,
            ttft_s=0.12,
        )
        verdict = replace(
            base,
            stage=1,
            role="verdict",
            text="reject",
            verdict="reject",
            started_at=began + 0.35,
            finished_at=began + 0.5,
            request_id=f"{self.run_id}-{node}-1-1",
        )
        return (base, verdict) if verify else (base,)

    def _dispatched(self, *, tools: bool = False) -> list[str]:
        rows = self.row.invocations.all() if tools else self.row.invocations.filter(kind="llm")
        return list(rows.values_list("node", flat=True))

    def _differs(self, node: str, active: int, to: int | None) -> bool:
        if to is None:
            return False
        return self.given.variants[active].assignment[node] != self.given.variants[to].assignment[node]


__all__ = ["BIG", "SMALL", "StagedRun", "bundle", "chain_flow", "flow", "stored"]
