"""Profile cells as beliefs, and a problem's coefficients under other rates of these cells (ours; profiles: paper 4.1).

A cell is what a campaign measures at once: the quality of one pair (skill, model, policy), or how often a fault at one
kind of place (role, skill, fan-in) turns the result wrong. Nodes of one skill share a pair's cell, and so one draw.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from math import exp, isclose, log, sqrt
from random import Random
from statistics import NormalDist
from typing import Any, Literal

from planner.compiler.coefficients import Coefficients, NodeCoefficients
from planner.compiler.menu import Column, Menu
from planner.compiler.profile import PairProfile
from planner.compiler.vulnerability import VulnerabilityCell, VulnerabilityTable, vulnerability, wilson_interval
from planner.compiler.workflow import LlmNode

Z95 = 1.96
CONSISTENT = 0.25
"""An interval whose ends are this close to Wilson's, in widths of it, counts as that of a plain rate."""
GRID = 200
MICRO = 1_000_000
"""Counts are multiplied by this before a redrawn rate is rounded to one; look-ups do not depend on the scale."""
STANDARD = NormalDist()


# --- Beliefs ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Beta:
    """The posterior of a rate after counts, from a uniform prior (other priors' densities are infinite at 0 and 1)."""

    successes: float
    failures: float

    def draw(self, rng: Random) -> float:
        return rng.betavariate(self.successes + 1, self.failures + 1)

    def points(self, count: int) -> tuple[float, ...]:
        return _beta_points(self.successes + 1, self.failures + 1, count)


@dataclass(frozen=True, slots=True)
class SplitNormal:
    """Two half normals that meet at `rate`, each with its own end of the 95% interval, cut off at 0 and 1."""

    rate: float
    low: float
    high: float

    def draw(self, rng: Random) -> float:
        return self._at(rng.gauss(0.0, 1.0))

    def points(self, count: int) -> tuple[float, ...]:
        return tuple(self._at(STANDARD.inv_cdf((i + 0.5) / count)) for i in range(count))

    def _at(self, z: float) -> float:
        width = self.rate - self.low if z < 0 else self.high - self.rate
        return min(1.0, max(0.0, self.rate + z * width / Z95))


Belief = Beta | SplitNormal
"""`points(count)`: the middles of as many equally probable parts, ascending; their mean stands for an expectation."""


@lru_cache(maxsize=4096)
def _beta_points(a: float, b: float, count: int) -> tuple[float, ...]:
    """Quantiles of Beta(a, b) by summing its density over a grid of eight standard deviations to each side."""
    mean, deviation = a / (a + b), sqrt(a * b / ((a + b) ** 2 * (a + b + 1)))
    low, high = max(0.0, mean - 8 * deviation), min(1.0, mean + 8 * deviation)
    step = (high - low) / GRID
    logs = [(a - 1) * log(x) + (b - 1) * log(1 - x) for x in (low + (i + 0.5) * step for i in range(GRID))]
    top = max(logs)
    masses = [exp(value - top) for value in logs]
    unit = sum(masses) / count
    points: list[float] = []
    below = 0.0
    for i, mass in enumerate(masses):
        while len(points) < count and below + mass >= (len(points) + 0.5) * unit:
            points.append(low + step * (i + ((len(points) + 0.5) * unit - below) / mass))
        below += mass
    return tuple(points)


def belief_of(pair: PairProfile) -> Belief:
    """Beta where the interval is that of `samples` independent trials, else what the stated interval says.

    A campaign that clusters its samples, or that knows better, states another interval than Wilson's: it counts.
    """
    right = pair.quality * pair.samples
    wilson = wilson_interval(right, pair.samples)
    allowed = CONSISTENT * (wilson[1] - wilson[0])
    if all(isclose(ours, stated, abs_tol=allowed) for ours, stated in zip(wilson, pair.interval, strict=True)):
        return Beta(right, pair.samples - right)
    return SplitNormal(pair.quality, *pair.interval)


