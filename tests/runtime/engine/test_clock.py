from __future__ import annotations

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.engine.clock import Deadlock, SystemClock, VirtualClock, run_virtual


def test_time_jumps_instead_of_passing() -> None:
    async def main() -> tuple[float, float]:
        clock = VirtualClock(start=1_700_000_000.0)
        before = clock.now()
        await clock.sleep(7 * 86_400)
        return before, clock.now()

    assert run_virtual(main()) == (1_700_000_000.0, 1_700_604_800.0)


def test_no_time_passes_while_code_runs() -> None:
    async def main() -> float:
        for _ in range(1000):
            await asyncio.sleep(0)
        return VirtualClock().now()

    assert run_virtual(main()) == 0.0


@given(st.lists(st.sampled_from([0.5, 1.0, 1.5]), max_size=40))
def test_timers_of_one_moment_keep_the_order_they_were_set_in(delays: list[float]) -> None:
    fired: list[int] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for index, delay in enumerate(delays):
            loop.call_later(delay, fired.append, index)
        await asyncio.sleep(2)

    run_virtual(main())
    assert fired == sorted(range(len(delays)), key=lambda index: delays[index])


def test_a_sum_of_many_small_waits_is_exact_enough() -> None:
    async def main() -> float:
        for _ in range(10_000):
            await asyncio.sleep(0.1)
        return VirtualClock().now()

    assert run_virtual(main()) == pytest.approx(1000.0)


def test_cancelled_timers_do_not_move_the_clock() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        for _ in range(500):
            loop.call_later(5, print).cancel()
        await asyncio.sleep(1)
        return loop.time()

    assert run_virtual(main()) == 1.0


def test_asyncio_timeouts_are_virtual() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await asyncio.Event().wait()
        return VirtualClock().now()

    assert run_virtual(main()) == 30.0


def test_waiting_for_nothing_is_a_deadlock() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match="every task waits"):
        run_virtual(main())


def test_a_deadlock_still_cleans_up() -> None:
    cleaned: list[str] = []

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append("yes")

    with pytest.raises(Deadlock):
        run_virtual(waits())
    assert cleaned == ["yes"]


async def test_the_system_clock_counts_epoch_seconds() -> None:
    clock = SystemClock()
    earliest = time.time()
    await clock.sleep(0)
    assert earliest <= clock.now() <= time.time()
