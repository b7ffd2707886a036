"""The switching rule (paper 5.1; the order of the tests is ours where the text leaves it open): pure, no solver.

A decision is made once per engine step at its safe point. A refusal is a decision too: it says which variant is kept,
why, and what was wrong with every variant that was looked at.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from planner.compiler.plan import Bundle, Plan
from runtime.engine.ports import Candidate, ClassLoad, Decision, SwitchSettings

Reason = Literal[
    "congested",
    "relieved",
    "within_limits",
    "not_relieved",
    "no_candidate",
    "no_effect",
    "bundle_pending",
    "unknown_load",
    "dwell",
]
"""Stable codes of a decision: `congested` and `relieved` switch (to a later, an earlier variant), the others keep."""

CandidateReason = Literal[
    "accepted",
    "same_class",
    "unknown_load",
    "overloaded",
    "not_enough_relief",
    "quality_drop",
    "not_low",
    "no_effect",
    "dwell",
]

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """Everything that one decision reads."""

    active: int
    bundle: Bundle
    loads: Mapping[str, ClassLoad]
    settings: SwitchSettings
    now: float
    last_switch_at: float | None
    undispatched: Collection[str]

    @property
    def plan(self) -> Plan:
        return self.bundle.variants[self.active]

    def load(self, plan: Plan) -> float | None:
        return class_load(self.loads, plan.dominant_model, count_planned=self.settings.count_planned)


def decide(
    *,
    active: int,
    bundle: Bundle,
    loads: Mapping[str, ClassLoad],
    settings: SwitchSettings,
    now: float,
    last_switch_at: float | None,
    undispatched: Collection[str],
) -> Decision:
    """MATH.md's four steps. `undispatched` holds the LLM nodes whose base call is not dispatched.

    The result either names the variant to switch to, or keeps the active one with the reason.
    """
    rule = _Rule(
        active=active,
        bundle=bundle,
        loads=loads,
        settings=settings,
        now=now,
        last_switch_at=last_switch_at,
        undispatched=undispatched,
    )
    if rule.load(rule.plan) is None:
        return _keep(rule, "unknown_load", f"the load of {_name(rule.plan)} is unknown")
    choice = _choose(rule)
    return _held(rule, choice) or choice


def class_load(loads: Mapping[str, ClassLoad], model: str | None, *, count_planned: bool = True) -> float | None:
    """load(k) of MATH.md for one model class; None when it is unknown, infinity when no replica is healthy."""
    known = loads.get(model) if model is not None else None
    if known is None or known.state == "unknown":
        return None
    if known.load is None:
        return math.inf if known.state == "overloaded" else None
    if count_planned or not known.planned or known.capacity <= 0:
        return known.load
    return known.outstanding / known.capacity


def quality_dropped(active: float, candidate: float, settings: SwitchSettings) -> bool:
    """Whether the estimated quality falls by more than the tolerance, absolute or relative to the active plan's."""
    drop = active - candidate
    return drop > settings.drop_absolute + _ROUNDING or drop > settings.drop_relative * active + _ROUNDING


def changed_nodes(active: Plan, target: Plan, undispatched: Collection[str]) -> tuple[str, ...]:
    """The undispatched nodes whose implementation differs between two variants, in the plan's order."""
    return tuple(
        node
        for node, implementation in target.assignment.items()
        if node in undispatched and active.assignment.get(node) != implementation
    )


def is_quiet(decision: Decision) -> bool:
    """Whether nothing was wanted, so that there is nothing to refuse: the ledger leaves such a decision out."""
    return decision.reason == "within_limits"


def repeats(decision: Decision, previous: Decision | None) -> bool:
    """Whether a refusal says the same as the one before (variant, reason, verdicts): it is not recorded again."""
    return previous is not None and decision.to_variant is None and _signature(decision) == _signature(previous)


def _signature(decision: Decision) -> tuple[object, ...]:
    verdicts = tuple((one.variant, one.verdict, one.reason) for one in decision.candidates)
    return decision.active_variant, decision.to_variant, decision.reason, verdicts


