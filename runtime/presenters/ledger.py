"""Switches and refusals: the list on a run's page, and one decision with everything that it read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fleet.common.presentation import DASH, model_token, percent, quality, seconds
from planner.presenters.plans import ImplementationView, implementation_view, variant_name
from runtime.models import Invocation, LedgerEntry
from runtime.presenters.run import RunContext
from runtime.presenters.words import CANDIDATE_REASONS, after, moment, reason_words

SCALE = 1.5
"""The right end of a load bar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """`title` is `π(0) → π(1)` of a switch and `kept π(0)` of a refusal."""

    seq: int
    switched: bool
    title: str
    at: str
    reason: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRow:
    """One class as the rule read it; bar values are fractions of SCALE."""

    model: str
    token: str
    load: str
    value: float
    state: str
    outstanding: str
    planned: str
    capacity: str
    age: str
    verdict: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateRow:
    name: str
    level: str
    model: str
    quality: str
    drop: str
    accepted: bool
    reason: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedNode:
    node: str
    title: str
    before: ImplementationView | None
    after: ImplementationView | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptNode:
    """`why`: its output was committed already, or its call was already on its way."""

    node: str
    title: str
    implementation: ImplementationView | None
    state: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionView:
    """`unchanged` counts undispatched nodes that both variants treat alike."""

    seq: int
    switched: bool
    title: str
    sentence: str
    trigger: str
    at: str
    moment: datetime | None
    loads: tuple[LoadRow, ...]
    high: str
    low: str
    high_at: float
    low_at: float
    rule: tuple[tuple[str, str], ...]
    candidates: tuple[CandidateRow, ...]
    quality: str
    changed: tuple[ChangedNode, ...]
    kept: tuple[KeptNode, ...]
    unchanged: int


def ledger_rows(entries: Iterable[LedgerEntry], origin: float) -> list[LedgerRow]:
    return [
        LedgerRow(
            seq=entry.seq,
            switched=entry.to_variant is not None,
            title=_title(entry),
            at=after(entry.at, origin),
            reason=reason_words(entry.reason),
            text=entry.text,
        )
        for entry in entries
    ]


def _title(entry: LedgerEntry) -> str:
    active = variant_name(entry.active_variant)
    return f"kept {active}" if entry.to_variant is None else f"{active} → {variant_name(entry.to_variant)}"


def decision_view(context: RunContext, entry: LedgerEntry) -> DecisionView:
    """One query: when the kept nodes were dispatched and committed."""
    high, low = entry.thresholds.get("high", 0.0), entry.thresholds.get("low", 0.0)
    changed = _changed(context, entry)
    kept = _kept(context, entry)
    waiting = len(context.workflow.llm_nodes) - len(kept) - len(changed)
    return DecisionView(
        seq=entry.seq,
        switched=entry.to_variant is not None,
        title=_title(entry),
        sentence=entry.text,
        trigger=reason_words(entry.reason),
        at=after(entry.at, context.origin),
        moment=moment(entry.at),
        loads=tuple(_load(model, load, high, low) for model, load in entry.loads.items()),
        high=f"{high:g}",
        low=f"{low:g}",
        high_at=min(1.0, high / SCALE),
        low_at=min(1.0, low / SCALE),
        rule=_rule(entry.thresholds),
        candidates=tuple(_candidate(context, entry, candidate) for candidate in entry.candidates),
        quality=_quality(context, entry),
        changed=changed,
        kept=kept,
        unchanged=waiting if entry.to_variant is not None else 0,
    )


def _load(model: str, data: Mapping[str, Any], high: float, low: float) -> LoadRow:
    overloaded = data.get("state") == "overloaded"
    load = math.inf if overloaded else data.get("load")
    verdict = "unknown" if load is None else "high" if load > high else "low" if load < low else "between"
    words = {"unknown": "unknown", "high": "above high", "low": "below low", "between": "between low and high"}
    return LoadRow(
        model=model,
        token=model_token(model),
        load=DASH if load is None else "no healthy replica" if overloaded else f"{load:.2f}",
        value=0.0 if load is None else min(1.0, load / SCALE),
        state=str(data.get("state", "unknown")),
        outstanding=f"{data.get('outstanding') or 0:g}",
        planned=f"{data.get('planned') or 0:g}",
        capacity=f"{data.get('capacity') or 0:g}",
        age=seconds(data.get("age_s")),
        verdict=words[verdict],
    )


