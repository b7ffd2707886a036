import asyncio
import json
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

from fleet.common.feeds import Feed, shared
from tests.served import until


class Counter:
    """A source that counts how often it was asked, and fails when told to."""

    def __init__(self) -> None:
        self.asked = 0
        self.failing = False

    async def __call__(self) -> Mapping[str, Any]:
        self.asked += 1
        if self.failing:
            raise OSError("away")
        return {"n": self.asked}


async def test_all_watchers_share_one_document() -> None:
    source = Counter()
    feed = Feed(source, interval_s=0.001)
    async with aclosing(feed.documents()) as one, aclosing(feed.documents()) as two:
        first = await anext(one)
        assert json.loads(first) == {"n": 1}
        assert await anext(two) is first
        assert json.loads(await anext(one))["n"] > 1
    assert feed.watchers == 0


async def test_a_slow_watcher_skips_documents() -> None:
    source = Counter()
    feed = Feed(source, interval_s=0.0)
    async with aclosing(feed.documents()) as slow, aclosing(feed.documents()) as quick:
        await anext(slow)
        for _ in range(10):
            await anext(quick)
        assert json.loads(await anext(slow))["n"] >= 10


async def test_nothing_is_made_while_nobody_watches() -> None:
    source = Counter()
    feed = Feed(source, interval_s=0.0)
    async with aclosing(feed.documents()) as documents:
        await anext(documents)
    asked = source.asked
    for _ in range(20):
        await asyncio.sleep(0)
    assert source.asked == asked


async def test_a_source_that_fails_for_a_while_does_not_end_the_feed() -> None:
    source = Counter()
    feed = Feed(source, interval_s=0.0)
    async with aclosing(feed.documents()) as documents:
        await anext(documents)
        source.failing = True
        waiting = asyncio.ensure_future(anext(documents))
        await until(lambda: source.asked >= 5)
        source.failing = False
        assert json.loads(await waiting)["n"] > 5


async def test_a_shared_feed_is_forgotten_after_its_last_watcher() -> None:
    old, new = Counter(), Counter()
    async with aclosing(shared("key", old)) as first:
        await anext(first)
        async with aclosing(shared("key", new)) as second:
            await anext(second)
    assert (old.asked > 0, new.asked) == (True, 0)
    async with aclosing(shared("key", new)) as third:
        assert json.loads(await anext(third)) == {"n": 1}
