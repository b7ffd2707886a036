"""Duration, work and cost of one implementation (Eq. 2, paper 4.2; work, cost and call probabilities ours).

    call_s(c, m, d) = prefill_s(m, d, c.prompt_tokens) + c.output_tokens / decode_tokens_per_s(m, d)
    tau(n, o, p)    = sum over stages g of  P(g) * max over calls c in g of call_s(c)
    work(n, o, p)   = sum over all calls c of P(c) * call_s(c), kept per model
    cost(n, o, p)   = sum over calls c of P(c) * (prompt_tokens * price_in + output_tokens * price_out)

Queueing is excluded: live pressure chooses among variants instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from fleet.serving.catalog import Backend, ModelClass
from planner.compiler.policies import Policy, PolicyCall
from planner.compiler.profile import PairProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The model and the backend that serve a call."""

    model: ModelClass
    backend: Backend


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedCall:
    """`count` equal calls of one role on one server: expected tokens, and the probability that they happen.

    `free_text`: the answer may grow to the node's `max_tokens`; a verdict or a choice is a few tokens whatever happens.
    """

    server: Server
    free_text: bool
    count: int
    probability: float
    prompt_tokens: float
    output_tokens: float

    @property
    def expected_count(self) -> float:
        return self.count * self.probability


Stage = tuple[PlacedCall, ...]
Number = TypeVar("Number", int, float)


def place_calls(
    policy: Policy,
    profile: PairProfile,
    *,
    base: Server,
    verifier: Server | None,
    prompt_tokens: float,
    max_tokens: int,
) -> tuple[Stage, ...]:
    """The policy's call graph with this pair's demand on these servers; output tokens never exceed `max_tokens`.

    `prompt_tokens` is the length of the node's own prompt; every call reads it.
    """

    def place(call: PolicyCall) -> PlacedCall:
        demand = profile.call(call.role)
        return PlacedCall(
            server=verifier if call.model == "verifier" and verifier is not None else base,
            free_text=call.answers in ("output", "text"),
            count=call.count,
            probability=demand.probability,
            prompt_tokens=prompt_tokens + demand.prompt_tokens,
            output_tokens=min(demand.output_tokens, max_tokens),
        )

    return tuple(tuple(place(call) for call in stage.calls) for stage in policy.stages)


def call_s(call: PlacedCall) -> float:
    """Nominal seconds of one call (the inner term of Eq. 2)."""
    return call.server.backend.rates.call_s(call.prompt_tokens, call.output_tokens)


def tau(stages: Sequence[Stage]) -> float:
    """Eq. 2: stages in series, the calls of a stage in parallel, each stage weighted by its probability."""
    return sum(max(call.probability for call in stage) * max(call_s(call) for call in stage) for stage in stages)


def work(stages: Sequence[Stage]) -> dict[str, float]:
    """Expected slot-seconds per model class: parallel calls add up."""
    return _per_model(stages, lambda call: call.expected_count * call_s(call))


def gpu_s(stages: Sequence[Stage]) -> dict[str, float]:
    """Expected GPU-seconds per model class at the reference batch (MATH.md, Priced bundles)."""

    def seconds(call: PlacedCall) -> float:
        return call.expected_count * call.server.backend.rates.gpu_s(call.prompt_tokens, call.output_tokens)

    return _per_model(stages, seconds)


def max_calls(stages: Sequence[Stage]) -> dict[str, int]:
    """Calls per model class when every conditional stage runs."""
    return _per_model(stages, lambda call: call.count)


def _per_model(stages: Sequence[Stage], of: Callable[[PlacedCall], Number]) -> dict[str, Number]:
    total: dict[str, Number] = {}
    for stage in stages:
        for call in stage:
            name = call.server.model.name
            total[name] = total[name] + of(call) if name in total else of(call)
    return total


def tokens(stages: Sequence[Stage]) -> float:
    """Expected tokens of all calls, prompts and outputs."""
    return sum(call.expected_count * (call.prompt_tokens + call.output_tokens) for stage in stages for call in stage)


def cost(stages: Sequence[Stage]) -> float:
    """Expected price of all calls, in the catalog's price unit."""
    return sum(call.expected_count * _price(call) for stage in stages for call in stage)


def _price(call: PlacedCall) -> float:
    model = call.server.model
    return call.prompt_tokens * model.price_in + call.output_tokens * model.price_out
