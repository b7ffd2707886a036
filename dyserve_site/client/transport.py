"""HTTP underneath the client: timeouts, typed errors, server-sent events."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import httpx

from dyserve_site.client.errors import Unreachable, error_of

Params = Mapping[str, str | int | float]


class Transport:
    """Raises Unreachable and the ApiErrors; never follows redirects."""

    def __init__(self, url: str, token: str, *, timeout_s: float) -> None:
        self._http = httpx.Client(
            base_url=url.rstrip("/") + "/api/v1",
            headers={"Authorization": f"Bearer {token}", "Accept": "application/json"},
            timeout=timeout_s,
            # The environment's proxies know nothing of an instance on this machine.
            trust_env=False,
        )

    def close(self) -> None:
        self._http.close()

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            response = self._http.request(method, path, **options)
        except httpx.HTTPError as error:
            raise Unreachable(f"{self._http.base_url}: {str(error) or type(error).__name__}") from error
        if not response.is_success:
            raise error_of(response)
        return response

    def get(self, path: str, params: Params | None = None) -> Any:
        return self.request("GET", path, params=params).json()

    def post(self, path: str, body: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None) -> Any:
        return self.request("POST", path, json=body, headers=headers).json()

    def items(self, path: str, params: Params | None = None) -> Iterator[Any]:
        """Every item of every page."""
        query = dict(params or {})
        while True:
            data = self.get(path, query)
            yield from data["items"]
            if data["next"] is None:
                return
            query["cursor"] = data["next"]

    def stream(self, path: str, *, last_id: int, silence_s: float) -> Iterator[tuple[str, Any]]:
        """(event, data) of one SSE connection, until it ends. Raises Unreachable after `silence_s` without a byte."""
        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(last_id)}
        timeout = httpx.Timeout(silence_s, connect=self._http.timeout.connect)
        try:
            with self._http.stream("GET", path, headers=headers, timeout=timeout) as response:
                if not response.is_success:
                    response.read()
                    raise error_of(response)
                yield from sse_messages(response.iter_lines())
        except httpx.HTTPError as error:
            raise Unreachable(f"{self._http.base_url}: {str(error) or type(error).__name__}") from error


def sse_messages(lines: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """(event, data) of a server-sent event stream whose data is JSON; comments and unknown fields are skipped."""
    event = "message"
    data: list[str] = []
    for line in lines:
        if not line:
            if data:
                yield event, json.loads("\n".join(data))
            event, data = "message", []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            event = value
        elif name == "data":
            data.append(value)
