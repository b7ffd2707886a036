"""How far each weight may move before another plan is better: a bar per parameter, and what takes over at its ends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from planner.compiler.plan import Implementation, Plan
from planner.compiler.sensitivity import SPANS, End, Range
from planner.compiler.workflow import Workflow
from planner.presenters.plans import ImplementationView, implementation_view

CHANGES_SHOWN = 5
_STEPS = (1.0, 2.0, 5.0, 10.0)
_FAR = 20.0
"""A scale that reaches further than this many times the value is logarithmic."""
_WORDS = {
    "lambda_l": ("λ", "l", "Latency", "price of the makespan"),
    "effort": ("e", "", "Effort", "how much the reach of a node counts"),
    "level": ("L", "", "Level", "specialization level, times the price of demand"),
}
_PRICE = ("m", "", "Price level", "price of GPU-seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRow:
    node: str
    title: str
    before: ImplementationView
    after: ImplementationView


@dataclass(frozen=True, slots=True, kw_only=True)
class EndView:
    """One end: the plan holds `upto` there. `changes` are the first of those of the plan that takes over beyond it."""

    at: str
    place: float
    open: bool
    proved: bool
    changes: tuple[ChangeRow, ...]
    further: tuple[ChangeRow, ...]

    @property
    def takes_over(self) -> int:
        return len(self.changes) + len(self.further)


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeView:
    """A bar from 0 to `top`; places on it lie in [0, 1]. `logarithmic`: small values take more of it."""

    parameter: str
    symbol: str
    index: str
    words: str
    meaning: str
    value: str
    place: float
    low: EndView
    high: EndView
    top: str
    logarithmic: bool
    proved: bool

    @property
    def width(self) -> float:
        return self.high.place - self.low.place

    @property
    def fades(self) -> bool:
        """Whether the range goes on beyond the bar."""
        return self.high.open and self.parameter != "effort"

    @property
    def sentence(self) -> str:
        """The range in words, for those who do not see the bar."""
        proved = "" if self.proved else ", not proved"
        return f"{self.words} is {self.value}; the plan stays optimal from {self.low.at} to {self.high.at}{proved}"


def range_views(ranges: Sequence[Range], plan: Plan, workflow: Workflow, *, priced: bool) -> tuple[RangeView, ...]:
    return tuple(_view(found, plan, workflow, priced=priced) for found in ranges)


def _view(found: Range, plan: Plan, workflow: Workflow, *, priced: bool) -> RangeView:
    scale = _Scale.of(found)
    symbol, index, words, meaning = _PRICE if priced and found.parameter == "level" else _WORDS[found.parameter]
    return RangeView(
        parameter=found.parameter,
        symbol=symbol,
        index=index,
        words=words,
        meaning=meaning,
        value=_number(found.value),
        place=scale.place(found.value),
        low=_end(found.low, scale, plan, workflow),
        high=_end(found.high, scale, plan, workflow),
        top=_number(scale.top),
        logarithmic=scale.unit is not None,
        proved=found.proved,
    )


def _end(end: End, scale: _Scale, plan: Plan, workflow: Workflow) -> EndView:
    rows = tuple(_change(node, plan.assignment[node], other, workflow) for node, other in end.changes.items())
    return EndView(
        at=_number(end.at),
        place=scale.place(end.at),
        open=end.open,
        proved=end.proved,
        changes=rows[:CHANGES_SHOWN],
        further=rows[CHANGES_SHOWN:],
    )


def _change(node: str, before: Implementation, after: Implementation, workflow: Workflow) -> ChangeRow:
    return ChangeRow(
        node=node,
        title=workflow.by_id[node].title or node,
        before=implementation_view(before),
        after=implementation_view(after),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scale:
    """From 0 to `top`: linear without a `unit`, else by log(1 + x / unit)."""

    top: float
    unit: float | None

    @classmethod
    def of(cls, found: Range) -> _Scale:
        """Reaches beyond the value and every end that is not open, to a round number."""
        if found.parameter == "effort":
            return cls(top=max(1.0, found.value), unit=None)
        ends = [end.at for end in (found.low, found.high) if not end.open]
        furthest = max(found.value, *ends) if ends else found.value
        top = min(_round_up(1.25 * furthest), max(SPANS[found.parameter][1], furthest)) if furthest > 0 else 1.0
        near = min((x for x in (found.value, *ends) if x > 0), default=top)
        return cls(top=top, unit=near if top > _FAR * near else None)

    def place(self, value: float) -> float:
        share = (
            value / self.top if self.unit is None else math.log1p(value / self.unit) / math.log1p(self.top / self.unit)
        )
        return min(1.0, max(0.0, share))


def _round_up(value: float) -> float:
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in _STEPS if step * power >= value * (1 - 1e-9))


def _number(value: float) -> str:
    """Three significant digits; an end that is 0 but for rounding is 0."""
    return "0" if abs(value) < 1e-9 else f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
