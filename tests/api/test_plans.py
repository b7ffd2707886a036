from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.test import Client

from fleet.models import Fleet, Replica
from planner.compiler import solve
from planner.compiler.pricing import PRICE_LEVELS
from planner.compiler.weights import PRESETS
from planner.models import PlanBundle
from planner.services import prepare_variants
from tests.api.conftest import Person
from tests.api.samples import DOCUMENT, problem


def compiled(person: Person, **more: Any) -> dict[str, Any]:
    response = person.api.post("/plans", {"document": DOCUMENT, **more})
    assert response.status_code == 201, response.content
    plan: dict[str, Any] = response.json()
    return plan


def test_a_plan_starts_with_its_first_variant_and_is_completed_later(ann: Person) -> None:
    plan = compiled(ann)
    assert (plan["state"], len(plan["variants"])) == ("preparing", 1)
    assert set(plan["variants"][0]["assignment"]) == {"draft", "answer"}
    assert (plan["emulated"], plan["profiles"]) == (True, {"version": "illustrative-1", "illustrative": True})
    prepare_variants(PlanBundle.objects.get().pk)
    done = ann.api.get(f"/plans/{plan['id']}").json()
    assert done["state"] == "ready"
    assert [variant["level"] for variant in done["variants"]] == sorted({v["level"] for v in done["variants"]})
    assert ann.api.get(f"/plans/{plan['id']}/variants").json()["items"] == done["variants"]


def test_options_are_used(ann: Person) -> None:
    plan = compiled(ann, effort=0.1, weights="fast", levels=[2, 0])
    assert (plan["effort"], plan["levels"], plan["weights"]["lambda_l"]) == (0.1, [0.0, 2.0], PRESETS["fast"].lambda_l)


def test_a_priced_bundle_says_so(ann: Person) -> None:
    assert compiled(ann)["bundle"] == "levels"
    plan = compiled(ann, bundle="priced")
    assert (plan["bundle"], plan["levels"], plan["limits"]) == ("priced", list(PRICE_LEVELS), {})
    prepare_variants(PlanBundle.objects.get(kind="priced").pk)
    done = ann.api.get(f"/plans/{plan['id']}").json()
    assert (done["state"], done["bundle"]) == ("ready", "priced")
    assert set(done["variants"][-1]["terms"]) == {"log_quality", "gpu", "latency"}
    last = len(done["variants"]) - 1
    found = ann.api.get(f"/plans/{plan['id']}/variants/{last}/explain").json()
    assert all(node["best"]["objective"] <= 1e-9 for node in found["nodes"])


def test_limits_are_kept_and_told(ann: Person) -> None:
    limits = {"max_calls": 4, "pin": {"draft": ["*/none"]}}
    plan = compiled(ann, limits=limits)
    assert plan["limits"] == limits
    assert plan["variants"][0]["assignment"]["draft"]["policy"] == "none"


