"""The published JSON Schema is served to everyone and accepts the shipped workflows."""

from __future__ import annotations

import json

import yaml
from django.test import Client
from jsonschema import Draft202012Validator

from planner.data import demo_workflow_sources


def test_the_published_schema_accepts_the_shipped_workflows(client: Client) -> None:
    answer = client.get("/schemas/workflow.json")
    assert answer.headers["Content-Type"] == "application/schema+json"
    validator = Draft202012Validator(json.loads(answer.content))
    for text in demo_workflow_sources().values():
        assert list(validator.iter_errors(yaml.safe_load(text))) == []
    assert list(validator.iter_errors({"dyserve": 1, "name": "x", "nodes": [{"id": "a", "kind": "loop"}]})) != []
