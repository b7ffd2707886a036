"""What the API's tests send."""

from __future__ import annotations

import json
from typing import Any

from django.test import Client

DOCUMENT: dict[str, Any] = {
    "dyserve": 1,
    "name": "Two steps",
    "inputs": {"topic": {"type": "string"}},
    "nodes": [
        {"id": "draft", "kind": "llm", "skill": "writing", "prompt": "Write about {{ inputs.topic }}."},
        {"id": "answer", "kind": "llm", "skill": "answer", "prompt": "Shorten: {{ nodes.draft.output }}"},
    ],
}

YAML = """dyserve: 1
name: In YAML
nodes:
  - {id: only, kind: llm, skill: writing, prompt: Write.}
"""

BROKEN_YAML = """dyserve: 1
name: Broken
nodes:
  - {id: only, kind: llm, skill: writing, prompt: "{{ nodes.gone.output }}"}
"""


class Caller:
    """Django's test client with a bearer token, under /api/v1; bodies are JSON."""

    def __init__(self, token: str | None = None) -> None:
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        content = b"" if body is None else json.dumps(body).encode()
        return Client(headers={**self.headers, **headers}).generic(
            method, f"/api/v1{path}", content, content_type="application/json"
        )

    def get(self, path: str, **headers: str) -> Any:
        return self.request("GET", path, **headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        return self.request("POST", path, body, **headers)

    def delete(self, path: str) -> Any:
        return self.request("DELETE", path)


def problem(response: Any, status: int) -> dict[str, Any]:
    """The body of a problem, after a look at its shape."""
    assert response.status_code == status, response.content
    assert response.headers["Content-Type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    more = {"conflicts", "proved"} if body["code"] == "plan_infeasible" else set()
    assert set(body) == {"type", "title", "status", "code", "detail", "instance", "errors"} | more
    assert body["status"] == status
    assert body["detail"]
    for error in body["errors"]:
        assert set(error) == {"pointer", "line", "column", "code", "message", "remedy"}
        assert error["message"]
    return body
