"""One look at a replica, now, for a person: health, version, served models, metrics."""

from __future__ import annotations

from dataclasses import dataclass

from asgiref.sync import async_to_sync

from fleet.models import Replica
from fleet.selectors import api_key
from fleet.services import address_policy
from fleet.serving.addresses import AddressPolicy
from fleet.serving.client import ServingClient
from fleet.serving.errors import ServingError
from fleet.serving.metrics import MetricsPage

PROBE_TIMEOUT_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """`ok`: healthy and it serves the backend's model. `text` says what was found, or what is wrong and the remedy."""

    ok: bool
    text: str
    version: str = ""
    served: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def probe_replica(replica: Replica) -> ProbeResult:
    """Asks now; never raises for what a replica does. A replica that hangs is left after PROBE_TIMEOUT_S."""
    backend = replica.backend
    wanted = backend.served_name or backend.model_class.name
    return async_to_sync(_probe)(replica.url, api_key(replica), wanted, address_policy())


async def _probe(url: str, key: str | None, wanted: str, policy: AddressPolicy) -> ProbeResult:
    """Stops at the first request that fails: a replica that hangs costs one time-out."""
    async with ServingClient(policy=policy) as client:
        try:
            await client.health(url, api_key=key, timeout_s=PROBE_TIMEOUT_S)
            served = await client.models(url, api_key=key, timeout_s=PROBE_TIMEOUT_S)
            page = await client.metrics(url, api_key=key, timeout_s=PROBE_TIMEOUT_S)
        except ServingError as error:
            return ProbeResult(ok=False, text=str(error))
        version = await _version(client, url, key)
    return judge(wanted, tuple(model.name for model in served), page, version)


async def _version(client: ServingClient, url: str, key: str | None) -> str:
    """Empty for a server that does not say: it serves all the same."""
    try:
        return await client.version(url, api_key=key, timeout_s=PROBE_TIMEOUT_S)
    except ServingError:
        return ""


def judge(wanted: str, served: tuple[str, ...], page: MetricsPage, version: str) -> ProbeResult:
    """What a person needs to know of a replica that answered."""
    if wanted not in served:
        names = ", ".join(served) or "no model"
        text = f"serves {names}, not {wanted}: correct the backend's served name"
        return ProbeResult(ok=False, text=text, version=version, served=served, missing=page.missing)
    text = f"healthy, serves {wanted}" + (f", version {version}" if version else "")
    if page.missing:
        text += f"; its metrics ({page.dialect}) lack {', '.join(page.missing)}: its load will be unknown"
    return ProbeResult(ok=True, text=text, version=version, served=served, missing=page.missing)
