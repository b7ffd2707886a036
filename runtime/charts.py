"""The overview's charts: load with switch markers, and arrivals with what became of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fleet.charts import LoadLine, load_chart
from fleet.common.charts import Chart, ChartTable, Json, label, token
from fleet.marks import LoadMarks

SLICES = 60
HEIGHT = 320
RIGHT = 62
"""Room for the thresholds' names; both charts keep it, so that their times stand below each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchMoment:
    at: float
    text: str


def overview_load_chart(
    lines: Sequence[LoadLine], switches: Sequence[SwitchMoment], marks: LoadMarks, *, now: float, window_s: float
) -> Chart:
    """Load per class with a marker wherever runs switched their plans; a larger marker stands for more of them."""
    top = max([1.0, marks.high * 1.15, *(line.top * 1.08 for line in lines)])
    markers = [_switch_markers(switches, now=now, window_s=window_s, height=top * 0.96)] if switches else []
    return load_chart(lines, marks, window_s=window_s, markers=markers, height=HEIGHT)


def _switch_markers(switches: Sequence[SwitchMoment], *, now: float, window_s: float, height: float) -> Json:
    slice_s = window_s / SLICES
    groups: dict[int, list[SwitchMoment]] = {}
    for switch in switches:
        groups.setdefault(int(switch.at // slice_s), []).append(switch)
    moments = [groups[position] for position in sorted(groups)]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "switches",
        "x": [round((group[0].at - now) / 60, 3) for group in moments],
        "y": [height] * len(moments),
        "marker": {
            "symbol": "triangle-down",
            "size": [min(16, 8 + len(group)) for group in moments],
            "color": token("accent"),
        },
        "customdata": [_said(group) for group in moments],
        "hovertemplate": "%{customdata}<extra></extra>",
    }


def _said(group: Sequence[SwitchMoment]) -> str:
    first = label(group[0].text[:160])
    return first if len(group) == 1 else f"{len(group)} switches; the first: {first}"


def arrivals_chart(accepted: Iterable[float], ended: Iterable[float], *, now: float, window_s: float) -> Chart:
    """Runs accepted and runs ended per slice of the window; both in epoch seconds."""
    slice_s = window_s / SLICES
    came, went = (_per_slice(times, now=now, slice_s=slice_s) for times in (accepted, ended))
    middles = [round((slice_s * (position + 0.5) - window_s) / 60, 3) for position in range(SLICES)]
    busy = [position for position in reversed(range(SLICES)) if came[position] or went[position]]
    return Chart(
        id="arrivals",
        title="Arrivals and completions",
        note=f"runs per {slice_s:g} s",
        traces=(
            _bars("accepted", middles, [came[position] for position in range(SLICES)], "busy"),
            _bars("ended", middles, [went[position] for position in range(SLICES)], "good-mark"),
        ),
        layout={
            "barmode": "group",
            "bargap": 0.2,
            "xaxis": {"title": "minutes from now", "range": [-window_s / 60, 0], "zeroline": False},
            "yaxis": {"title": "runs", "rangemode": "tozero", "tickformat": "d"},
            "hovermode": "x unified",
            "margin": {"l": 8, "r": RIGHT, "t": 10, "b": 8},
        },
        table=ChartTable(
            columns=("Minutes from now", "Accepted", "Ended"),
            rows=tuple((f"{middles[at]:.1f}", str(came[at]), str(went[at])) for at in busy),
            numeric=frozenset({0, 1, 2}),
        ),
        height=HEIGHT,
    )


def _per_slice(times: Iterable[float], *, now: float, slice_s: float) -> Counter[int]:
    positions = (SLICES - 1 - int((now - at) // slice_s) for at in times)
    return Counter(position for position in positions if 0 <= position < SLICES)


def _bars(name: str, x: Sequence[float], y: Sequence[int], colour: str) -> Json:
    return {
        "type": "bar",
        "name": name,
        "x": list(x),
        "y": list(y),
        "marker": {"color": token(colour)},
        "hovertemplate": f"%{{y}} {name}<extra></extra>",
    }
