"""Load per model class over time, as a chart with its table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fleet.common.charts import Chart, ChartTable, Json, label, token
from fleet.common.presentation import DASH, model_size, model_token
from fleet.marks import LoadMarks
from fleet.models import PressureSample

POINTS = 240
"""Points a line: a window is cut into so many slices, and a slice shows its highest load."""
TABLE_ROWS = 60
WINDOWS = ((120, "2 min"), (300, "5 min"), (900, "15 min"))
DEFAULT_WINDOW_S = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadLine:
    """One model class: (minutes from now, load) in time order; a load of None is a gap: nobody knew it."""

    model: str
    points: tuple[tuple[float, float | None], ...]

    @property
    def top(self) -> float:
        return max((load for _, load in self.points if load is not None), default=0.0)


def window_of(text: str | None) -> int:
    """The window that an address asks for; anything that is not offered is the default."""
    return next((seconds for seconds, _ in WINDOWS if str(seconds) == text), DEFAULT_WINDOW_S)


def load_lines(samples: Iterable[PressureSample], *, now: float, window_s: float) -> list[LoadLine]:
    """Lines of all classes, largest model first, thinned so that no peak is lost."""
    slice_s = window_s / POINTS
    slices: dict[str, dict[int, PressureSample]] = {}
    for sample in samples:
        kept = slices.setdefault(sample.model, {})
        position = int(sample.at // slice_s)
        if position not in kept or (sample.load or -1.0) > (kept[position].load or -1.0):
            kept[position] = sample
    lines = [
        LoadLine(model=model, points=tuple(_point(kept[position], now) for position in sorted(kept)))
        for model, kept in slices.items()
    ]
    return sorted(lines, key=lambda line: (-_billions(line.model), line.model))


def _point(sample: PressureSample, now: float) -> tuple[float, float | None]:
    return round((sample.at - now) / 60, 3), None if sample.load is None else round(sample.load, 3)


def _billions(model: str) -> float:
    size = model_size(model).removesuffix("B")
    return float(size) if size.replace(".", "", 1).isdigit() else 0.0


def load_chart(
    lines: Sequence[LoadLine],
    marks: LoadMarks,
    *,
    window_s: float,
    id: str = "load",
    title: str = "Load per model class",
    note: str = "outstanding and planned work over capacity",
    markers: Sequence[Json] = (),
    height: int = 260,
) -> Chart:
    """`markers` are further traces, drawn over the lines."""
    top = max([1.0, marks.high * 1.15, *(line.top * 1.08 for line in lines)])
    return Chart(
        id=id,
        title=title,
        note=note,
        traces=(*(_trace(line) for line in lines), *markers),
        layout={
            "xaxis": {"title": "minutes from now", "range": [-window_s / 60, 0], "zeroline": False},
            "yaxis": {"title": "load", "range": [0, top], "tickformat": ".1f", "zeroline": False},
            "shapes": [_threshold(marks.high, "warn"), _threshold(marks.low, "muted")],
            "annotations": [_threshold_name("high", marks.high, "warn"), _threshold_name("low", marks.low, "muted")],
            "hovermode": "x unified",
            "margin": {"l": 8, "r": 62, "t": 10, "b": 8},
        },
        table=_table(lines),
        height=height,
    )


def _trace(line: LoadLine) -> Json:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": label(model_size(line.model)),
        "x": [at for at, _ in line.points],
        "y": [load for _, load in line.points],
        "line": {"color": token(f"model-{model_token(line.model)}"), "width": 2},
        "connectgaps": False,
        "customdata": [label(line.model)] * len(line.points),
        "hovertemplate": "%{customdata} %{y:.2f}<extra></extra>",
    }


def _threshold(value: float, colour: str) -> Json:
    return {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": value,
        "y1": value,
        "line": {"color": token(colour), "width": 1, "dash": "dash"},
        "layer": "below",
    }


def _threshold_name(name: str, value: float, colour: str) -> Json:
    return {
        "xref": "paper",
        "x": 1,
        "xanchor": "left",
        "y": value,
        "yanchor": "middle",
        "text": f"{name} {value:g}",
        "showarrow": False,
        "font": {"size": 10.5, "color": token(colour)},
    }


def _table(lines: Sequence[LoadLine]) -> ChartTable:
    """The newest slices, newest first, one column a class."""
    by_time: dict[float, dict[str, float | None]] = {}
    for line in lines:
        for at, load in line.points:
            by_time.setdefault(round(at, 1), {})[line.model] = load
    newest = sorted(by_time, reverse=True)[:TABLE_ROWS]
    models = [line.model for line in lines]
    return ChartTable(
        columns=("Minutes from now", *models),
        rows=tuple((f"{at:.1f}", *(_load(by_time[at].get(model)) for model in models)) for at in newest),
        numeric=frozenset(range(len(models) + 1)),
    )


def _load(value: Any) -> str:
    return DASH if value is None else f"{value:.2f}"
