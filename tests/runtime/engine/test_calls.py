from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from planner.compiler.policies import POLICIES
from runtime.engine.calls import LlmTask, Place, request_id, seed_of
from tests.runtime.engine.samples import impl, llm

TASK = LlmTask(
    run_id="run_" + "0" * 26,
    epoch=3,
    node=llm("n" * 64),
    attempt=1,
    binding=impl(),
    policy=POLICIES["none"],
    run_seed=7,
    system="",
    prompt="",
)

places = st.builds(Place, stage=st.integers(0, 5), position=st.integers(0, 20), copy=st.just(0), ask=st.integers(0, 2))


@given(st.lists(places, unique=True, min_size=2))
def test_request_ids_are_unique_in_an_invocation_and_short_enough(found: list[Place]) -> None:
    ids = [request_id(TASK, place) for place in found]
    assert len(set(ids)) == len(ids)
    assert max(map(len, ids)) <= 120


def test_a_takeover_has_its_own_request_ids_but_the_same_seeds() -> None:
    place, taken_over = Place(stage=0, position=1, copy=1), replace(TASK, epoch=4)
    assert request_id(TASK, place) != request_id(taken_over, place)
    assert seed_of(TASK, place) == seed_of(taken_over, place)


@given(st.integers(0, 2**31), st.integers(0, 5))
def test_seeds_of_one_stage_are_distinct_and_fit_31_bits(run_seed: int, stage: int) -> None:
    task = replace(TASK, run_seed=run_seed)
    seats = [Place(stage=stage, position=position, copy=0, ask=ask) for position in range(20) for ask in range(3)]
    seeds = [seed_of(task, seat) for seat in seats]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**31 for seed in seeds)
