from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from planner.models import WorkflowVersion
from runtime.api_schemas import RunIn
from runtime.engine.events import EventKind, NodeState, RunState
from runtime.models import Call, IdempotencyKey, Invocation, LedgerEntry, Run, RunEvent
from tests.api.conftest import Person
from tests.api.samples import DOCUMENT, YAML, problem
from tests.runtime.live_runs import append, end

RUN = {"document": DOCUMENT, "inputs": {"topic": "tides"}}


def start(person: Person, **more: Any) -> dict[str, Any]:
    response = person.api.post("/runs", {**RUN, **more})
    assert response.status_code == 201, response.content
    run: dict[str, Any] = response.json()
    return run


def test_a_run_is_accepted_with_what_was_asked(ann: Person) -> None:
    run = start(ann, deadline_s=30.0, effort=0.25, weights={"lambda_l": 0.3}, controller="off", seed=5)
    assert (run["state"], run["workflow"], run["workflow_id"], run["nodes_total"]) == ("queued", "Two steps", None, 2)
    assert (run["deadline_s"], run["effort"], run["controller"], run["seed"]) == (30.0, 0.25, "off", 5)
    assert run["weights"]["lambda_l"] == 0.3
    assert run["inputs"] == {"topic": "tides"}
    assert ann.api.get(f"/runs/{run['id']}").json() | {"server_time": 0} == run | {"server_time": 0}


def test_a_run_says_what_its_plan_must_keep(ann: Person) -> None:
    assert (start(ann)["bundle"], start(ann)["limits"]) == ("levels", {})
    limits = {"max_calls": 4, "pin": {"draft": ["*/none"]}}
    run = start(ann, bundle="priced", limits=limits)
    assert (run["bundle"], run["limits"]) == ("priced", limits)
    accepted = RunEvent.objects.get(run=run["id"]).data
    assert (accepted["bundle"], accepted["limits"]) == ("priced", limits)


@pytest.mark.parametrize(
    ("more", "pointer"),
    [
        ({"bundle": "cheap"}, "/bundle"),
        ({"limits": []}, "/limits"),
        ({"limits": {"max_price": 3}}, "/limits/max_price"),
        ({"limits": {"max_cost": "much"}}, "/limits/max_cost"),
        ({"limits": {"calls": {"moon/1.5": 2}}}, "/limits/calls/moon~11.5"),
        ({"limits": {"pin": {"no.node": ["*"]}}}, "/limits/pin/no.node"),
        ({"limits": {"forbid": {"draft": ["moon"]}}}, "/limits/forbid/draft"),
    ],
)
def test_limits_that_mean_nothing_are_refused_with_their_place(ann: Person, more: Any, pointer: str) -> None:
    errors = problem(ann.api.post("/runs", {**RUN, **more}), 422)["errors"]
    assert [error["pointer"] for error in errors] == [pointer]
    assert errors[0]["remedy"]
    assert not Run.objects.exists()


def test_the_digest_of_a_request_is_that_of_earlier_versions(ann: Person) -> None:
    """Idempotency keys that were stored before an update still name their run."""
    before = RunIn.model_validate(RUN).model_dump(mode="json")
    del before["bundle"], before["limits"]
    written = json.dumps(before, sort_keys=True, separators=(",", ":"))
    ann.api.post("/runs", RUN, **{"Idempotency-Key": "k-2"})
    assert IdempotencyKey.objects.get().digest == hashlib.sha256(written.encode()).hexdigest()
    assert problem(ann.api.post("/runs", RUN | {"bundle": "priced"}, **{"Idempotency-Key": "k-2"}), 409)


def test_figures_are_marked(ann: Person) -> None:
    run = start(ann)
    assert (run["emulated"], run["profiles"]) == (True, {"version": "illustrative-1", "illustrative": True})
    listed = ann.api.get("/runs").json()["items"][0]
    assert (listed["emulated"], listed["profiles"]["illustrative"]) == (True, True)