def _rule(thresholds: Mapping[str, float]) -> tuple[tuple[str, str], ...]:
    known = thresholds.get
    return (
        ("High", f"above {known('high', 0):g}: congested"),
        ("Low", f"below {known('low', 0):g}: free enough to go back"),
        ("Relief", f"at most {known('ratio', 0):g} of the congested load"),
        ("Quality", f"drop of at most {known('drop_absolute', 0):g} or {percent(known('drop_relative', 0))}"),
        ("Dwell", f"{seconds(known('dwell_s', 0))} between switches"),
    )


def _candidate(context: RunContext, entry: LedgerEntry, data: Mapping[str, Any]) -> CandidateRow:
    estimate = float(data["estimated_quality"])
    return CandidateRow(
        name=variant_name(int(data["variant"])),
        level=f"{data['level']:g}",
        model=data.get("dominant_model") or "",
        quality=quality(estimate),
        drop=_change(context, entry, estimate),
        accepted=data["verdict"] == "accepted",
        reason=CANDIDATE_REASONS.get(data["reason"], str(data["reason"]).replace("_", " ")),
        text=str(data["text"]),
    )


def _change(context: RunContext, entry: LedgerEntry, estimate: float) -> str:
    before = _estimate(context, entry.active_variant)
    if before is None:
        return ""
    change = estimate - before
    return f"{'+' if change > 0 else '−' if change < 0 else '±'}{quality(abs(change))}"


def _quality(context: RunContext, entry: LedgerEntry) -> str:
    if entry.to_variant is None:
        return ""
    before, now = _estimate(context, entry.active_variant), _estimate(context, entry.to_variant)
    if before is None or now is None:
        return ""
    return f"{quality(before)} → {quality(now)} ({_change(context, entry, now)})"


def _estimate(context: RunContext, variant: int) -> float | None:
    variants = context.bundle.variants if context.bundle else ()
    return variants[variant].estimated_quality if variant < len(variants) else None


def _changed(context: RunContext, entry: LedgerEntry) -> tuple[ChangedNode, ...]:
    return tuple(
        ChangedNode(
            node=node,
            title=_node_title(context, node),
            before=_implementation(context, entry.active_variant, node),
            after=_implementation(context, entry.to_variant, node),
        )
        for node in entry.changed
    )


def _kept(context: RunContext, entry: LedgerEntry) -> tuple[KeptNode, ...]:
    rows = Invocation.objects.filter(run=context.run, node__in=entry.kept, dispatched_at__lte=entry.at)
    found = {row.node: row for row in rows.defer("output", "arguments").order_by("attempt")}
    return tuple(_kept_node(context, node, found.get(node), entry.at) for node in entry.kept)


def _kept_node(context: RunContext, node: str, row: Invocation | None, at: float) -> KeptNode:
    committed = row is not None and row.finished_at is not None and row.finished_at <= at
    binding = context.implementation(node)
    return KeptNode(
        node=node,
        title=_node_title(context, node),
        implementation=implementation_view(binding) if binding else None,
        state="committed" if committed else "dispatched",
        why="already committed" if committed else "already dispatched: a binding never changes",
    )


def _node_title(context: RunContext, node: str) -> str:
    value = context.workflow.by_id.get(node)
    return (value.title or node) if value else node


def _implementation(context: RunContext, variant: int | None, node: str) -> ImplementationView | None:
    variants = context.bundle.variants if context.bundle else ()
    if variant is None or variant >= len(variants):
        return None
    found = variants[variant].assignment.get(node)
    return implementation_view(found) if found else None