# --- The four steps --------------------------------------------------------------------------------------------------


def _held(rule: _Rule, choice: Decision) -> Decision | None:
    """Step 1, second half: a switch less than `dwell_s` ago holds back one that would be taken now.

    Where nothing would be taken the rule keeps anyway, and then says why instead.
    """
    if choice.to_variant is None or rule.last_switch_at is None:
        return None
    since_s, dwell_s = rule.now - rule.last_switch_at, rule.settings.dwell_s
    if since_s >= dwell_s:
        return None
    why = f"the last switch was {since_s:.1f} s ago (dwell {dwell_s:g} s)"
    held = replace(choice.candidates[-1], verdict="skipped", reason="dwell", text=why)
    passes = f"{_active_load(rule)} and variant {choice.to_variant} passes, but {why}"
    return _keep(rule, "dwell", passes, (*choice.candidates[:-1], held))


def _choose(rule: _Rule) -> Decision:
    load = rule.load(rule.plan)
    congested = load is not None and load > rule.settings.high
    later = _scan_later(rule) if congested else []
    if later and later[-1].reason in ("accepted", "no_effect"):
        return _take(rule, later, "congested")
    candidates = later + _scan_earlier(rule)
    if candidates and candidates[-1].reason in ("accepted", "no_effect"):
        return _take(rule, candidates, "relieved")
    return _nothing_taken(rule, candidates, congested=congested)


def _scan_later(rule: _Rule) -> list[Candidate]:
    """Step 2: later variants in order, up to and with the first that passes."""
    verdicts: list[Candidate] = []
    for index in range(rule.active + 1, len(rule.bundle.variants)):
        reason, why = _verdict_on_later(rule, rule.bundle.variants[index])
        verdicts.append(_candidate(rule, index, reason, why))
        if reason in ("accepted", "no_effect"):
            break
    return verdicts


def _scan_earlier(rule: _Rule) -> list[Candidate]:
    """Step 3: earlier variants from the lowest index, up to and with the first that passes."""
    verdicts: list[Candidate] = []
    for index in range(rule.active):
        reason, why = _verdict_on_earlier(rule, rule.bundle.variants[index])
        verdicts.append(_candidate(rule, index, reason, why))
        if reason in ("accepted", "no_effect"):
            break
    return verdicts


def _verdict_on_later(rule: _Rule, plan: Plan) -> tuple[CandidateReason, str]:
    settings, load, congested = rule.settings, rule.load(plan), rule.load(rule.plan) or 0.0
    if plan.dominant_model == rule.plan.dominant_model:
        return "same_class", "same dominant class"
    if load is None:
        return "unknown_load", f"the load of {_name(plan)} is unknown"
    if load > settings.high:
        return "overloaded", f"{_name(plan)} is at {_number(load)} itself (above {settings.high:g})"
    if load > settings.ratio * congested:
        limit = f"{settings.ratio:g} of {_number(congested)}"
        return "not_enough_relief", f"{_name(plan)} is at {_number(load)}, above {limit}"
    return _verdict_on_quality(rule, plan)


def _verdict_on_earlier(rule: _Rule, plan: Plan) -> tuple[CandidateReason, str]:
    load = rule.load(plan)
    if load is None:
        return "unknown_load", f"the load of {_name(plan)} is unknown"
    if load >= rule.settings.low:
        return "not_low", f"{_name(plan)} is at {_number(load)}, not below {rule.settings.low:g}"
    return _verdict_on_quality(rule, plan)


def _verdict_on_quality(rule: _Rule, plan: Plan) -> tuple[CandidateReason, str]:
    before, after = rule.plan.estimated_quality, plan.estimated_quality
    if quality_dropped(before, after, rule.settings):
        tolerance = f"{rule.settings.drop_absolute:g} or {rule.settings.drop_relative:.0%}"
        return "quality_drop", f"estimated quality falls from {before:.2f} to {after:.2f} (tolerance {tolerance})"
    if not changed_nodes(rule.plan, plan, rule.undispatched):
        return "no_effect", "it changes no node that is not dispatched yet"
    return "accepted", f"{_name(plan)} is at {_number(rule.load(plan) or 0.0)}, estimated quality {after:.2f}"


