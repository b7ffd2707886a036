"""WebSockets carry a browser's cookies to any page that opens one, so only our own pages may (DESIGN.md, Security)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from django.http.request import validate_host

App = Callable[[Any, Any, Any], Awaitable[None]]
FORBIDDEN = 4403


class SameOrigin:
    """Lets a socket through whose Origin is the very address it was opened on, port included, or a trusted one.

    Channels' AllowedHostsOriginValidator compares host names alone. Cookies do not know ports, so with it a page that
    another program serves on this host could read along. A missing Origin is refused: programs use the API's streams.
    """

    def __init__(self, app: App, *, hosts: Iterable[str], trusted: Iterable[str]) -> None:
        self._app, self._hosts, self._trusted = app, list(hosts), frozenset(trusted)

    async def __call__(self, scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        headers = dict(scope["headers"])
        origin, host = headers.get(b"origin", b"").decode("latin-1"), headers.get(b"host", b"").decode("latin-1")
        if self._may(origin, host):
            await self._app(scope, receive, send)
        else:
            await receive()
            await send({"type": "websocket.close", "code": FORBIDDEN})

    def _may(self, origin: str, host: str) -> bool:
        try:
            address = urlsplit(origin)
            name = f"[{address.hostname}]" if ":" in (address.hostname or "") else address.hostname or ""
        except ValueError:  # no address at all
            return False
        return origin in self._trusted or (address.netloc == host and validate_host(name, self._hosts))