def test_a_plan_that_is_not_what_it_says_is_the_servers_fault(ann: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = solve.decode
    monkeypatch.setattr(solve, "decode", lambda *given: replace(honest(*given), cost=0.0))
    refused = problem(ann.api.post("/plans", {"document": DOCUMENT}), 500)
    assert refused["code"] == "plan_refused"
    assert "not used" in refused["detail"]


def test_a_stored_workflow_is_compiled(ann: Person) -> None:
    stored = ann.api.post("/workflows", {"document": DOCUMENT}).json()
    response = ann.api.post("/plans", {"workflow": "two-steps"})
    assert response.json()["version"] == stored["version"]["id"]


@pytest.mark.parametrize(
    ("more", "pointer"),
    [
        ({"effort": -1}, "/effort"),
        ({"levels": []}, "/levels"),
        ({"levels": [-1]}, "/levels"),
        ({"levels": ["x"]}, "/levels/0"),
        ({"weights": {"beta": -1}}, "/weights/beta"),
        ({"weights": {"beta": 1e300}}, "/weights/beta"),
        ({"bundle": "cheap"}, "/bundle"),
        ({"bundle": 3}, "/bundle"),
        ({"limits": []}, "/limits"),
        ({"limits": {"max_price": 3}}, "/limits/max_price"),
        ({"limits": {"max_cost": "much"}}, "/limits/max_cost"),
        ({"limits": {"calls": {"qwen3.5-4b": 0.5}}}, "/limits/calls/qwen3.5-4b"),
        ({"limits": {"calls": {"moon/1.5": 2}}}, "/limits/calls/moon~11.5"),
        ({"limits": {"pin": {"no.node": ["*"]}}}, "/limits/pin/no.node"),
        ({"limits": {"forbid": {"draft": [" x"]}}}, "/limits/forbid/draft"),
    ],
)
def test_bad_options_are_refused_with_their_place(ann: Person, more: dict[str, Any], pointer: str) -> None:
    errors = problem(ann.api.post("/plans", {"document": DOCUMENT, **more}), 422)["errors"]
    assert pointer in {error["pointer"] for error in errors}
    assert not PlanBundle.objects.exists()


def test_a_workflow_without_a_plan_is_told_why(ann: Person) -> None:
    nodes = [{**DOCUMENT["nodes"][0], "models": ["gone"]}]
    refused = problem(ann.api.post("/plans", {"document": DOCUMENT | {"nodes": nodes}}), 422)
    assert refused["code"] == "plan_infeasible"
    assert "draft" in refused["errors"][0]["message"]


def test_limits_that_conflict_are_told_with_what_would_do(ann: Person) -> None:
    cheapest = ann.api.get(f"/plans/{compiled(ann)['id']}/front?axis=cost").json()["points"][0]
    limits = {"max_cost": cheapest["cost"] / 2, "min_quality": 0.1, "pin": {"draft": ["*"]}}
    refused = problem(ann.api.post("/plans", {"document": DOCUMENT, "limits": limits}), 422)
    assert (refused["code"], refused["detail"]) == ("plan_infeasible", "No plan keeps these limits.")
    assert refused["proved"] is True
    [conflict] = refused["conflicts"]
    assert (conflict["limit"], conflict["asked"], conflict["least"]) == ("max_cost", limits["max_cost"], True)
    assert conflict["needed"] == pytest.approx(cheapest["cost"])
    placed = [error for error in refused["errors"] if error["pointer"]]
    assert [(error["pointer"], error["code"]) for error in placed] == [("/limits/max_cost", "limit_conflict")]
    assert placed[0]["remedy"].lower() == f"{conflict['text']}.".lower()


def test_a_pin_and_a_prohibition_that_conflict(ann: Person) -> None:
    limits = {"pin": {"draft": ["*/none"]}, "forbid": {"*": ["*/none"]}}
    refused = problem(ann.api.post("/plans", {"document": DOCUMENT, "limits": limits}), 422)
    assert {conflict["limit"] for conflict in refused["conflicts"]} == {"pin.draft", "forbid.*"}
    assert {error["pointer"] for error in refused["errors"]} >= {"/limits/pin/draft", "/limits/forbid/*"}
    assert all(conflict["asked"] == "*/none" and conflict["needed"] for conflict in refused["conflicts"])


def test_every_node_is_explained(ann: Person) -> None:
    plan = compiled(ann)
    found = ann.api.get(f"/plans/{plan['id']}/variants/0/explain").json()
    assert [node["node"] for node in found["nodes"]] == ["draft", "answer"]
    assert all(node["best"]["objective"] <= 0 and node["slack_s"] >= 0 for node in found["nodes"])
    one = ann.api.get(f"/plans/{plan['id']}/variants/0/explain?node=draft").json()
    assert sum(alternative["chosen"] for alternative in one["alternatives"]) == 1
    assert len(one["alternatives"]) > 2


def test_what_is_not_there_is_not_found(ann: Person) -> None:
    plan = compiled(ann)
    for path in ("1-", "-1", "x", "1-1-1", f"{'9' * 40}-1", "0-0"):
        problem(ann.api.get(f"/plans/{path}"), 404)
    problem(ann.api.get(f"/plans/{plan['id']}/variants/7/explain"), 404)
    problem(ann.api.get(f"/plans/{plan['id']}/variants/-1/explain"), 404)
    problem(ann.api.get(f"/plans/{plan['id']}/variants/0/explain?node=moon"), 404)


def test_a_bundle_of_another_structure_is_not_found(ann: Person) -> None:
    plan = compiled(ann)
    other = compiled(ann, document=DOCUMENT | {"nodes": DOCUMENT["nodes"][:1]})
    mixed = f"{plan['id'].split('-')[0]}-{other['id'].split('-')[1]}"
    problem(ann.api.get(f"/plans/{mixed}"), 404)


def test_a_plan_of_a_fleet_that_has_changed_is_stale(ann: Person) -> None:
    plan = compiled(ann)
    used = {item["backend"] for item in plan["variants"][0]["assignment"].values()}
    Replica.objects.filter(backend__name__in=used).update(state="disabled")
    assert problem(ann.api.get(f"/plans/{plan['id']}/variants/0/explain"), 409)["code"] == "stale_plan"


def test_a_plan_tells_nothing_of_another_persons_fleet(ann: Person, bob: Person, fleet: Fleet) -> None:
    """Bundles are shared by structure: bob has the same workflow, and could count through the bundles' numbers."""
    Fleet.objects.filter(pk=fleet.pk).update(owner=ann.user, is_default=False)
    plan = ann.api.post("/plans", {"document": DOCUMENT, "fleet": fleet.name}).json()["id"]
    version = bob.api.post("/workflows", {"document": DOCUMENT}).json()["version"]["id"]
    bundle = plan.split("-")[1]
    problem(bob.api.get(f"/plans/{version}-{bundle}"), 404)
    browser = Client()
    browser.force_login(bob.user)
    assert browser.get(f"/workflows/versions/{version}/plans/{bundle}/compare/").status_code == 404
    Fleet.objects.filter(pk=fleet.pk).update(owner=None)
    assert bob.api.get(f"/plans/{version}-{bundle}").status_code == 200
    assert browser.get(f"/workflows/versions/{version}/plans/{bundle}/compare/").status_code == 200