def test_a_stored_workflow_runs_by_id_slug_and_version(ann: Person) -> None:
    stored = ann.api.post("/workflows", {"document": DOCUMENT}).json()
    ann.api.post("/workflows", {"document": DOCUMENT | {"description": "More."}})
    inputs = {"inputs": {"topic": "x"}}
    latest = ann.api.post("/runs", {"workflow": "two-steps", **inputs}).json()
    first = ann.api.post("/runs", {"workflow": str(stored["workflow"]["id"]), "version": 1, **inputs}).json()
    assert (latest["version"], first["version"]) == (2, 1)
    assert first["workflow_id"] == stored["workflow"]["id"]
    problem(ann.api.post("/runs", {"workflow": "two-steps", "version": 3, **inputs}), 404)


def test_equal_inline_documents_share_a_version(ann: Person) -> None:
    assert start(ann)["version_id"] == start(ann)["version_id"]
    assert WorkflowVersion.objects.count() == 1


def test_an_idempotency_key_makes_one_run(ann: Person, bob: Person) -> None:
    key = {"Idempotency-Key": "k-1"}
    first = ann.api.post("/runs", RUN, **key)
    reordered = {"inputs": {"topic": "tides"}, "document": dict(reversed(DOCUMENT.items()))}
    again = ann.api.post("/runs", reordered, **key)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["id"] == first.json()["id"]
    assert problem(ann.api.post("/runs", RUN | {"seed": 9}, **key), 409)["code"] == "idempotency_conflict"
    assert bob.api.post("/runs", RUN, **key).status_code == 201
    assert Run.objects.count() == 2


@pytest.mark.parametrize("key", ["", " ", "x" * 201, "a b"])
def test_a_bad_idempotency_key_is_refused(ann: Person, key: str) -> None:
    problem(ann.api.post("/runs", RUN, **{"Idempotency-Key": key}), 422)
    assert not Run.objects.exists()


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ({"document": DOCUMENT}, {"/inputs"}),
        ({"document": DOCUMENT, "inputs": {"topic": 5, "moon": 1}}, {"/inputs/topic", "/inputs/moon"}),
        (RUN | {"effort": 2}, {"/effort"}),
        (RUN | {"deadline_s": -1, "seed": -1}, {"/deadline_s", "/seed"}),
        (RUN | {"deadline_s": 1e12}, {"/deadline_s"}),
        (RUN | {"weights": {"moon": 1}}, {"/weights/moon"}),
        (RUN | {"weights": "moon"}, {"/weights"}),
        (RUN | {"controller": "moon"}, {"/controller"}),
        (RUN | {"moon": 1}, {"/moon"}),
        ({"inputs": {}}, {""}),
        (RUN | {"workflow": "x"}, {""}),
        (RUN | {"version": 1}, {""}),
        ([], {""}),
        ("text", {""}),
        (5, {""}),
        (None, {""}),
    ],
)
def test_a_bad_request_is_refused_with_every_place(ann: Person, body: Any, pointers: set[str]) -> None:
    refused = problem(ann.api.post("/runs", body), 422)
    assert {error["pointer"] for error in refused["errors"]} >= pointers
    assert not Run.objects.exists()


def test_runs_are_listed_in_pages_and_filtered(ann: Person) -> None:
    ann.api.post("/workflows", {"document": YAML})
    stored = ann.api.post("/runs", {"workflow": "in-yaml"}).json()
    inline = [start(ann)["id"] for _ in range(3)]
    end(inline[0])
    assert [run["id"] for run in ann.api.get("/runs?state=succeeded").json()["items"]] == [inline[0]]
    assert [run["id"] for run in ann.api.get("/runs?workflow=in-yaml").json()["items"]] == [stored["id"]]
    first = ann.api.get("/runs?limit=3").json()
    rest = ann.api.get(f"/runs?limit=3&cursor={first['next']}").json()
    assert [run["id"] for run in (*first["items"], *rest["items"])] == [*reversed(inline), stored["id"]]
    assert rest["next"] is None
    problem(ann.api.get("/runs?state=moon"), 422)
    problem(ann.api.get("/runs?workflow=moon"), 404)


def test_a_queued_run_is_cancelled_at_once_and_cancelling_again_changes_nothing(ann: Person) -> None:
    run = start(ann)
    first = ann.api.post(f"/runs/{run['id']}:cancel")
    assert (first.status_code, first.json()["state"], first.json()["cancel_requested"]) == (200, "cancelled", True)
    assert ann.api.post(f"/runs/{run['id']}:cancel").json()["last_seq"] == first.json()["last_seq"]


