"""The form of a plan: sliders for effort and weights, the kind of bundle, limits; and how an address writes it down."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from urllib.parse import urlencode

from planner.compiler.limits import NO_LIMITS
from planner.compiler.weights import DEFAULT_EFFORT, PRESETS, Weights
from planner.errors import OptionsInvalid
from planner.options import KINDS, PlanOptions
from planner.presenters.limits import LimitForm, limit_form, limits_of, limits_query

_DEFAULTS = {"effort": DEFAULT_EFFORT, **asdict(Weights())}


@dataclass(frozen=True, slots=True, kw_only=True)
class Slider:
    """`symbol` with its `index` as MATH.md writes it; `meaning` says what moving it does."""

    name: str
    symbol: str
    index: str
    words: str
    meaning: str
    high: float
    step: float
    value: float

    @property
    def shown(self) -> str:
        return f"{self.value:.2f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """`values` is what its button sets, by slider name; `json` hands them to js/plans.js."""

    name: str
    title: str
    values: Mapping[str, float]
    active: bool

    @property
    def json(self) -> str:
        return json.dumps(dict(self.values))


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of bundle as a choice of the form."""

    name: str
    title: str
    meaning: str
    chosen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanControls:
    sliders: tuple[Slider, ...]
    presets: tuple[Preset, ...]
    kinds: tuple[Kind, ...]
    limits: LimitForm


_RANGES = (
    ("effort", "e", "", "Effort", "How much the reach of a node counts", 1.0, 0.05),
    ("lambda_l", "λ", "l", "Latency", "Price of the makespan", 1.0, 0.01),
    ("lambda_r", "λ", "r", "Residual risk", "Price of errors that verification leaves", 3.0, 0.05),
    ("lambda_c", "λ", "c", "Cost", "Price of tokens", 1.0, 0.01),
    ("lambda_d", "λ", "d", "Demand", "Price of slot-seconds, times the level L", 1.0, 0.01),
    ("beta", "β", "", "Reach", "How much more upstream nodes count, times the effort", 5.0, 0.1),
)
_KIND_WORDS = {
    "levels": ("Levels", "One variant per specialization level L, by the weights below"),
    "priced": ("Priced", "One variant per price of GPU-seconds; the objective is log quality and uses no weight"),
}


def plan_controls(query: Mapping[str, str]) -> PlanControls:
    """The sliders at the values of an address; what is missing or no number stands at its default."""
    values = {name: _value(query.get(name), default) for name, default in _DEFAULTS.items()}
    kind = query.get("bundle") if query.get("bundle") in KINDS else KINDS[0]
    return PlanControls(
        sliders=tuple(
            Slider(
                name=name,
                symbol=symbol,
                index=index,
                words=words,
                meaning=meaning,
                high=high,
                step=step,
                value=min(high, max(0.0, values[name])),
            )
            for name, symbol, index, words, meaning, high, step in _RANGES
        ),
        presets=tuple(
            Preset(
                name=name,
                title=name.replace("_", " ").capitalize(),
                values=asdict(weights),
                active=all(math.isclose(values[key], value) for key, value in asdict(weights).items()),
            )
            for name, weights in PRESETS.items()
        ),
        kinds=tuple(
            Kind(name=name, title=_KIND_WORDS[name][0], meaning=_KIND_WORDS[name][1], chosen=name == kind)
            for name in KINDS
        ),
        limits=limit_form(query),
    )


def options_of(query: Mapping[str, str]) -> PlanOptions:
    """Options of an address. A weight that is no number is the default; else raises OptionsInvalid, all at once."""
    values = {name: _value(query.get(name), default) for name, default in _DEFAULTS.items()}
    effort = values.pop("effort")
    problems: dict[str, str] = {}
    options, limits = PlanOptions(), NO_LIMITS
    try:
        options = PlanOptions.of(effort=effort, weights=values, bundle=query.get("bundle") or None)
    except OptionsInvalid as error:
        problems |= error.problems
    try:
        limits = limits_of(query)
    except OptionsInvalid as error:
        problems |= error.problems
    if problems:
        raise OptionsInvalid(problems)
    return replace(options, limits=limits)


def query_of(options: PlanOptions) -> str:
    """The options as an address writes them: only what differs from the defaults."""
    values = {"effort": options.effort, **asdict(options.weights)}
    query = {name: f"{value:g}" for name, value in values.items() if value != _DEFAULTS[name]}
    kind = {} if options.bundle == KINDS[0] else {"bundle": options.bundle}
    return urlencode(query | kind | limits_query(options.limits))


def _value(text: str | None, default: float) -> float:
    try:
        value = float(text) if text else default
    except ValueError:
        return default
    return value if math.isfinite(value) else default
