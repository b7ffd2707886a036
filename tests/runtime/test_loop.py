from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from runtime.loop import LoopThread, every


class Broken(threading.Event):
    """Hears that the loop broke."""


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

    broken = Broken()
    with pytest.raises(RuntimeError, match="could not start"):
        LoopThread(fail, on_broken=broken.set).start()
    assert not broken.is_set()


def test_a_main_that_fails_later_is_told() -> None:
    async def fail_later(ready: Callable[[], None]) -> None:
        ready()
        await asyncio.sleep(0)
        raise ValueError("no")

    broken = Broken()
    LoopThread(fail_later, on_broken=broken.set).start()
    assert broken.wait(timeout=30)


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


async def test_a_defect_is_not_hidden() -> None:
    async def step() -> None:
        raise KeyError("bug")

    with pytest.raises(KeyError):
        await every(0.0, "the thing", step, (OSError,))
