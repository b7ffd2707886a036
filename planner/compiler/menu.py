"""What a node may be served with, and what each choice takes: all that does not depend on where the node stands.

Nodes of equal skill, token limits and legal sets share a menu, and so do the requests that a process plans (ours; the
numbers are those of 4.1 and 4.2). Solvers read a menu's rows, which are sums over tables that are made once per fleet
and profiles; of the columns, with all their numbers, only those are made that somebody looks at.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from planner.compiler.durations import PlacedCall, Server, Stage, cost, gpu_s, max_calls, tau, tokens, work
from planner.compiler.legality import Offer, Offers, legal_models, legal_policies, planned_prompt_tokens
from planner.compiler.plan import Implementation
from planner.compiler.workflow import LlmNode

if TYPE_CHECKING:
    from planner.compiler.problem import PlanningProblem

Value = TypeVar("Value")

MAX_MENUS = 256
"""Menus kept per profiles, fleet and policies: a menu of 24 columns takes some tens of kB."""
MAX_FLEETS = 8
"""Fleets with policies whose menus are kept per profiles: a worker lives longer than a fleet's calibration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One legal implementation with its numbers: one binary x[n,o,p] of the ILP.

    `duration_s` is tau; `work` slot-seconds and `gpu_s` GPU-seconds per model class; `cost` in the catalog's price
    unit; `tokens` expected ones, prompts and outputs of all calls; `calls` per class when every conditional stage runs.
    """

    implementation: Implementation
    quality: float
    error_rate: float
    duration_s: float
    work: Mapping[str, float]
    cost: float
    tokens: float
    calls: Mapping[str, int]
    gpu_s: Mapping[str, float]


class Row(NamedTuple):
    """What solvers sum over: a column's position, quality, cost, slot-seconds of all classes, and tau in seconds."""

    position: int
    quality: float
    cost: float
    work_s: float
    duration_s: float


class Menu:
    """A node's columns, in the order of the fleet's models, policies and backends."""

    def __init__(self, columns: Iterable[Column]) -> None:
        self._columns: tuple[Column, ...] = tuple(columns)

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def columns(self) -> tuple[Column, ...]:
        return self._columns

    @property
    def rows(self) -> tuple[Row, ...]:
        """Every column's numbers, fastest first."""
        return self._rows

    @cached_property
    def _rows(self) -> tuple[Row, ...]:
        rows = (
            Row(i, column.quality, column.cost, sum(column.work.values()), column.duration_s)
            for i, column in enumerate(self.columns)
        )
        return tuple(sorted(rows, key=_by_duration))

    def at(self, position: int) -> Column:
        return self.columns[position]

    def column(self, implementation: Implementation) -> Column | None:
        return self._by_implementation.get(implementation)

    @cached_property
    def _by_implementation(self) -> Mapping[Implementation, Column]:
        return {column.implementation: column for column in self.columns}


def menu_of(problem: PlanningProblem, node: LlmNode) -> NodeMenu:
    """The node's menu; empty when nothing is legal. Kept by everything that decides it."""
    menus = problem.menus
    legal = (
        node.skill,
        node.thinking,
        legal_models(problem, node),
        tuple([policy.name for policy in legal_policies(problem, node)]),
    )
    key = (legal, node.max_tokens, planned_prompt_tokens(problem, node))
    found = menus.made.get(key)
    if found is None:
        offers = menus.offers.get(legal)
        if offers is None:
            offers = kept(menus.offers, legal, tuple(map(_TabledOffer, Offers(problem, node))), MAX_MENUS)
        rank = {model.name: (model.size_rank, model.name) for model in problem.catalog.models}
        found = kept(menus.made, key, NodeMenu(offers, rank, key[2], node.max_tokens), MAX_MENUS)
    return found


@dataclass(slots=True)
class Menus:
    """What was made for one fleet, its profiles and policies: offers by legal sets, menus by token limits as well."""

    offers: dict[Hashable, tuple[_TabledOffer, ...]] = field(default_factory=dict)
    made: dict[Hashable, NodeMenu] = field(default_factory=dict)
    prices: dict[Hashable, Any] = field(default_factory=dict)
    """The certificate's own tables, which live as long."""


def kept(cache: dict[Hashable, Value], key: Hashable, value: Value, most: int) -> Value:
    """`value`, now in the cache, which is emptied first where it holds `most`."""
    if len(cache) >= most:
        cache.clear()
    cache[key] = value
    return value