def test_a_run_that_has_ended_otherwise_cannot_be_cancelled(ann: Person) -> None:
    run = start(ann)
    end(run["id"])
    assert problem(ann.api.post(f"/runs/{run['id']}:cancel"), 409)["code"] == "run_ended"


def test_a_running_run_is_asked_to_end(ann: Person) -> None:
    run = start(ann)
    append(run["id"], EventKind.RUN_CLAIMED, state=RunState.RUNNING)
    asked = ann.api.post(f"/runs/{run['id']}:cancel").json()
    assert (asked["state"], asked["cancel_requested"]) == ("running", True)


# --- What is inside a run --------------------------------------------------------------------------------------------


def invoke(run_id: str, node: str, state: NodeState, attempt: int = 1) -> None:
    Invocation.objects.create(
        run_id=run_id, node=node, attempt=attempt, kind="llm", state=state, variant=0, dispatched_at=1.0, output="Done."
    )
    for copy in (1, 0):
        Call.objects.create(
            run_id=run_id,
            node=node,
            attempt=attempt,
            stage=0,
            role="generate",
            copy=copy,
            model="qwen3.5-9b",
            backend="h200-9b",
            request_id=f"{run_id}-{node}-{attempt}-{copy}",
            messages=[{"role": "user", "content": "<b>Write</b>"}],
            text="Done.",
            prompt_tokens=3,
            output_tokens=2,
            started_at=1.0,
            finished_at=2.0,
        )


def test_nodes_are_listed_in_file_order_with_their_states(ann: Person) -> None:
    run = start(ann)
    assert [(node["node"], node["state"]) for node in ann.api.get(f"/runs/{run['id']}/nodes").json()["items"]] == [
        ("draft", "ready"),
        ("answer", "waiting"),
    ]
    invoke(run["id"], "draft", NodeState.COMMITTED)
    first = ann.api.get(f"/runs/{run['id']}/nodes?limit=1").json()
    assert [(node["node"], node["state"]) for node in first["items"]] == [("draft", "committed")]
    rest = ann.api.get(f"/runs/{run['id']}/nodes?cursor={first['next']}").json()
    assert ([(node["node"], node["state"]) for node in rest["items"]], rest["next"]) == ([("answer", "ready")], None)


def test_a_node_shows_every_attempt_and_call(ann: Person) -> None:
    run = start(ann)
    invoke(run["id"], "draft", NodeState.FAILED)
    invoke(run["id"], "draft", NodeState.COMMITTED, attempt=2)
    node = ann.api.get(f"/runs/{run['id']}/nodes/draft").json()
    assert (node["state"], node["emulated"]) == ("committed", True)
    assert [(item["attempt"], item["state"]) for item in node["invocations"]] == [(1, "failed"), (2, "committed")]
    calls = node["invocations"][1]["calls"]
    assert [call["index"] for call in calls] == [0, 1]
    assert calls[0]["messages"] == [{"role": "user", "content": "<b>Write</b>"}]
    problem(ann.api.get(f"/runs/{run['id']}/nodes/moon"), 404)


def test_the_ledger_shows_switches_and_refusals(ann: Person) -> None:
    run = start(ann)
    for seq, target in ((2, None), (3, 1), (4, None)):
        LedgerEntry.objects.create(
            run_id=run["id"],
            seq=seq,
            at=1.0,
            active_variant=0,
            to_variant=target,
            reason="congested",
            text="Because.",
            loads={"qwen3.5-27b": {"load": None}},
            thresholds={"high": 0.85},
            candidates=[],
            changed=[],
            kept=[],
        )
    everything = ann.api.get(f"/runs/{run['id']}/switches").json()
    assert [item["seq"] for item in everything["items"]] == [4, 3, 2]
    assert everything["items"][0]["loads"] == {"qwen3.5-27b": {"load": None}}
    only = ann.api.get(f"/runs/{run['id']}/switches?switches_only=true").json()
    assert [(item["seq"], item["to_variant"]) for item in only["items"]] == [(3, 1)]
    page = ann.api.get(f"/runs/{run['id']}/switches?limit=2").json()
    assert [
        item["seq"] for item in ann.api.get(f"/runs/{run['id']}/switches?cursor={page['next']}").json()["items"]
    ] == [2]