# --- Words -----------------------------------------------------------------------------------------------------------


def _take(rule: _Rule, candidates: Sequence[Candidate], reason: Reason) -> Decision:
    """The last candidate passed the checks: switch, or keep because the selection has no effect (paper 6, Case B)."""
    chosen, skipped = candidates[-1], _skipped(candidates[:-1])
    because = _active_load(rule)
    if chosen.reason == "no_effect":
        selection = f"variant {chosen.variant} passes, but the selection has no effect: {chosen.text}"
        return _keep(rule, "no_effect", f"{because}; {selection}{skipped}", candidates)
    if reason == "relieved":
        because = f"{because}, and {chosen.text} (below {rule.settings.low:g})"
    target = rule.bundle.variants[chosen.variant]
    return Decision(
        at=rule.now,
        active_variant=rule.active,
        to_variant=chosen.variant,
        reason=reason,
        text=f"Switched to variant {chosen.variant} because {because}{skipped}.",
        loads=_loads_read(rule),
        thresholds=_thresholds(rule.settings),
        candidates=tuple(candidates),
        changed=changed_nodes(rule.plan, target, rule.undispatched),
        kept=tuple(node for node in target.assignment if node not in rule.undispatched),
    )


def _nothing_taken(rule: _Rule, candidates: Sequence[Candidate], *, congested: bool) -> Decision:
    """Step 4."""
    because = _active_load(rule)
    if not congested:
        reason: Reason = "not_relieved" if candidates else "within_limits"
        return _keep(rule, reason, because + _skipped(candidates), candidates)
    if not rule.bundle.complete:
        return _keep(rule, "bundle_pending", f"{because}, but the other variants are not ready yet", candidates)
    if not candidates:
        return _keep(rule, "no_candidate", f"{because}, but the bundle has no other variant")
    return _keep(rule, "no_candidate", f"{because}, but no variant passes{_skipped(candidates)}", candidates)


def _keep(rule: _Rule, reason: Reason, because: str, candidates: Sequence[Candidate] = ()) -> Decision:
    return Decision(
        at=rule.now,
        active_variant=rule.active,
        to_variant=None,
        reason=reason,
        text=f"Kept variant {rule.active}: {because}.",
        loads=_loads_read(rule),
        thresholds=_thresholds(rule.settings),
        candidates=tuple(candidates),
    )


def _candidate(rule: _Rule, index: int, reason: CandidateReason, why: str) -> Candidate:
    plan = rule.bundle.variants[index]
    return Candidate(
        variant=index,
        level=plan.level,
        dominant_model=plan.dominant_model,
        estimated_quality=plan.estimated_quality,
        verdict="accepted" if reason == "accepted" else "skipped",
        reason=reason,
        text=why,
    )


def _active_load(rule: _Rule) -> str:
    load, high = rule.load(rule.plan) or 0.0, rule.settings.high
    if math.isinf(load):
        return f"{_name(rule.plan)} has no healthy replica"
    side = "above" if load > high else "not above"
    return f"{_name(rule.plan)} is at {_number(load)} of its capacity ({side} {high:g})"


def _skipped(candidates: Sequence[Candidate]) -> str:
    return "".join(f"; variant {one.variant} skipped: {one.text}" for one in candidates)


def _loads_read(rule: _Rule) -> dict[str, ClassLoad]:
    models = dict.fromkeys(plan.dominant_model for plan in rule.bundle.variants)
    return {model: rule.loads[model] for model in models if model is not None and model in rule.loads}


def _thresholds(settings: SwitchSettings) -> dict[str, float]:
    return {
        "high": settings.high,
        "low": settings.low,
        "ratio": settings.ratio,
        "dwell_s": settings.dwell_s,
        "drop_absolute": settings.drop_absolute,
        "drop_relative": settings.drop_relative,
    }


def _name(plan: Plan) -> str:
    return plan.dominant_model or "no model class"


def _number(load: float) -> str:
    return "infinity" if math.isinf(load) else f"{load:.2f}"
