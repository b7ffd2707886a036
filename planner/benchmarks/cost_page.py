"""How the cost of a compile grows, as a page of the documentation: table and plot from one `bench compile` report."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

PLOT = "compile-cost.svg"
WIDTH, HEIGHT = 860, 420
Row = Mapping[str, Any]


def write_page(report: Mapping[str, Any], page: Path) -> None:
    """Writes `page` and `images/compile-cost.svg` beside it. Raises RuntimeError without the development packages."""
    images = page.parent / "images"
    images.mkdir(parents=True, exist_ok=True)
    (images / PLOT).write_text(_svg(figure(report["by_size"])), encoding="utf-8")
    page.write_text("\n".join(_lines(report)) + "\n", encoding="utf-8")


def figure(rows: Sequence[Row]) -> go.Figure:
    """Median and 95th percentile over the nodes, both axes logarithmic."""
    by_nodes = [row for row in rows if row["width"] is None and row["implementations"] == 24]
    found = go.Figure(layout={"template": "plotly_white", "width": WIDTH, "height": HEIGHT, "margin": {"t": 30}})
    for quantile, dash in (("p50", "solid"), ("p95", "dot")):
        found.add_scatter(
            x=[row["nodes"] for row in by_nodes],
            y=[row["initial_ms"][quantile] for row in by_nodes],
            name=quantile,
            mode="lines+markers",
            line={"dash": dash, "color": "#3b6fb6"},
        )
    sizes = [row["nodes"] for row in by_nodes]
    found.update_xaxes(type="log", title="nodes (24 implementations each)", tickvals=sizes)
    found.update_yaxes(type="log", title="ms from workflow to plan", tickvals=[1, 10, 100, 1000])
    return found


def _svg(drawn: go.Figure) -> str:
    try:
        from playwright.sync_api import sync_playwright  # a development package: it draws what plotly describes
    except ImportError as error:
        raise RuntimeError("the plot needs the development packages: make install-dev") from error
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page()
        page.set_content(drawn.to_html(include_plotlyjs=True, full_html=True, div_id="plot"))
        size = json.dumps({"format": "svg", "width": WIDTH, "height": HEIGHT})
        image: str = page.evaluate(f"Plotly.toImage('plot', {size}).then(url => decodeURIComponent(url.split(',')[1]))")
        browser.close()
    return image


def _lines(report: Mapping[str, Any]) -> Iterator[str]:
    yield "# What a compile costs"
    yield ""
    yield f"Written by `manage.py bench compile --page docs/compile-cost.md` ({report['machine']})."
    yield "Profiles are illustrative and the fleet is emulated; the times are those of the planner itself."
    yield ""
    yield f"## {report['instances']} workflows of at most 11 nodes, 24 implementations a node"
    yield ""
    yield "| ms | p50 | p95 | max |"
    yield "|---|---|---|---|"
    for name, title in SMALL.items():
        yield f"| {title} | " + " | ".join(f"{report[name][q]:.2f}" for q in ("p50", "p95", "max")) + " |"
    yield ""
    yield (
        f"CBC over own at p95: {report['speedup_p95']:.1f} for the initial compile, "
        f"{report['variant_speedup_p95']:.1f} for a further level. {report['mismatches']} objectives differ from "
        f"CBC's or HiGHS's by more than 1e-6; {report['unproved']} plans are not proved optimal."
    )
    yield ""
    yield "## How it grows"
    yield ""
    yield f"![ms over nodes](images/{PLOT})"
    yield ""
    yield "From the workflow to the plan, with nothing known before; every solve may take 2 s. Shapes in turn (chain,"
    yield "fork-join, layered, irregular) unless a width is given. A gap is proven."
    yield ""
    yield "| nodes | implementations | width | p50 ms | p95 ms | max ms | largest gap | not proved optimal |"
    yield "|---|---|---|---|---|---|---|---|"
    for row in report["by_size"]:
        times = " | ".join(f"{row['initial_ms'][q]:.1f}" for q in ("p50", "p95", "max"))
        size = f"{row['nodes']} | {row['implementations']} | {row['width'] or '-'}"
        yield f"| {size} | {times} | {row['gap']['max']:.2%} | {row['unproved']} of {row['instances']} |"


SMALL = {
    "initial_ms": "initial compile",
    "warm_ms": "initial, kinds of nodes known from other requests",
    "cold_ms": "initial, first of a process",
    "variant_ms": "one further level",
    "cbc_ms": "initial with CBC",
    "cbc_variant_ms": "one further level with CBC",
    "highs_ms": "initial with HiGHS",
    "highs_variant_ms": "one further level with HiGHS",
    "event_loop_stall_ms": "an event loop beside a compile in a thread: longest delay of a timer",
}
