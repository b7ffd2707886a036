"""What the API answers about one plan."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.models import Replica
from planner import insights
from planner.answers import Answers
from planner.models import PlanBundle
from planner.services import prepare_variants
from tests.api.conftest import Person
from tests.api.samples import problem
from tests.api.test_plans import compiled

QUESTIONS = ("explanation", "sensitivity", "front", "front?axis=cost", "stability?draws=2")


def ready(person: Person, **more: Any) -> dict[str, Any]:
    """A plan with all its variants."""
    plan = compiled(person, **more)
    prepare_variants(int(plan["id"].split("-")[1]))
    found: dict[str, Any] = person.api.get(f"/plans/{plan['id']}").json()
    return found


def ask(person: Person, plan: dict[str, Any], question: str, **query: Any) -> Any:
    path, _, given = question.partition("?")
    parts = [given] * bool(given) + [f"{name}={value}" for name, value in query.items()]
    return person.api.get(f"/plans/{plan['id']}/{path}?{'&'.join(parts)}")


def answer(person: Person, plan: dict[str, Any], question: str, **query: Any) -> dict[str, Any]:
    response = ask(person, plan, question, **query)
    assert response.status_code == 200, response.content
    found: dict[str, Any] = response.json()
    return found


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_answer_says_what_it_is_about(ann: Person, question: str) -> None:
    plan = ready(ann)
    for variant in plan["variants"]:
        found = answer(ann, plan, question, variant=variant["index"])
        assert (found["plan"], found["variant"]) == (plan["id"], variant["index"])
        assert (found["level"], found["limits_on_plan"]) == (variant["level"], False)
        assert (found["emulated"], found["profiles"]) == (True, plan["profiles"])


def test_why_this_plan(ann: Person) -> None:
    plan = ready(ann)
    found, first = answer(ann, plan, "explanation", most=2), plan["variants"][0]
    for name in ("objective", "terms", "makespan_s", "cost", "estimated_quality"):
        assert found[name] == pytest.approx(first[name])
    assert found["critical_path"] == found["critical"] == ["draft", "answer"]
    assert found["verification"]["makespan_s"] >= 0
    for node in found["nodes"]:
        assert 2 <= len(node["alternatives"]) <= 3
        [chosen] = [alternative for alternative in node["alternatives"] if alternative["chosen"]]
        assert chosen["implementation"] == node["chosen"] == first["assignment"][node["node"]]
        assert sum(node["best"]["terms"].values()) == pytest.approx(node["best"]["objective"])
    only = answer(ann, plan, "explanation", most=0)
    assert [len(node["alternatives"]) for node in only["nodes"]] == [1, 1]
    everything = answer(ann, plan, "explanation", most=1000)
    assert all(len(node["alternatives"]) > 5 for node in everything["nodes"])


def test_limits_that_an_alternative_would_break(ann: Person) -> None:
    plan = ready(ann, limits={"max_calls": 2})
    found = answer(ann, plan, "explanation", most=1000)
    assert found["limits_on_plan"] is True
    assert {name for node in found["nodes"] for other in node["alternatives"] for name in other["breaks"]} == {
        "max_calls"
    }


def test_how_far_it_holds(ann: Person) -> None:
    plan = ready(ann)
    ranges = {found["parameter"]: found for found in answer(ann, plan, "sensitivity")["ranges"]}
    assert set(ranges) == {"lambda_l", "effort", "level"}
    assert ranges["effort"]["value"] == plan["effort"]
    for found in ranges.values():
        assert found["low"]["at"] <= found["value"] <= found["high"]["at"]
        for end in (found["low"], found["high"]):
            assert end["open"] == (end["takes_over"] is None) == (not end["changes"])
    priced = ready(ann, bundle="priced")
    assert [found["parameter"] for found in answer(ann, priced, "sensitivity")["ranges"]] == ["level"]


@pytest.mark.parametrize("axis", ["makespan_s", "cost"])
def test_what_else_there_is(ann: Person, axis: str) -> None:
    plan = ready(ann)
    found = answer(ann, plan, "front", axis=axis)
    assert (found["axis"], found["exact"], found["factor"]) == (axis, True, 1.0)
    assert found["total"] == len(found["points"])
    for name in (axis, "estimated_quality"):
        values = [point[name] for point in found["points"]]
        assert values == sorted(values)
    few = answer(ann, plan, "front", axis=axis, most=2)
    assert (few["total"], few["points"][0], few["points"][-1]) == (
        found["total"],
        found["points"][0],
        found["points"][-1],
    )
    assert len(few["points"]) <= 3


def test_how_far_to_trust_it(ann: Person) -> None:
    found = answer(ann, ready(ann), "stability", draws=20)
    assert (found["draws_asked"], found["seed"]) == (20, 0)
    assert [node["node"] for node in found["nodes"]] == ["draft", "answer"]
    assert all(node["unchanged"]["of"] == found["draws"] for node in found["nodes"])
    assert found["quality_p05"] <= found["quality_p50"] <= found["quality_p95"]
    assert found["advice"]
    assert all(cell["samples_to_halve"] > 0 for cell in found["cells"])


# --- No answer -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "query"),
    [
        ("explanation", "most=-1"),
        ("explanation", "most=9999999"),
        ("explanation", "variant=-1"),
        ("sensitivity", "variant=x"),
        ("front", "axis=joules"),
        ("front", "most=1"),
        ("front", "most=100000"),
        ("stability", "draws=0"),
        ("stability", "draws=100000"),
    ],
)
def test_what_cannot_be_asked(ann: Person, question: str, query: str) -> None:
    refused = problem(ann.api.get(f"/plans/{compiled(ann)['id']}/{question}?{query}"), 422)
    assert query.split("=")[0] in refused["errors"][0]["message"]


@pytest.mark.parametrize("question", QUESTIONS)
def test_what_is_not_there(ann: Person, bob: Person, question: str) -> None:
    plan = compiled(ann)
    problem(ask(ann, plan, question, variant=7), 404)
    problem(ask(bob, plan, question), 404)


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_plan_of_another_fleet_is_stale(ann: Person, question: str) -> None:
    plan = compiled(ann)
    Replica.objects.filter(backend__name=Replica.objects.order_by("name")[0].backend.name).update(state="disabled")
    refused = problem(ask(ann, plan, question), 409)
    assert (refused["code"], refused["detail"]) == (
        "stale_plan",
        "The fleet has changed since this plan was made: compile it again.",
    )


def test_caps_on_the_whole_plan_have_no_stability(ann: Person) -> None:
    plan = compiled(ann, limits={"max_calls": 4})
    refused = problem(ask(ann, plan, "stability"), 409)
    assert refused["code"] == "no_answer"
    assert "caps on the whole plan" in refused["detail"]


def test_a_plan_that_is_not_the_best_has_no_ranges(ann: Person) -> None:
    plan = ready(ann)
    variants = PlanBundle.objects.get().variants
    last = variants.order_by("-index")[0]
    variants.filter(index=0).update(plan={**last.plan, "level": 0.0})
    assert problem(ask(ann, plan, "sensitivity"), 409)["code"] == "no_answer"


def test_a_busy_server_says_when_to_ask_again(ann: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = compiled(ann)
    monkeypatch.setattr(insights, "SLOW", Answers(room=1, waiting=0))
    refused = ask(ann, plan, "front")
    assert problem(refused, 503)["code"] == "unavailable"
    assert refused.headers["Retry-After"] == "5"
    assert answer(ann, plan, "explanation")["plan"] == plan["id"]
