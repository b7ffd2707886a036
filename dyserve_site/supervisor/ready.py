"""Waits for /readyz and says what is still missing (UX.md, API)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import httpx

POLL_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """`missing` holds a line for each check that is not green: its name and the remedy."""

    ready: bool
    missing: tuple[str, ...] = ()


async def ask(client: httpx.AsyncClient, url: str) -> Readiness:
    """One look at /readyz; a server that does not answer is not ready."""
    try:
        response = await client.get(url)
        body = response.json()
    except (httpx.HTTPError, ValueError) as error:  # no JSON: another program's answer
        return Readiness(ready=False, missing=(f"web: {type(error).__name__}",))
    failed = [check for check in body["checks"] if not check["ok"]]
    missing = tuple(f"{check['name']}: {check.get('detail', '')} {check.get('remedy', '')}".strip() for check in failed)
    return Readiness(ready=response.status_code == 200, missing=missing)


async def wait_ready(
    base_url: str, timeout_s: float, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> Readiness:
    """Returns as soon as /readyz is green, or the last answer after `timeout_s`."""
    last = Readiness(ready=False)
    # The environment's proxies know nothing of an instance on this machine.
    async with httpx.AsyncClient(timeout=5.0, trust_env=False) as client:
        try:
            async with asyncio.timeout(timeout_s):
                while not (last := await ask(client, f"{base_url}/readyz")).ready:
                    await sleep(POLL_S)
        except TimeoutError:
            pass
    return last