# --- Cells -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What is measured at once, and how well. `quality` cells have a model and a policy, `vulnerability` ones a place.

    `rate` is the profile's estimate, `interval` its 95% interval over `samples` (pairs of runs for a vulnerability).
    """

    kind: Literal["quality", "vulnerability"]
    skill: str
    rate: float
    samples: int
    interval: tuple[float, float]
    model: str | None = None
    policy: str | None = None
    verifier_model: str | None = None
    thinking: bool = False
    role: str | None = None
    fan_in: str | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """What names the cell, for an order that does not depend on the workflow's."""
        names = (self.kind, self.skill, self.model, self.policy, self.verifier_model, self.role, self.fan_in)
        return (*(name or "" for name in names), str(self.thinking))

    @property
    def name(self) -> str:
        """For a sentence: `plan on qwen3.5-9b.none`, or `faults at a source node, plan, fan-in 0`."""
        if self.kind == "vulnerability":
            return f"faults at a {self.role} node, {self.skill}, fan-in {self.fan_in}"
        verifier = f"@{self.verifier_model}" if self.verifier_model else ""
        return f"{self.skill} on {self.model}.{self.policy}{verifier}" + (" with thinking" if self.thinking else "")

    @property
    def samples_to_halve(self) -> int:
        """Further samples after which the interval is half as wide, if the rate stays; 0 for an interval of no width.

        Counted with Wilson's interval: three times the samples, more of few, fewer of a rate near 0 or 1.
        """
        if self.interval[0] == self.interval[1]:
            return 0
        goal = _width(self.rate, self.samples) / 2
        low, high = 0, 4 * self.samples + 16
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if _width(self.rate, self.samples + middle) > goal else (low, middle)
        return low

    def to_json(self) -> dict[str, Any]:
        data = {name: value for name, value in asdict(self).items() if value is not None}
        return data | {"interval": list(self.interval), "samples_to_halve": self.samples_to_halve}


def _width(rate: float, samples: int) -> float:
    low, high = wilson_interval(rate * samples, samples)
    return high - low


def _quality_cell(pair: PairProfile) -> Cell:
    return Cell(
        kind="quality",
        skill=pair.skill,
        rate=pair.quality,
        samples=pair.samples,
        interval=pair.interval,
        model=pair.model,
        policy=pair.policy,
        verifier_model=pair.verifier_model,
        thinking=pair.thinking,
    )


def _vulnerability_cell(cell: VulnerabilityCell) -> Cell:
    return Cell(
        kind="vulnerability",
        skill=cell.skill,
        rate=cell.flips / cell.pairs,
        samples=cell.pairs,
        interval=cell.interval,
        role=cell.role,
        fan_in=cell.fan_in,
    )


# --- Redrawn coefficients --------------------------------------------------------------------------------------------

Rates = Mapping[int, float]
"""A rate per position of a cell in `Redraw.cells`; cells that are not named keep the profile's."""


@dataclass(frozen=True, slots=True)
class _SharedMenu:
    """A menu's columns, the position of each one's cell, and the nodes that share it."""

    columns: tuple[Column, ...]
    cells: tuple[int, ...]
    nodes: list[str]


