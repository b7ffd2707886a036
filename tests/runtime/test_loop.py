from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError

import pytest

from runtime.loop import LoopThread, every


async def serve(ready: Callable[[], None]) -> None:
    ready()
    await asyncio.Event().wait()


def test_a_loop_runs_coroutines_of_other_threads() -> None:
    loop = LoopThread(serve, on_broken=lambda: None)
    loop.start()

    async def answer() -> str:
        return threading.current_thread().name

    assert loop.submit(answer()).result() == "dyserve-loop"
    loop.stop()
    with pytest.raises(RuntimeError, match="not running"):
        loop.submit(answer())
    loop.call_soon(lambda: None)


def test_a_main_that_fails_before_it_is_ready_fails_the_start() -> None:
    async def fail(ready: Callable[[], None]) -> None:
        raise ValueError("no")

    broken = threading.Event()
    with pytest.raises(RuntimeError, match="could not start"):
        LoopThread(fail, on_broken=broken.set).start()
    assert broken.is_set()


def test_a_main_that_fails_later_is_told() -> None:
    now = asyncio.Event()

    async def fail_later(ready: Callable[[], None]) -> None:
        ready()
        await now.wait()
        raise ValueError("no")

    broken = threading.Event()
    loop = LoopThread(fail_later, on_broken=broken.set)
    loop.start()
    loop.call_soon(now.set)
    assert broken.wait(timeout=30)


def test_nobody_waits_for_a_loop_that_has_ended() -> None:
    started = threading.Event()

    async def wait_for_ever() -> None:
        started.set()
        await asyncio.Event().wait()

    loop = LoopThread(serve, on_broken=lambda: None)
    loop.start()
    future = loop.submit(wait_for_ever())
    assert started.wait(timeout=30)
    loop.stop()
    with pytest.raises(CancelledError):
        future.result()
    with pytest.raises(RuntimeError, match="not running"):
        loop.start()


async def test_an_expected_error_is_said_once_and_work_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    outcomes = [ConnectionRefusedError("no"), ConnectionRefusedError("no"), None, ConnectionRefusedError("no")]
    done = asyncio.Event()

    async def step() -> None:
        if not outcomes:
            done.set()
            return
        outcome = outcomes.pop(0)
        if outcome is not None:
            raise outcome

    with caplog.at_level("INFO", logger="runtime.loop"):
        task = asyncio.create_task(every(0.0, "the thing", step, (OSError,)))
        await done.wait()
        await asyncio.sleep(0)
        task.cancel()
    said = [record.levelname for record in caplog.records]
    assert said == ["WARNING", "INFO", "WARNING", "INFO"]


@pytest.mark.parametrize("error", [ConnectionResetError("the clean-up failed"), None], ids=["replaced", "swallowed"])
async def test_a_lost_cancellation_does_not_keep_the_task_alive(error: Exception | None) -> None:
    started = asyncio.Event()

    async def step() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if error is not None:
                raise error from None

    task = asyncio.create_task(every(0.0, "the thing", step, (OSError,)))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_defect_is_not_hidden() -> None:
    async def step() -> None:
        raise KeyError("bug")

    with pytest.raises(KeyError):
        await every(0.0, "the thing", step, (OSError,))
