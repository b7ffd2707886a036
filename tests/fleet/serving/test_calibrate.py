"""Calibration: exact on exact figures, right on the emulator's engine in virtual time, and honest where it is not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from math import inf

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fleet.emulator.engine import Engine, Limits, Timings
from fleet.emulator.requests import count_tokens
from fleet.serving.calibrate import (
    Calibration,
    CalibrationFailed,
    CalibrationPlan,
    Decode,
    Measured,
    Prefill,
    concurrencies_up_to,
    fit,
    line,
    measure,
    residual,
)
from fleet.serving.chat import ChatRequest, ChatResponse, Usage
from fleet.serving.client import OnDelta
from fleet.serving.errors import EngineDead, ServingError
from fleet.serving.roofline import H200, MAX_SLOWDOWN, QWEN35_9B, nominal_rates

PLAN = CalibrationPlan(concurrencies=(1, 2, 4, 8, 16), prompt_words=(32, 256, 1024), output_tokens=128, repeats=2)
seconds = st.floats(1e-6, 10)


class EngineClient:
    """Calls that arrive together enter the emulator's engine together; time is virtual."""

    def __init__(self, *, told: bool = True) -> None:
        self.engine = Engine(Limits(hardware=H200, model=QWEN35_9B, max_num_seqs=16, kv_tokens=10**6))
        self.told, self.now, self.most = told, 0.0, 0
        self.requests: list[ChatRequest] = []
        self.waiting: list[tuple[ChatRequest, asyncio.Future[ChatResponse]]] = []

    async def stream_chat(
        self, url: str, request: ChatRequest, *, api_key: str | None = None, on_delta: OnDelta | None = None
    ) -> ChatResponse:
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[ChatResponse] = loop.create_future()
        if not self.waiting:
            loop.call_soon(self._serve)
        self.waiting.append((request, answered))
        self.requests.append(request)
        return await answered

    def _serve(self) -> None:
        group, self.waiting = self.waiting, []
        self.most = max(self.most, len(group))
        ended: dict[int, Timings] = {}
        for number, (request, _) in enumerate(group):
            tokens = count_tokens(str(request.messages[0]["content"]))
            self.engine.submit(number, tokens, request.max_tokens, self.now)
        while len(ended) < len(group):
            at = self.engine.next_event_at()
            assert at is not None
            self.now = at
            ended |= {event.id: event.timings for event in self.engine.advance(at) if event.timings is not None}
        for number, (request, answered) in enumerate(group):
            answered.set_result(self._response(request, ended[number]))

    def _response(self, request: ChatRequest, timings: Timings) -> ChatResponse:
        told = self.told
        return ChatResponse(
            response_id=request.request_id,
            model=request.model,
            text="",
            reasoning="",
            usage=Usage(
                prompt_tokens=count_tokens(str(request.messages[0]["content"])), output_tokens=request.max_tokens
            ),
            finish_reason="length",
            started_at=timings.arrived_at,
            finished_at=timings.finished_at,
            queue_s=timings.admitted_at - timings.arrived_at if told else None,
            ttft_s=timings.first_token_at - timings.arrived_at,
            generation_s=timings.finished_at - timings.first_token_at if told else None,
        )


def measured(
    client: EngineClient, plan: CalibrationPlan = PLAN, on_progress: Callable[..., None] | None = None
) -> Measured:
    return asyncio.run(measure(client, "http://replica", "qwen3.5-9b", plan, on_progress=on_progress))


def fitted(found: Measured, at: int = 16, kv_tokens: int | None = 10**6, max_num_seqs: int = 16) -> Calibration:
    return fit(found, at=at, max_num_seqs=max_num_seqs, kv_tokens=kv_tokens, context_tokens=1500)


@pytest.mark.parametrize("told", [True, False], ids=["the server tells times", "by the caller's clock"])
def test_the_emulators_engine_is_found_as_it_is(told: bool) -> None:
    found = fitted(measured(EngineClient(told=told)))
    truth = nominal_rates(H200, QWEN35_9B, 16, 16, context_tokens=400)
    assert found.rates.concurrency == 16
    assert found.rates.decode_tokens_per_s == pytest.approx(truth.decode_tokens_per_s, rel=0.03)
    assert found.rates.prefill_base_s == pytest.approx(truth.prefill_base_s, rel=0.02)
    assert found.rates.prefill_per_token_s == pytest.approx(truth.prefill_per_token_s, rel=0.02)
    assert found.rates.capacity == truth.capacity
    assert found.step_residual < 0.1 > found.prefill_residual
    assert [level.calls for level in found.levels] == [2, 2, 2, 4, 8]


