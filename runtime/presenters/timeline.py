"""A run along its time: which variant was active, the load behind it, and every node's bar (ours).

All times are seconds since the run was accepted; the page's style sheet places them, so that growing time moves
everything without touching a single bar.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from fleet.common.presentation import DASH, model_token, seconds
from fleet.models import PressureSample
from planner.compiler.plan import Implementation
from planner.compiler.workflow import LlmNode
from planner.presenters.dag import badge_text
from planner.presenters.plans import variant_name
from runtime.engine.events import EventKind, NodeState
from runtime.models import Call, Invocation, LedgerEntry, RunEvent
from runtime.presenters.run import RunContext
from runtime.presenters.words import after

SHORT_S = 0.01
"""A wait below this is not drawn."""
TOP_LOAD = 1.5
"""The strip's height stands for this load."""
MAX_POINTS = 400
_TIMES = ("node", "attempt", "stage", "role", "started_at", "finished_at", "queue_s", "prompt_tokens", "output_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """`kind`: queued, base, verify, tool; `end_s` None while it goes on; `text` is what a pointer on it reads."""

    kind: str
    begin_s: float
    end_s: float | None
    text: str
    failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRow:
    """One line of the table behind the bars."""

    attempt: int
    implementation: str
    state: str
    dispatched: str
    queued: str
    base: str
    verify: str
    total: str
    calls: int
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineRow:
    """One node with the bars of all its attempts; without any while it waits."""

    node: str
    title: str
    kind: str
    state: str
    token: str
    implementation: str
    segments: tuple[Segment, ...]
    attempts: tuple[AttemptRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantSpan:
    name: str
    model: str
    token: str
    begin_s: float
    end_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchMark:
    seq: int
    at_s: float
    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadArea:
    """An SVG path over (seconds, 1 - load / TOP_LOAD) of the class that dominated the active variant then."""

    token: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """`high_y`: where the upper threshold lies, 0 is the top; `covered_s`: the width of the areas' picture."""

    spans: tuple[VariantSpan, ...]
    marks: tuple[SwitchMark, ...]
    areas: tuple[LoadArea, ...]
    covered_s: float
    high: float

    @property
    def high_y(self) -> float:
        return 1 - min(self.high, TOP_LOAD) / TOP_LOAD


# --- Bars ------------------------------------------------------------------------------------------------------------


def timeline_rows(context: RunContext, nodes: Collection[str] | None = None) -> list[TimelineRow]:
    """Nodes (all, or those named) in topological order; two queries."""
    wanted = [node for node in context.workflow.topological_order if nodes is None or node in nodes]
    invocations = Invocation.objects.filter(run=context.run, node__in=wanted).defer("output", "arguments")
    calls = Call.objects.filter(run=context.run, node__in=wanted).order_by("stage", "role", "copy").only(*_TIMES)
    of_attempt: dict[tuple[str, int], list[Call]] = defaultdict(list)
    for call in calls:
        of_attempt[call.node, call.attempt].append(call)
    of_node: dict[str, list[tuple[Invocation, list[Call]]]] = defaultdict(list)
    for row in invocations.order_by("attempt"):
        of_node[row.node].append((row, of_attempt[row.node, row.attempt]))
    return [_row(context, node, of_node[node]) for node in wanted]


def _row(context: RunContext, node: str, attempts: Sequence[tuple[Invocation, list[Call]]]) -> TimelineRow:
    value, implementation = context.workflow.by_id[node], context.implementation(node)
    segments = [_segments(row, calls, context.origin) for row, calls in attempts]
    return TimelineRow(
        node=node,
        title=value.title or node,
        kind="llm" if isinstance(value, LlmNode) else "tool",
        state=context.nodes[node].state.value,
        token=model_token(implementation.model) if implementation else "none",
        implementation=badge_text(implementation) if implementation else "",
        segments=tuple(segment for found in segments for segment in found),
        attempts=tuple(
            _attempt(row, calls, found, context.origin) for (row, calls), found in zip(attempts, segments, strict=True)
        ),
    )


def _segments(row: Invocation, calls: Sequence[Call], origin: float) -> list[Segment]:
    begin, end = row.dispatched_at, row.finished_at
    failed = row.state == NodeState.FAILED
    if not calls:
        kind = "tool" if row.kind == "tool" else "base"
        return [_segment(kind, begin, end, origin, "tool" if kind == "tool" else "in flight", failed=failed)]
    found: list[Segment] = []
    for stage, members in groupby(calls, key=lambda call: call.stage):
        found += _stage(stage, list(members), begin, origin, failed=failed)
        begin = origin + (found[-1].end_s or 0.0)
    return found


def _stage(stage: int, calls: Sequence[Call], since: float, origin: float, *, failed: bool) -> list[Segment]:
    """A stage waits until the first of its parallel calls is served, and lasts until the last one has ended."""
    served = min(call.started_at + (call.queue_s or 0.0) for call in calls)
    ended = max(call.finished_at for call in calls)
    served = min(max(served, since), ended)
    roles = ", ".join(dict.fromkeys(call.role for call in calls)) + (f" × {len(calls)}" if len(calls) > 1 else "")
    kind = "base" if stage == 0 else "verify"
    found = [_segment("queued", since, served, origin, "queued")] if served - since > SHORT_S else []
    return [*found, _segment(kind, served, ended, origin, roles, failed=failed)]


def _segment(kind: str, begin: float, end: float | None, origin: float, what: str, *, failed: bool = False) -> Segment:
    lasted = f", {seconds(end - begin)}" if end is not None else ""
    return Segment(
        kind=kind,
        begin_s=round(max(0.0, begin - origin), 3),
        end_s=None if end is None else round(max(0.0, end - origin), 3),
        text=f"{what}{lasted}, from {after(begin, origin)}",
        failed=failed,
    )


def _attempt(row: Invocation, calls: Sequence[Call], segments: Iterable[Segment], origin: float) -> AttemptRow:
    spent: dict[str, float] = defaultdict(float)
    for segment in segments:
        if segment.end_s is not None:
            spent[segment.kind] += segment.end_s - segment.begin_s
    binding = Implementation.from_json(row.binding) if row.binding is not None else None
    return AttemptRow(
        attempt=row.attempt,
        implementation=badge_text(binding) if binding else "tool",
        state=row.state,
        dispatched=after(row.dispatched_at, origin),
        queued=seconds(spent["queued"]) if spent["queued"] else DASH,
        base=seconds(spent["base"] + spent["tool"]) if spent["base"] or spent["tool"] else DASH,
        verify=seconds(spent["verify"]) if spent["verify"] else DASH,
        total=seconds(row.finished_at - row.dispatched_at) if row.finished_at is not None else DASH,
        calls=len(calls),
        tokens=sum(call.prompt_tokens + call.output_tokens for call in calls),
    )


# --- Strip -----------------------------------------------------------------------------------------------------------


def strip(context: RunContext, switches: Sequence[LedgerEntry], now: float, high: float) -> Strip:
    """Variants over time, with the load of the dominant class of each behind it; two queries."""
    spans = _spans(context, switches)
    until = (context.run.finished_at if context.run.finished_at is not None else now) - context.origin
    return Strip(
        spans=spans,
        marks=tuple(_mark(entry, context.origin) for entry in switches),
        areas=tuple(_areas(context, spans, until)),
        covered_s=max(until, 0.001),
        high=high,
    )


def _spans(context: RunContext, switches: Sequence[LedgerEntry]) -> tuple[VariantSpan, ...]:
    planned = RunEvent.objects.filter(run=context.run, kind=EventKind.PLAN_READY).order_by("seq").first()
    if planned is None or context.bundle is None:
        return ()
    starts = [(0, planned.at), *((entry.to_variant or 0, entry.at) for entry in switches)]
    ends = [at for _, at in starts[1:]] + [context.run.finished_at]
    return tuple(_span(context, index, at, end) for (index, at), end in zip(starts, ends, strict=True))


def _span(context: RunContext, index: int, begin: float, end: float | None) -> VariantSpan:
    variants = context.bundle.variants if context.bundle else ()
    model = variants[index].dominant_model if index < len(variants) else None
    return VariantSpan(
        name=variant_name(index),
        model=model or "",
        token=model_token(model),
        begin_s=round(max(0.0, begin - context.origin), 3),
        end_s=None if end is None else round(max(0.0, end - context.origin), 3),
    )


def _mark(entry: LedgerEntry, origin: float) -> SwitchMark:
    return SwitchMark(
        seq=entry.seq,
        at_s=round(max(0.0, entry.at - origin), 3),
        name=variant_name(entry.to_variant or 0),
        text=entry.text,
    )


def _areas(context: RunContext, spans: Sequence[VariantSpan], until_s: float) -> Iterable[LoadArea]:
    models = {span.model for span in spans if span.model}
    if not models:
        return
    samples = PressureSample.objects.filter(
        fleet_id=context.run.fleet_id,
        model__in=models,
        at__gte=context.origin - 4,
        at__lte=context.origin + until_s,
        load__isnull=False,
    )
    points: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for model, at, load in samples.order_by("at").values_list("model", "at", "load"):
        points[model].append((max(0.0, at - context.origin), load or 0.0))
    for span in spans:
        path = _area(points[span.model], span.begin_s, until_s if span.end_s is None else span.end_s)
        if path:
            yield LoadArea(token=span.token, path=path)


def _area(points: Sequence[tuple[float, float]], begin_s: float, end_s: float) -> str:
    """Steps, since a sample holds until the next one."""
    before = [point for point in points if point[0] <= begin_s][-1:]
    inside = [point for point in points if begin_s < point[0] <= end_s]
    inside = inside[:: max(1, len(inside) // MAX_POINTS)]
    steps = [(begin_s, before[0][1])] if before else []
    steps += inside
    if not steps or end_s <= steps[0][0]:
        return ""
    path = [f"M{steps[0][0]:.2f} 1"]
    path += [f"V{1 - min(load, TOP_LOAD) / TOP_LOAD:.3f}H{until:.2f}" for (_, load), until in _until(steps, end_s)]
    return "".join([*path, "V1Z"])


def _until(steps: Sequence[tuple[float, float]], end_s: float) -> Iterable[tuple[tuple[float, float], float]]:
    return zip(steps, [at for at, _ in steps[1:]] + [end_s], strict=True)