class NodeMenu(Menu):
    """The menu of an LLM node: rows at once, columns when they are asked for.

    Raises ValueError on an implementation whose numbers are not finite: no solver can compare it.
    """

    def __init__(
        self,
        offers: Sequence[_TabledOffer],
        rank: Mapping[str, tuple[int, str]],
        prompt_tokens: int | None,
        max_tokens: int,
    ) -> None:
        super().__init__(())
        self._rank, self._prompt_tokens, self._max_tokens = rank, prompt_tokens, max_tokens
        self._legal: list[tuple[Offer, Server | None]] = []
        self._made: dict[int, Column] = {}
        rows: list[Row] = []
        for offer in offers:
            found = offer.numbers(prompt_tokens, max_tokens)
            if found is not None:
                verifier, (price, work_s, duration_s, _) = found
                if not isfinite(price + work_s + duration_s):
                    raise ValueError(f"{offer.name} takes no finite time and cost: check its profile, rates and prices")
                rows.append(Row(len(rows), offer.quality, price, work_s, duration_s))
                self._legal.append((offer.offer, offer.offer.verifiers[verifier]))
        rows.sort(key=_by_duration)
        self._sorted = tuple(rows)

    def __len__(self) -> int:
        return len(self._legal)

    @property
    def rows(self) -> tuple[Row, ...]:
        return self._sorted

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(map(self.at, range(len(self))))

    @cached_property
    def reference(self) -> Row:
        """Largest legal model, its cheapest legal policy, then the fastest of its backends (ties: declaration order).

        Raises ValueError when nothing is legal.
        """
        models = [offer.base.model.name for offer, _ in self._legal]
        policies = [offer.policy.name for offer, _ in self._legal]
        largest = max(models, key=self._rank.__getitem__)
        of_model = [row for row in self.rows if models[row.position] == largest]
        cheapest = policies[min(of_model, key=lambda row: (row.cost, row.position)).position]
        of_policy = [row for row in of_model if policies[row.position] == cheapest]
        return min(of_policy, key=lambda row: (row.duration_s, row.position))

    def at(self, position: int) -> Column:
        found = self._made.get(position)
        if found is None:
            found = self._made[position] = self._column(*self._legal[position])
        return found

    def _column(self, offer: Offer, verifier: Server | None) -> Column:
        stages = offer.place(verifier, self._prompt_tokens, self._max_tokens)
        return Column(
            implementation=offer.implementation(verifier),
            quality=offer.profile.quality,
            error_rate=offer.profile.error_rate,
            duration_s=tau(stages),
            work=work(stages),
            cost=cost(stages),
            tokens=tokens(stages),
            calls=max_calls(stages),
            gpu_s=gpu_s(stages),
        )


_Sums = tuple[float, float, float, float]
"""(cost, slot-seconds, tau, seconds of all calls once, which decide the verifier) of one implementation."""


class _Call(NamedTuple):
    """A call of an offer with all that its numbers need, so that they take no look-up."""

    expected_count: float
    prompt_tokens: float
    output_tokens: float
    prefill_base_s: float
    prefill_per_token_s: float
    decode_tokens_per_s: float
    price_in: float
    price_out: float
    context_tokens: int
    free_text: bool


_Stages = tuple[tuple[float, tuple[_Call, ...]], ...]
"""(probability of the stage, its calls)."""


class _TabledOffer:
    """An offer as tables: the sums of `planner.compiler.durations` and legality's context test in one pass."""

    def __init__(self, offer: Offer) -> None:
        self.offer, self.quality, self._prompt_tokens = offer, offer.profile.quality, offer.profile.prompt_tokens
        self._options = [_tabled(offer.place(verifier, 0, sys.maxsize)) for verifier in offer.verifiers]

    @property
    def name(self) -> str:
        return f"{self.offer.profile.skill} by {self.offer.base.model.name}.{self.offer.policy.name}"

    def numbers(self, prompt_tokens: int | None, max_tokens: int) -> tuple[int, _Sums] | None:
        """(position of the verifying server, sums); None where the context is too short."""
        prompt = self._prompt_tokens if prompt_tokens is None else float(prompt_tokens)
        best: tuple[int, _Sums] | None = None
        for position, stages in enumerate(self._options):
            sums = _sums(stages, prompt, max_tokens)
            if sums is None:
                return None
            # The verifier's backend is the one where all calls together are fastest (ours).
            if best is None or sums[3] < best[1][3]:
                best = position, sums
        return best


def _tabled(stages: Sequence[Stage]) -> _Stages:
    return tuple((max(call.probability for call in stage), tuple(map(_call, stage))) for stage in stages)


def _call(call: PlacedCall) -> _Call:
    rates, model = call.server.backend.rates, call.server.model
    return _Call(
        expected_count=call.expected_count,
        prompt_tokens=call.prompt_tokens,
        output_tokens=call.output_tokens,
        prefill_base_s=rates.prefill_base_s,
        prefill_per_token_s=rates.prefill_per_token_s,
        decode_tokens_per_s=rates.decode_tokens_per_s,
        price_in=model.price_in,
        price_out=model.price_out,
        context_tokens=model.context_tokens,
        free_text=call.free_text,
    )


def _sums(stages: _Stages, prompt: float, max_tokens: int) -> _Sums | None:
    """None where a call does not fit: servers refuse a prompt that leaves too little room for `max_tokens`."""
    price = work_s = duration_s = once_s = 0.0
    for probability, calls in stages:
        longest = 0.0
        for count, more, output, base_s, per_token_s, per_s, price_in, price_out, context, free_text in calls:
            tokens_in = prompt + more
            tokens_out = output if output < max_tokens else max_tokens
            if tokens_in + (max_tokens if free_text else tokens_out) > context:
                return None
            seconds = base_s + per_token_s * tokens_in + tokens_out / per_s
            if seconds > longest:
                longest = seconds
            once_s += seconds
            work_s += count * seconds
            price += count * (tokens_in * price_in + tokens_out * price_out)
        duration_s += probability * longest
    return price, work_s, duration_s, once_s


def _by_duration(row: Row) -> float:
    return row.duration_s