def test_calls_of_a_group_run_together_with_lengths_of_their_own() -> None:
    client, seen = EngineClient(), list[tuple[int, int]]()
    found = measured(client, on_progress=lambda done, of: seen.append((done, of)))
    assert client.most == 16
    assert seen == [(i + 1, PLAN.rounds) for i in range(PLAN.rounds)]
    assert len({str(request.messages[0]["content"]).split()[0] for request in client.requests}) == len(client.requests)
    assert all(request.exact_tokens for request in client.requests)
    assert len(found.prefills) == 3 * 2
    assert len(client.requests) == 3 * 3 + 3 * (1 + 2 + 4 + 8 + 16)  # the first of every three is a warm-up


def test_the_next_calibration_sends_other_prompts_and_a_seed_the_same() -> None:
    """A server that caches prefixes knows those of the calibration before."""

    def prompts(seed: int | None) -> list[str]:
        client = EngineClient()
        asyncio.run(measure(client, "http://replica", "m", replace(PLAN, seed=seed)))
        return [str(request.messages[0]["content"]) for request in client.requests]

    assert not {text.split()[0] for text in prompts(None)} & {text.split()[0] for text in prompts(None)}
    assert prompts(5) == prompts(5)


@given(base=seconds, per_sequence=seconds, prefill=seconds, per_token=st.floats(1e-9, 1e-2), most=st.integers(2, 64))
def test_exact_figures_are_found_exactly(
    base: float, per_sequence: float, prefill: float, per_token: float, most: int
) -> None:
    levels = concurrencies_up_to(most)
    decodes = [Decode(concurrency=c, token_s=base + per_sequence * c, tokens=9) for c in levels]
    prefills = [Prefill(prompt_tokens=n, seconds=prefill + per_token * n) for n in (40, 300, 1200)]
    found = fitted(Measured(prefills=tuple(prefills), decodes=tuple(decodes)), at=4, max_num_seqs=100)
    rates = found.rates
    assert rates.step_base_s == pytest.approx(base, rel=1e-6, abs=1e-9 * (base + per_sequence * most))
    assert rates.step_per_sequence_s == pytest.approx(per_sequence, rel=1e-6, abs=1e-9 * (base + per_sequence))
    assert rates.prefill_s(777) == pytest.approx(prefill + per_token * 777, rel=1e-6)
    assert max(found.step_residual, found.prefill_residual) < 1e-6
    within = [c for c in levels if base + per_sequence * c <= MAX_SLOWDOWN * (base + per_sequence) * (1 + 1e-12)]
    assert rates.capacity in (max(within), max([c for c in within if c < max(within)], default=max(within)))


@given(st.lists(st.tuples(st.integers(1, 1000), st.floats(0, 10)), min_size=2, max_size=12))
def test_no_line_says_that_something_takes_less_than_no_time(points: list[tuple[int, float]]) -> None:
    assume(len({x for x, _ in points}) > 1)
    base, slope = line(points)
    assert 0 <= base < inf
    assert 0 <= slope < inf


def test_capacity_is_the_least_of_slots_cache_and_speed() -> None:
    prefills = Prefill(prompt_tokens=10, seconds=0.1), Prefill(prompt_tokens=20, seconds=0.2)
    fast = Measured(prefills=prefills, decodes=tuple(Decode(concurrency=c, token_s=0.01, tokens=9) for c in (1, 8, 32)))
    assert fitted(fast, max_num_seqs=64).rates.capacity == 32
    assert "may be larger" in " ".join(fitted(fast, max_num_seqs=64).notes)
    assert fitted(fast, max_num_seqs=24).rates.capacity == 24
    assert fitted(fast, max_num_seqs=64, kv_tokens=1500 * 5 + 1).rates.capacity == 5
    assert fitted(fast, max_num_seqs=64, kv_tokens=10).rates.capacity == 1
    assert "does not say" in " ".join(fitted(fast, kv_tokens=None).notes)
    slow = Measured(
        prefills=prefills, decodes=tuple(Decode(concurrency=c, token_s=0.01 * c, tokens=9) for c in (1, 2, 4, 8))
    )
    assert fitted(slow).rates.capacity == 2


