"""Continuous batching: nothing lost, nothing beyond its limits, first come first served, slower in larger batches."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.emulator.engine import Engine, Event, Limits, QueueFull, TooLarge
from fleet.serving.roofline import H200, PREFILL_STALL, QWEN35_9B, prefill_s, step_s
from tests.sampling import sampled


def _engine(max_num_seqs: int = 4, kv_tokens: int = 2000, max_queued: int | None = None) -> Engine:
    return Engine(
        Limits(hardware=H200, model=QWEN35_9B, max_num_seqs=max_num_seqs, kv_tokens=kv_tokens, max_queued=max_queued)
    )


def _drain(engine: Engine) -> list[Event]:
    """Advances from event to event until nothing is left."""
    events: list[Event] = []
    while (at := engine.next_event_at()) is not None:
        events += engine.advance(at)
    return events


def test_a_single_request_takes_prefill_and_steps() -> None:
    engine = _engine()
    engine.submit(1, 100, 51, 5.0)
    first, last = _drain(engine)
    assert first.at == pytest.approx(5 + prefill_s(H200, QWEN35_9B, 100))
    assert last.timings is not None
    assert last.timings.first_token_at == first.at
    assert last.at - first.at == pytest.approx(50 * step_s(H200, QWEN35_9B, 1, 125), rel=0.01)


def test_one_token_ends_with_the_prefill() -> None:
    engine = _engine()
    engine.submit(1, 100, 1, 0.0)
    first, last = _drain(engine)
    assert (first.kind, last.kind) == ("first_token", "finished")
    assert first.at == last.at == pytest.approx(prefill_s(H200, QWEN35_9B, 100))


def test_a_prefill_slows_the_decoding_of_others() -> None:
    def output_after(second_prompt: int | None) -> float:
        engine = _engine(kv_tokens=100_000)
        engine.submit(1, 10, 500, 0.0)
        at = engine.advance(1.0)[0].at
        assert at < 1.0
        if second_prompt:
            engine.submit(2, second_prompt, 1, 1.0)
        engine.advance(1.5)
        return float(engine.tokens_done(1))

    alone, disturbed = output_after(None), output_after(10_000)
    stalled_s = prefill_s(H200, QWEN35_9B, 10_000)
    step = step_s(H200, QWEN35_9B, 1, 200)
    assert alone - disturbed == pytest.approx(stalled_s * PREFILL_STALL / step, abs=3)


@given(batch=st.integers(1, 7))
def test_time_per_token_grows_with_the_batch(batch: int) -> None:
    def duration(count: int) -> float:
        engine = _engine(max_num_seqs=16, kv_tokens=10**6)
        for id_ in range(count):
            engine.submit(id_, 10, 400, 0.0)
        ends = [event.at for event in _drain(engine) if event.kind == "finished"]
        return max(ends) - count * prefill_s(H200, QWEN35_9B, 10)

    assert duration(batch + 1) > duration(batch)


def test_progress_is_counted_between_events() -> None:
    engine = _engine()
    engine.submit(1, 100, 400, 0.0)
    assert engine.tokens_done(1) == 0
    seen = []
    for step in range(1, 20):
        engine.advance(step * 0.1)
        seen.append(engine.tokens_done(1))
    assert seen == sorted(seen)
    assert 0 < seen[0] < seen[-1]
    assert engine.output_tokens_total == seen[-1]
    assert engine.held_tokens == 100 + seen[-1]


def test_the_queue_limit_refuses_only_what_would_wait() -> None:
    engine = _engine(max_num_seqs=1, max_queued=1)
    engine.submit(1, 10, 10, 0.0)
    engine.submit(2, 10, 10, 0.0)
    with pytest.raises(QueueFull):
        engine.submit(3, 10, 10, 0.0)
    assert (engine.running, engine.waiting) == (1, 1)
    assert {event.id for event in _drain(engine)} == {1, 2}
    strict = _engine(max_num_seqs=1, max_queued=0)
    strict.submit(1, 10, 10, 0.0)
    with pytest.raises(QueueFull):
        strict.submit(2, 10, 10, 0.0)


def test_a_refusal_still_reports_what_happened_meanwhile() -> None:
    engine = _engine(max_num_seqs=1, max_queued=0)
    engine.submit(1, 10, 400, 0.0)
    with pytest.raises(QueueFull) as caught:
        engine.submit(2, 10, 10, 0.5)
    assert [event.kind for event in caught.value.events] == ["first_token"]


def test_what_can_never_fit_is_refused() -> None:
    for prompt, output in ((1500, 501), (0, 1), (1, 0)):
        with pytest.raises(TooLarge):
            _engine().submit(1, prompt, output, 0.0)


def test_a_large_request_at_the_head_is_not_overtaken() -> None:
    engine = _engine(max_num_seqs=4, kv_tokens=1000)
    engine.submit(1, 500, 100, 0.0)
    engine.submit(2, 500, 100, 0.0)
    engine.submit(3, 10, 10, 0.0)
    assert (engine.running, engine.waiting) == (1, 2)
    firsts = [event.id for event in _drain(engine) if event.kind == "first_token"]
    assert firsts == [1, 2, 3]


@pytest.mark.parametrize("at", [0.0, 0.001, 0.5])
def test_cancelling_frees_the_slot_in_every_phase(at: float) -> None:
    engine = _engine(max_num_seqs=1)
    for id_ in (1, 2, 3):
        engine.submit(id_, 100, 300, 0.0)
    events = engine.cancel(1, at) + engine.cancel(3, at) + engine.cancel(99, at)
    assert (engine.running, engine.waiting, engine.reserved_tokens) == (1, 0, 400)
    events += _drain(engine)
    assert [event.id for event in events if event.kind == "finished"] == [2]
    assert (engine.reserved_tokens, engine.held_tokens) == (0, 0)


def test_a_clock_that_has_run_for_months_still_moves() -> None:
    engine = _engine()
    engine.submit(1, 100, 300, 1e8)
    engine.submit(2, 100, 200, 1e8)
    assert sum(event.kind == "finished" for event in _drain(engine)) == 2


@dataclass
class _Watch:
    """Checks the limits at every event and remembers the order of admissions."""

    engine: Engine
    started: list[int] = field(default_factory=list)
    finished: list[int] = field(default_factory=list)
    output_total: int = 0

    def take(self, events: list[Event]) -> None:
        limits = self.engine.limits
        assert self.engine.running <= limits.max_num_seqs
        assert self.engine.held_tokens <= self.engine.reserved_tokens <= limits.kv_tokens
        assert self.engine.output_tokens_total >= self.output_total
        self.output_total = self.engine.output_tokens_total
        self.started += [event.id for event in events if event.kind == "first_token"]
        self.finished += [event.id for event in events if event.kind == "finished"]


JOBS = st.lists(
    st.tuples(st.floats(0, 0.5), st.integers(1, 900), st.integers(1, 600), st.booleans()), min_size=1, max_size=25
)


@given(jobs=JOBS, max_num_seqs=st.integers(1, 6))
@sampled(60)
def test_nothing_is_lost_and_no_limit_is_passed(jobs: list[tuple[float, int, int, bool]], max_num_seqs: int) -> None:
    watch = _Watch(_engine(max_num_seqs=max_num_seqs))
    now, cancelled = 0.0, set[int]()
    for id_, (gap_s, prompt, output, cancel_previous) in enumerate(jobs):
        now += gap_s
        while (at := watch.engine.next_event_at()) is not None and at <= now:
            watch.take(watch.engine.advance(at))
        watch.take(watch.engine.submit(id_, prompt, output, now))
        if cancel_previous and id_ and id_ - 1 not in watch.finished:
            cancelled.add(id_ - 1)
            watch.take(watch.engine.cancel(id_ - 1, now))
    while (at := watch.engine.next_event_at()) is not None:
        watch.take(watch.engine.advance(at))
    assert sorted(watch.finished) == sorted(set(range(len(jobs))) - cancelled)
    assert watch.started == sorted(watch.started)
    assert (watch.engine.running, watch.engine.waiting, watch.engine.reserved_tokens) == (0, 0, 0)
    delivered = sum(output for id_, (_, _, output, _) in enumerate(jobs) if id_ not in cancelled)
    assert watch.engine.output_tokens_total >= delivered


@given(jobs=JOBS, cuts=st.lists(st.floats(0, 20), max_size=10))
@sampled(30)
def test_looking_more_often_changes_nothing(jobs: list[tuple[float, int, int, bool]], cuts: list[float]) -> None:
    def ends(looks: list[float]) -> dict[int, float]:
        engine = _engine()
        events: list[Event] = []
        for id_, (_, prompt, output, _) in enumerate(jobs):
            events += engine.submit(id_, prompt, output, 0.0)
        for at in sorted(looks):
            events += engine.advance(at)
        events += _drain(engine)
        return {event.id: event.at for event in events if event.kind == "finished"}

    seldom, often = ends([]), ends(cuts)
    assert often == pytest.approx(seldom, rel=0.02)
