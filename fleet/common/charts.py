"""Charts as values: what Plotly draws, and the table behind it. Plotly itself runs in the browser only.

Colours are written as `var(--token)`: static/js/charts.js resolves them in the page's current theme.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartTable:
    """The same figures as text; `numeric` marks columns that align right."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()

    @property
    def headings(self) -> list[tuple[str, bool]]:
        return [(name, position in self.numeric) for position, name in enumerate(self.columns)]

    @property
    def cells(self) -> list[list[tuple[str, bool]]]:
        return [[(text, position in self.numeric) for position, text in enumerate(row)] for row in self.rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """`id` is unique in its page; `traces` and `layout` are Plotly's; texts from people must have passed `label`."""

    id: str
    title: str
    traces: tuple[Json, ...]
    table: ChartTable
    layout: Json = field(default_factory=dict)
    note: str = ""
    height: int = 300

    @property
    def figure_id(self) -> str:
        return f"{self.id}-figure"

    @property
    def figure(self) -> dict[str, Any]:
        return {"data": list(self.traces), "layout": {"height": self.height, **self.layout}}


def label(text: str) -> str:
    """A text that Plotly shows literally: it reads a little HTML in every label, entities included.

    Never build a `hovertemplate` of a person's text: hand the text over as `customdata` or `text`.
    """
    return html.escape(text, quote=False)


def labels(texts: Sequence[str]) -> list[str]:
    return [label(text) for text in texts]


def token(name: str) -> str:
    """A colour token of app.css."""
    return f"var(--{name})"