class Redraw:
    """The cells that a problem's planned nodes use, and its coefficients under other rates of them.

    Durations, work and cost stay those of the profile, and so do the references: quality is what is redrawn.
    Vulnerability cells are those of the whole table, since thin ones are shrunk towards all others.
    """

    def __init__(self, coefficients: Coefficients, *, vulnerability: bool = True) -> None:
        self.base = coefficients
        self._table = coefficients.problem.profiles.vulnerability
        pairs = self._pairs()
        places = [cell for cell in self._table.cells if cell.pairs] if vulnerability and coefficients.nodes else []
        found: list[tuple[Cell, Belief, object]] = [
            *((_quality_cell(pair), belief_of(pair), pair.key) for pair in pairs.values()),
            *((_vulnerability_cell(c), Beta(c.flips, c.pairs - c.flips), c) for c in places),
        ]
        found.sort(key=lambda entry: entry[0].key)
        self.cells = tuple(cell for cell, _, _ in found)
        self.beliefs = tuple(belief for _, belief, _ in found)
        position = {source: i for i, (_, _, source) in enumerate(found)}
        self._places = {position[cell]: cell for cell in places}
        self._menus = self._shared(position)

    def _node(self, node_id: str) -> LlmNode:
        node = self.base.problem.workflow.by_id[node_id]
        if not isinstance(node, LlmNode):
            raise ValueError(f"{node_id} is planned but is no LLM node of the workflow")
        return node

    def _key(self, node_id: str, column: Column) -> tuple[str, str, str, str | None, bool]:
        node, used = self._node(node_id), column.implementation
        return (node.skill, used.model, used.policy, used.verifier_model, node.thinking)

    def _pairs(self) -> dict[object, PairProfile]:
        by_key = self.base.problem.profiles.by_key
        keys = {self._key(node_id, column) for node_id, node in self.base.nodes.items() for column in node.columns}
        return {key: by_key[key] for key in keys}

    def _shared(self, position: Mapping[object, int]) -> tuple[_SharedMenu, ...]:
        menus: dict[int, _SharedMenu] = {}
        for node_id, node in self.base.nodes.items():
            if id(node.menu) not in menus:
                cells = tuple(position[self._key(node_id, column)] for column in node.columns)
                menus[id(node.menu)] = _SharedMenu(node.columns, cells, [])
            menus[id(node.menu)].nodes.append(node_id)
        return tuple(menus.values())

    def users(self, cell: int) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """(node, positions of the columns whose quality the cell is), for every node that has such columns."""
        return tuple(
            (node_id, tuple(i for i, used in enumerate(menu.cells) if used == cell))
            for menu in self._menus
            if cell in menu.cells
            for node_id in menu.nodes
        )

    def draw(self, rng: Random) -> dict[int, float]:
        """A rate for every cell, in the order of the cells."""
        return {i: belief.draw(rng) for i, belief in enumerate(self.beliefs)}

    def coefficients(self, rates: Rates) -> Coefficients:
        """The coefficients under `rates`; nodes that none of them touches are those of the base."""
        nodes: dict[str, NodeCoefficients] = dict(self.base.nodes)
        for menu in self._menus:
            if not rates.keys().isdisjoint(menu.cells):
                redrawn = redrawn_menu(menu.columns, [rates.get(cell) for cell in menu.cells])
                for node_id in menu.nodes:
                    nodes[node_id] = replace(nodes[node_id], menu=redrawn)
        if not rates.keys().isdisjoint(self._places):
            table, workflow = self._redrawn_table(rates), self.base.problem.workflow
            for node_id, node in nodes.items():
                v = vulnerability(workflow, node_id, self._node(node_id).skill, table)
                nodes[node_id] = replace(node, vulnerability=v)
        return replace(self.base, nodes=nodes)

    def _redrawn_table(self, rates: Rates) -> VulnerabilityTable:
        """Every count times MICRO: the same look-up, and a redrawn rate is a whole number of flips."""
        cells = [
            replace(cell, pairs=MICRO * cell.pairs, flips=round(MICRO * cell.pairs * rates[i]))
            if i in rates
            else replace(cell, pairs=MICRO * cell.pairs, flips=MICRO * cell.flips)
            for i, cell in self._places.items()
        ]
        return VulnerabilityTable(cells=tuple(cells), pseudo_pairs=MICRO * self._table.pseudo_pairs)


def redrawn_menu(columns: Sequence[Column], qualities: Sequence[float | None]) -> Menu:
    """The columns with other qualities, in their order; None keeps the profile's."""
    return Menu(
        columns=tuple(
            column if quality is None else replace(column, quality=quality, error_rate=1.0 - quality)
            for column, quality in zip(columns, qualities, strict=True)
        )
    )
