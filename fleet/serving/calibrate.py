"""Measures a replica's service rates and capacity (paper 4.2: calibrated; MATH.md, Load).

Prefill: single calls of one token at several prompt lengths; base and seconds per token by least squares. Decode:
groups of calls of a fixed output length that start together, one group size after the other; seconds per token of the
quarter that begins last, which no prefill slows down, and the line through them. The first group of every size is a
warm-up and counts for nothing. Prompts begin with a word of their own: a prefix that the server remembers would cost
nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import count
from math import sqrt
from random import Random
from statistics import median
from typing import Any, Protocol

from fleet.serving.chat import ChatRequest, ChatResponse
from fleet.serving.client import OnDelta
from fleet.serving.rates import ServiceRates
from fleet.serving.roofline import MAX_SLOWDOWN

ROUGH = 0.15
"""Relative residual of a fit from which it is called rough."""
CONTEXT_SHARE = 0.9
"""Of the context that prompt and output may fill: a tokenizer is not known to the token."""
PROBE_WORDS = 16
_WORDS = ("amber", "basin", "cedar", "delta", "ember", "fjord", "grove", "haven", "inlet", "jetty", "knoll", "lagoon")

OnProgress = Callable[[int, int], None]


class StreamingClient(Protocol):
    """What a calibration needs of `ServingClient`."""

    async def stream_chat(
        self, url: str, request: ChatRequest, *, api_key: str | None = None, on_delta: OnDelta | None = None
    ) -> ChatResponse: ...


class CalibrationFailed(Exception):
    """Nothing can be fitted; the message names the reason and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationPlan:
    """What is sent: `prompt_words` per length, `output_tokens` of every decode call, `repeats` after the warm-up.

    `seed` of the prompts, None: other ones every time, since a server remembers those of an earlier calibration too.
    Raises ValueError on a plan that fits nothing.
    """

    concurrencies: tuple[int, ...]
    prompt_words: tuple[int, ...] = (32, 256, 1024)
    output_tokens: int = 128
    repeats: int = 2
    timeout_s: float = 300.0
    seed: int | None = None

    def __post_init__(self) -> None:
        if len(set(self.prompt_words)) < 2 or min(self.prompt_words) < 1:
            raise ValueError("a calibration needs two prompt lengths of at least one word")
        if not self.concurrencies or min(self.concurrencies) < 1 or 1 not in self.concurrencies:
            raise ValueError("a calibration needs concurrencies from 1 on")
        if self.output_tokens < 2 or self.repeats < 1 or self.timeout_s <= 0:
            raise ValueError("a calibration needs output_tokens >= 2, repeats >= 1 and a positive timeout_s")

    @property
    def rounds(self) -> int:
        """Groups of calls, warm-ups included."""
        return (len(self.prompt_words) + len(self.concurrencies)) * (self.repeats + 1)

    def within(self, context_tokens: int, tokens_per_word: float) -> CalibrationPlan:
        """The same plan with prompts and outputs that fit into a context. Raises CalibrationFailed where none do."""
        output_tokens = min(self.output_tokens, context_tokens // 4)
        most = int((CONTEXT_SHARE * context_tokens - output_tokens) / tokens_per_word)
        if output_tokens < 2 or most < 2:
            raise CalibrationFailed(f"a context of {context_tokens} tokens is too short to measure anything")
        words = tuple(sorted({min(count, most) for count in self.prompt_words}))
        if len(words) < 2:
            words = (max(1, most // 4), most)
        return replace(self, prompt_words=words, output_tokens=output_tokens)


def concurrencies_up_to(most: int) -> tuple[int, ...]:
    """1, 2, 4 and so on, and `most`. Raises ValueError below 1."""
    if most < 1:
        raise ValueError(f"a replica admits at least one sequence, got {most}")
    return tuple(sorted({most, *(1 << i for i in range(most.bit_length()) if 1 << i <= most)}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefill:
    """One call alone: its first token after `seconds`, queueing excluded where the server tells it."""

    prompt_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Decode:
    """One call among `concurrency`: seconds per output token after the first."""

    concurrency: int
    token_s: float
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    prefills: tuple[Prefill, ...]
    decodes: tuple[Decode, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A concurrency: the median seconds per token of `calls` calls, and what the line says."""

    concurrency: int
    calls: int
    token_s: float
    fitted_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """`rates` and what they rest on. Residuals are relative: root mean square over the mean."""

    rates: ServiceRates
    levels: tuple[Level, ...]
    prefills: tuple[Prefill, ...]
    prefill_residual: float
    step_residual: float
    notes: tuple[str, ...]

    @property
    def rough(self) -> bool:
        """Whether a line misses what was measured by so much that one should not rely on it."""
        return max(self.prefill_residual, self.step_residual) > ROUGH

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


# --- Measuring -------------------------------------------------------------------------------------------------------


async def measure(
    client: StreamingClient,
    url: str,
    model: str,
    plan: CalibrationPlan,
    *,
    context_tokens: int | None = None,
    api_key: str | None = None,
    on_progress: OnProgress | None = None,
) -> Measured:
    """All rounds, one after the other; `on_progress(done, of)` after each.

    `context_tokens`: what the server takes, None where it does not say. Raises ServingError of a call that fails, and
    CalibrationFailed.
    """
    calls = _Calls(client, url, model, plan, api_key)
    if context_tokens is not None:
        (answer,) = await calls.together(1, PROBE_WORDS, 1)
        plan = plan.within(context_tokens, answer.usage.prompt_tokens / PROBE_WORDS)
    done = count(1)

    def went_on() -> None:
        if on_progress is not None:
            on_progress(next(done), plan.rounds)

    prefills: list[Prefill] = []
    for words in plan.prompt_words:
        for turn in range(plan.repeats + 1):
            (answer,) = await calls.together(1, words, 1)
            prefills += [_prefill(answer)] if turn else []
            went_on()
    decodes: list[Decode] = []
    middle = sorted(plan.prompt_words)[(len(plan.prompt_words) - 1) // 2]
    for concurrency in plan.concurrencies:
        for turn in range(plan.repeats + 1):
            answers = await calls.together(concurrency, middle, plan.output_tokens)
            decodes += [_decode(answer, concurrency) for answer in _last_to_begin(answers)] if turn else []
            went_on()
    return Measured(prefills=tuple(prefills), decodes=tuple(decodes))


class _Calls:
    """Streamed calls of a fixed length, with prompts that no other call began with."""

    def __init__(
        self, client: StreamingClient, url: str, model: str, plan: CalibrationPlan, api_key: str | None
    ) -> None:
        self._client, self._url, self._model, self._plan, self._api_key = client, url, model, plan, api_key
        self._random = Random(plan.seed)  # noqa: S311  filler, nothing secret
        self._number = count()

    async def together(self, calls: int, words: int, output_tokens: int) -> list[ChatResponse]:
        """Calls that start at once; the first that fails ends the others."""
        requests = [self._request(words, output_tokens) for _ in range(calls)]
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(
                        self._client.stream_chat(self._url, request, api_key=self._api_key), name=request.request_id
                    )
                    for request in requests
                ]
        except BaseExceptionGroup as errors:
            raise _first(errors) from errors
        return [task.result() for task in tasks]

    def _request(self, words: int, output_tokens: int) -> ChatRequest:
        number = next(self._number)
        text = " ".join([f"{self._random.getrandbits(48):x}", *self._random.choices(_WORDS, k=words)])
        return ChatRequest(
            request_id=f"calibrate-{number}",
            model=self._model,
            messages=({"role": "user", "content": text},),
            max_tokens=output_tokens,
            exact_tokens=True,
            timeout_s=self._plan.timeout_s,
        )


def _last_to_begin(answers: Sequence[ChatResponse]) -> list[ChatResponse]:
    """The quarter of a group whose first tokens came last: the others' prefills no longer slow these down."""
    by_first_token = sorted(answers, key=lambda answer: answer.started_at + (answer.ttft_s or 0.0))
    return by_first_token[-max(1, len(answers) // 4) :]


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    error = errors.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


def _prefill(answer: ChatResponse) -> Prefill:
    whole_s = answer.finished_at - answer.started_at if answer.ttft_s is None else answer.ttft_s
    return Prefill(prompt_tokens=answer.usage.prompt_tokens, seconds=max(0.0, whole_s - (answer.queue_s or 0.0)))


def _decode(answer: ChatResponse, concurrency: int) -> Decode:
    """Raises CalibrationFailed for a server that stops before the length that was asked for."""
    tokens = answer.usage.output_tokens
    if tokens < 2:
        raise CalibrationFailed(f"the server sent {tokens} output token: it must honour ignore_eos or min_tokens")
    whole_s = answer.finished_at - answer.started_at
    seconds = answer.generation_s if answer.generation_s is not None else whole_s - (answer.ttft_s or 0.0)
    return Decode(concurrency=concurrency, token_s=seconds / (tokens - 1), tokens=tokens)


# --- Fitting ---------------------------------------------------------------------------------------------------------


def fit(measured: Measured, *, at: int, max_num_seqs: int, kv_tokens: int | None, context_tokens: float) -> Calibration:
    """Rates at the measured concurrency nearest to `at`; capacity of MATH.md from what the server can hold.

    `kv_tokens`: of the replica's KV cache, None where it does not say; `context_tokens`: of an average sequence.
    Raises CalibrationFailed.
    """
    base_s, per_token_s = line([(p.prompt_tokens, p.seconds) for p in measured.prefills])
    by_level: dict[int, list[float]] = {}
    for decode in measured.decodes:
        by_level.setdefault(decode.concurrency, []).append(decode.token_s)
    token_s = {level: median(values) for level, values in sorted(by_level.items())}
    if not token_s or min(token_s.values()) <= 0:
        raise CalibrationFailed("a token took no time at all: measure longer outputs")
    several = len(token_s) > 1
    step_base_s, step_per_s = line(list(token_s.items())) if several else (None, None)
    nearest = min(token_s, key=lambda level: (abs(level - at), level))
    capacity, notes = _capacity(token_s, max_num_seqs, kv_tokens, context_tokens)
    rates = ServiceRates(
        decode_tokens_per_s=1 / token_s[nearest],
        prefill_base_s=base_s,
        prefill_per_token_s=per_token_s,
        concurrency=nearest,
        capacity=capacity,
        source="calibrated",
        step_base_s=step_base_s,
        step_per_sequence_s=step_per_s,
    )
    levels = tuple(
        Level(concurrency=level, calls=len(by_level[level]), token_s=seconds, fitted_s=rates.step_s(level))
        for level, seconds in token_s.items()
    )
    prefill_residual = residual([(p.seconds, rates.prefill_s(p.prompt_tokens)) for p in measured.prefills])
    step_residual = residual([(level.token_s, level.fitted_s) for level in levels]) if several else 0.0
    for name, found in (("prefill", prefill_residual), ("decode", step_residual)):
        if found > ROUGH:
            notes.append(f"the line through the {name} times misses them by {found:.0%}: repeat it on a quiet server")
    return Calibration(
        rates=rates,
        levels=levels,
        prefills=measured.prefills,
        prefill_residual=prefill_residual,
        step_residual=step_residual,
        notes=tuple(notes),
    )


def _capacity(
    token_s: dict[int, float], max_num_seqs: int, kv_tokens: int | None, context_tokens: float
) -> tuple[int, list[str]]:
    """min(max_num_seqs, sequences in the KV cache, largest concurrency at most MAX_SLOWDOWN slower), and remarks."""
    single_s, notes = token_s[min(token_s)], list[str]()
    slow = [level for level, seconds in token_s.items() if seconds > MAX_SLOWDOWN * single_s]
    fast = max(level for level in token_s if not slow or level < min(slow))
    held = max_num_seqs
    if kv_tokens is None:
        notes.append("the server does not say how many tokens its KV cache holds: the capacity does not look at it")
    else:
        held = max(1, int(kv_tokens / context_tokens))
    if not slow and fast < min(max_num_seqs, held):
        notes.append(f"no concurrency up to {fast} was {MAX_SLOWDOWN:g} times slower: the capacity may be larger")
    return min(max_num_seqs, held, fast), notes


def line(points: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """(base, slope) of the least squares line through (x, y), neither below 0.

    Raises CalibrationFailed where all x are the same.
    """
    found = list(points)
    mean_x, mean_y = sum(x for x, _ in found) / len(found), sum(y for _, y in found) / len(found)
    spread = sum((x - mean_x) ** 2 for x, _ in found)
    if spread <= 0:
        raise CalibrationFailed("a line needs measurements at two different sizes")
    slope = max(0.0, sum((x - mean_x) * (y - mean_y) for x, y in found) / spread)
    base = mean_y - slope * mean_x
    if base < 0:
        # The best line through the origin, since nothing takes less than no time.
        return 0.0, max(0.0, sum(x * y for x, y in found) / sum(x * x for x, _ in found))
    return base, slope


def residual(pairs: Sequence[tuple[float, float]]) -> float:
    """Root mean square of measured less fitted, over the mean of what was measured; 0 for none."""
    mean = sum(measured for measured, _ in pairs) / len(pairs) if pairs else 0.0
    if mean <= 0:
        return 0.0
    return sqrt(sum((measured - fitted) ** 2 for measured, fitted in pairs) / len(pairs)) / mean


def with_time_scale(calibration: Calibration, time_scale: float) -> Calibration:
    """The same figures, said to come from an emulator whose durations are divided by `time_scale`."""
    return replace(calibration, rates=replace(calibration.rates, time_scale=time_scale))
