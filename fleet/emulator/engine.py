"""Continuous batching of one replica in virtual time (ours): a pure state machine, advanced from event to event.

Waiting requests are admitted first come first served while a sequence slot and KV cache for prompt AND planned output
are free; so nothing is ever preempted, unlike in vLLM. Prefills run one after the other; meanwhile decoding runs at
`1 - PREFILL_STALL` of its speed. All decoding sequences advance in step, one token per `roofline.step_s` of the present
batch and context, so the state between two events is a straight line: instead of a tick per token there is one token
clock of the whole batch, and a sequence is done when that clock reaches its target: the cost is per event, not
per token.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from fleet.serving.roofline import PREFILL_STALL, Hardware, ModelSpec, prefill_s, step_s

EPOCH_TOKENS = 128.0
"""The context in the step time is refreshed at least this often; between, it is taken as constant."""

# An event closer than this is due: far above the rounding of a clock that has run for months, far below a step.
PREFILL_SLACK_S = 1e-6
TOKEN_SLACK = 1e-4

EventKind = Literal["first_token", "finished"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one replica can hold. `max_queued` None: any number of waiting requests."""

    hardware: Hardware
    model: ModelSpec
    max_num_seqs: int
    kv_tokens: int
    max_queued: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Virtual seconds."""

    arrived_at: float
    admitted_at: float
    first_token_at: float
    finished_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """The first token or the end of a request at a virtual time; `timings` at the end only."""

    kind: EventKind
    id: int
    at: float
    timings: Timings | None = None


class QueueFull(Exception):
    """The request would wait and as many as allowed already do; `events` happened up to that moment."""

    def __init__(self, events: list[Event]) -> None:
        super().__init__("the queue is full")
        self.events = events


class TooLarge(ValueError):
    """A request that fits on no empty replica: the caller must refuse it before it is submitted."""


@dataclass(slots=True)
class _Sequence:
    id: int
    prompt_tokens: int
    output_tokens: int
    arrived_at: float
    admitted_at: float = 0.0
    prefill_left_s: float = 0.0
    first_token_at: float | None = None
    joined: float = 0.0  # the token clock when decoding began

    @property
    def reserved(self) -> int:
        return self.prompt_tokens + self.output_tokens

    def tokens_done(self, clock: float) -> int:
        if self.first_token_at is None:
            return 0
        return min(self.output_tokens, 1 + int(clock - self.joined + TOKEN_SLACK))


@dataclass(slots=True)
class Engine:
    """One replica's scheduler. Every method takes virtual `now`, which never decreases.

    Events of `submit`, `cancel` and `advance` must all be handled: an event is returned exactly once.
    """

    limits: Limits
    _now: float = 0.0
    _waiting: deque[_Sequence] = field(default_factory=deque)
    _running: dict[int, _Sequence] = field(default_factory=dict)
    _prefills: deque[_Sequence] = field(default_factory=deque)
    _targets: list[tuple[float, int]] = field(default_factory=list)
    _decoding: int = 0
    _clock: float = 0.0
    _base_context: float = 0.0  # sum over decoding sequences of prompt + 1 - joined: context = base + decoding * clock
    _reserved: int = 0
    _prompt_total: int = 0
    _output_total: int = 0

    # --- What it holds ---

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def reserved_tokens(self) -> int:
        return self._reserved

    @property
    def held_tokens(self) -> int:
        """KV cache in use: prompts that were admitted and the tokens generated so far."""
        return sum(seq.prompt_tokens + seq.tokens_done(self._clock) for seq in self._running.values())

    @property
    def prompt_tokens_total(self) -> int:
        return self._prompt_total

    @property
    def output_tokens_total(self) -> int:
        return self._output_total + sum(seq.tokens_done(self._clock) for seq in self._running.values())

    def tokens_done(self, id_: int) -> int:
        """Output tokens of a running request so far, 0 while it waits. Advance first."""
        sequence = self._running.get(id_)
        return sequence.tokens_done(self._clock) if sequence else 0

    # --- What happens to it ---

    def submit(self, id_: int, prompt_tokens: int, output_tokens: int, now: float) -> list[Event]:
        """Takes a request and returns what happened up to `now`. Raises TooLarge, and QueueFull with those events."""
        if prompt_tokens < 1 or output_tokens < 1:
            raise TooLarge("a request has at least one prompt and one output token")
        if prompt_tokens + output_tokens > self.limits.kv_tokens:
            raise TooLarge(f"{prompt_tokens + output_tokens} tokens do not fit into {self.limits.kv_tokens}")
        events = self.advance(now)
        sequence = _Sequence(id=id_, prompt_tokens=prompt_tokens, output_tokens=output_tokens, arrived_at=now)
        full = self.limits.max_queued is not None and len(self._waiting) >= self.limits.max_queued
        if full and (self._waiting or not self._fits(sequence)):
            raise QueueFull(events)
        self._waiting.append(sequence)
        self._admit()
        return events

    def cancel(self, id_: int, now: float) -> list[Event]:
        """Forgets a request and frees what it held; unknown and finished ones are ignored."""
        events = self.advance(now)
        sequence = self._running.get(id_)
        if sequence is None:
            self._waiting = deque(item for item in self._waiting if item.id != id_)
            return events
        self._output_total += sequence.tokens_done(self._clock)
        if sequence.first_token_at is None:
            self._prefills.remove(sequence)
        else:
            self._leave_batch(sequence)
        self._release(sequence)
        self._admit()
        return events

    def advance(self, now: float) -> list[Event]:
        """Moves virtual time to `now` and returns what happened, in order."""
        events: list[Event] = []
        while True:
            at = self.next_event_at()
            if at is None or at > now:
                break
            self._move(at)
            events += self._due()
        self._move(max(now, self._now))
        return events

    def next_event_at(self) -> float | None:
        """When `advance` has something to do next (a first token, an end, a refresh); None while idle."""
        candidates: list[float] = []
        if self._prefills:
            candidates.append(self._now + self._prefills[0].prefill_left_s)
        if self._decoding:
            tokens = min(self._next_target() - self._clock, EPOCH_TOKENS)
            candidates.append(self._now + max(0.0, tokens) / self._tokens_per_s())
        return min(candidates, default=None)

    # --- How it moves ---

    def _tokens_per_s(self) -> float:
        """The token clock's speed: tokens a second of EACH decoding sequence."""
        context = self._base_context + self._decoding * self._clock
        speed = 1 / step_s(self.limits.hardware, self.limits.model, self._decoding, max(0.0, context))
        return speed * (1 - PREFILL_STALL) if self._prefills else speed

    def _next_target(self) -> float:
        while self._targets and self._stale(self._targets[0]):
            heapq.heappop(self._targets)
        return self._targets[0][0]

    def _stale(self, target: tuple[float, int]) -> bool:
        """A target whose sequence was cancelled."""
        return target[1] not in self._running

    def _move(self, at: float) -> None:
        elapsed_s = at - self._now
        if self._decoding:
            self._clock += elapsed_s * self._tokens_per_s()
        if self._prefills:
            self._prefills[0].prefill_left_s -= elapsed_s
        self._now = at

    def _due(self) -> list[Event]:
        """Everything whose moment is now."""
        events: list[Event] = []
        if self._prefills and self._prefills[0].prefill_left_s <= PREFILL_SLACK_S:
            events += self._first_token(self._prefills.popleft())
        while self._decoding and self._next_target() <= self._clock + TOKEN_SLACK:
            _, id_ = heapq.heappop(self._targets)
            sequence = self._running[id_]
            self._leave_batch(sequence)
            events.append(self._finish(sequence))
        self._admit()
        return events

    def _first_token(self, sequence: _Sequence) -> list[Event]:
        sequence.first_token_at, sequence.joined = self._now, self._clock
        self._prompt_total += sequence.prompt_tokens
        events = [Event(kind="first_token", id=sequence.id, at=self._now)]
        if sequence.output_tokens == 1:
            return [*events, self._finish(sequence)]
        self._decoding += 1
        self._base_context += sequence.prompt_tokens + 1 - sequence.joined
        heapq.heappush(self._targets, (self._clock + sequence.output_tokens - 1, sequence.id))
        return events

    def _leave_batch(self, sequence: _Sequence) -> None:
        self._decoding -= 1
        self._base_context -= sequence.prompt_tokens + 1 - sequence.joined
        if not self._decoding:  # start the clock anew: no rounding error outlives a busy period
            self._clock, self._base_context = 0.0, 0.0
            self._targets.clear()

    def _finish(self, sequence: _Sequence) -> Event:
        self._output_total += sequence.output_tokens
        self._release(sequence)
        timings = Timings(
            arrived_at=sequence.arrived_at,
            admitted_at=sequence.admitted_at,
            first_token_at=self._now if sequence.first_token_at is None else sequence.first_token_at,
            finished_at=self._now,
        )
        return Event(kind="finished", id=sequence.id, at=self._now, timings=timings)

    def _release(self, sequence: _Sequence) -> None:
        del self._running[sequence.id]
        self._reserved -= sequence.reserved

    def _fits(self, sequence: _Sequence) -> bool:
        free = self.limits.kv_tokens - self._reserved
        return len(self._running) < self.limits.max_num_seqs and sequence.reserved <= free

    def _admit(self) -> None:
        """First come first served: the head waits for room and nobody overtakes it."""
        while self._waiting and self._fits(self._waiting[0]):
            sequence = self._waiting.popleft()
            sequence.admitted_at = self._now
            sequence.prefill_left_s = prefill_s(self.limits.hardware, self.limits.model, sequence.prompt_tokens)
            self._running[sequence.id] = sequence
            self._reserved += sequence.reserved
            self._prefills.append(sequence)
