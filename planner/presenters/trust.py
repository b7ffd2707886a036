"""How far a plan can be trusted while its profiles are uncertain: what stays under redraws, and what to measure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fleet.common.presentation import percent, quality
from planner.compiler.stability import Stability
from planner.compiler.stability.redraw import Cell
from planner.compiler.stability.regret import CellValue
from planner.compiler.stability.report import NodeStability, Share
from planner.compiler.workflow import Workflow
from planner.presenters.plans import ImplementationView, implementation_view


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareView:
    """A share of the draws with its 95% interval; `value` in [0, 1] for a bar."""

    value: float
    text: str
    interval: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StayRow:
    node: str
    title: str
    planned: ImplementationView
    stays: ShareView
    other: ImplementationView | None
    other_share: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRow:
    """`anchor` is where the profiles page shows the cell; `worth` its value in thousandths of the objective."""

    name: str
    kind: str
    anchor: str
    rate: str
    interval: str
    samples: int
    to_halve: int
    worth: str
    flips: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustView:
    """`nodes`: those that change most often first. `unfinished` says what the time limit left out; mostly empty."""

    draws: int
    unchanged: ShareView
    regret: str
    relative_regret: str
    quality: str
    quality_median: str
    nodes: tuple[StayRow, ...]
    steady: int
    cells: tuple[CellRow, ...]
    cells_used: int
    advice: str
    unfinished: str


def trust_view(found: Stability, workflow: Workflow) -> TrustView:
    ordered = sorted(found.nodes, key=lambda node: node.unchanged.count)
    return TrustView(
        draws=found.draws,
        unchanged=_share(found.unchanged),
        regret=_thousandths(found.regret),
        relative_regret=f"{found.relative_regret:.2%}",
        quality=f"{quality(found.quality_p05)} to {quality(found.quality_p95)}",
        quality_median=quality(found.quality_p50),
        nodes=tuple(_stay_row(node, workflow) for node in ordered),
        steady=sum(node.unchanged.count == node.unchanged.of for node in found.nodes),
        cells=tuple(map(_cell_row, found.cells)),
        cells_used=found.cells_used,
        advice=found.advice,
        unfinished="; ".join(_unfinished(found)),
    )


def _unfinished(found: Stability) -> Sequence[str]:
    said = []
    if found.draws < found.draws_asked:
        said.append(f"the time limit left {found.draws} of {found.draws_asked} draws")
    if found.cells_settled < found.cells_used:
        said.append(f"{found.cells_settled} of {found.cells_used} cells were examined in time")
    if found.unproved:
        said.append(f"in {found.unproved} draws the optimum is only the best plan found, so regret is a lower bound")
    return said


def _stay_row(node: NodeStability, workflow: Workflow) -> StayRow:
    return StayRow(
        node=node.node,
        title=workflow.by_id[node.node].title or node.node,
        planned=implementation_view(node.planned),
        stays=_share(node.unchanged),
        other=implementation_view(node.other) if node.other else None,
        other_share=percent(node.other_share.value) if node.other else "",
    )


def _share(share: Share) -> ShareView:
    low, high = share.interval
    return ShareView(value=share.value, text=percent(share.value), interval=f"{percent(low)}–{percent(high)}")


def _cell_row(found: CellValue) -> CellRow:
    cell = found.cell
    return CellRow(
        name=cell.name,
        kind="quality" if cell.kind == "quality" else "vulnerability",
        anchor=_anchor(cell),
        rate=quality(cell.rate),
        interval=f"{cell.interval[0]:.3f}–{cell.interval[1]:.3f}",
        samples=cell.samples,
        to_halve=cell.samples_to_halve,
        worth=_thousandths(found.value),
        flips=percent(found.flips),
    )


def _anchor(cell: Cell) -> str:
    """The id of its chart on the profiles page (planner.charts)."""
    if cell.kind == "vulnerability":
        return "vulnerability"
    return "profile-thinking" if cell.thinking else "profile"


def _thousandths(value: float) -> str:
    return "0" if value == 0 else "< 0.01" if 1000 * value < 0.01 else f"{1000 * value:.2f}"