def test_a_line_that_misses_is_called_rough() -> None:
    prefills = Prefill(prompt_tokens=10, seconds=0.1), Prefill(prompt_tokens=20, seconds=0.2)
    decodes = [Decode(concurrency=c, token_s=s, tokens=9) for c, s in ((1, 0.01), (2, 0.05), (4, 0.01))]
    found = fitted(Measured(prefills=prefills, decodes=tuple(decodes)))
    assert found.step_residual > 0.15
    assert any("decode" in note and "repeat" in note for note in found.notes)


def test_one_concurrency_fits_no_line_and_says_nothing_of_steps() -> None:
    prefills = Prefill(prompt_tokens=10, seconds=0.1), Prefill(prompt_tokens=20, seconds=0.2)
    found = fitted(Measured(prefills=prefills, decodes=(Decode(concurrency=1, token_s=0.01, tokens=9),)))
    assert (found.rates.step_base_s, found.rates.step_per_sequence_s, found.rates.capacity) == (None, None, 1)


@given(context=st.integers(8, 40_000), per_word=st.floats(0.5, 8))
def test_prompts_and_outputs_fit_into_the_context(context: int, per_word: float) -> None:
    try:
        plan = PLAN.within(context, per_word)
    except CalibrationFailed:
        assert context < 64
        return
    assert max(plan.prompt_words) * per_word + plan.output_tokens <= context
    assert len(set(plan.prompt_words)) >= 2
    assert plan.output_tokens <= PLAN.output_tokens


def test_a_short_context_is_asked_for_what_fits() -> None:
    client = EngineClient()
    asyncio.run(measure(client, "http://replica", "m", PLAN, context_tokens=512))
    longest = max(count_tokens(str(request.messages[0]["content"])) + request.max_tokens for request in client.requests)
    assert 256 < longest <= 512


@pytest.mark.parametrize(
    "wrong",
    [
        {"concurrencies": ()},
        {"concurrencies": (2, 4)},
        {"prompt_words": (64,)},
        {"prompt_words": (0, 64)},
        {"output_tokens": 1},
        {"repeats": 0},
        {"timeout_s": 0.0},
    ],
)
def test_a_plan_that_fits_nothing_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="a calibration needs"):
        CalibrationPlan(**{"concurrencies": (1, 2), **wrong})  # type: ignore[arg-type]


def test_a_server_that_stops_early_or_takes_no_time_is_no_measurement() -> None:
    prefills = Prefill(prompt_tokens=10, seconds=0.1), Prefill(prompt_tokens=20, seconds=0.2)
    with pytest.raises(CalibrationFailed, match="no time"):
        fitted(Measured(prefills=prefills, decodes=(Decode(concurrency=1, token_s=0.0, tokens=9),)))
    with pytest.raises(CalibrationFailed, match="two different sizes"):
        fitted(Measured(prefills=(prefills[0],) * 2, decodes=(Decode(concurrency=1, token_s=0.1, tokens=9),)))


def test_a_call_that_fails_ends_the_calibration_with_its_own_error() -> None:
    class Dying(EngineClient):
        async def stream_chat(
            self, url: str, request: ChatRequest, *, api_key: str | None = None, on_delta: OnDelta | None = None
        ) -> ChatResponse:
            if len(self.requests) >= 20:
                raise EngineDead("EngineCore encountered an issue")
            return await super().stream_chat(url, request, api_key=api_key, on_delta=on_delta)

    with pytest.raises(ServingError, match="engine_dead"):
        measured(Dying())


def test_concurrencies_double_up_to_what_is_admitted() -> None:
    assert [concurrencies_up_to(most) for most in (1, 2, 6, 8)] == [(1,), (1, 2), (1, 2, 4, 6), (1, 2, 4, 8)]
    with pytest.raises(ValueError, match="at least one"):
        concurrencies_up_to(0)


def test_residual_of_nothing_is_none() -> None:
    assert residual([]) == 0.0
