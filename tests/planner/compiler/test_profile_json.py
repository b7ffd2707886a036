"""Profiles survive their JSON form, and a bad document gets every error with its place."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from planner.compiler.profile import ProfileSet
from planner.compiler.profile_json import ProfilesInvalid, profiles_from_json, profiles_to_json
from tests.planner.compiler.cases import LARGE, MIDDLE, pair, profile_set


def document() -> dict[str, Any]:
    pairs = [
        pair(policy="none"),
        pair(policy="self_check"),
        pair(model=MIDDLE, policy="cross_check", verifier_model=LARGE),
    ]
    return profiles_to_json(profile_set(pairs))


def errors_of(change: Any) -> tuple[str, ...]:
    broken = copy.deepcopy(document())
    change(broken)
    with pytest.raises(ProfilesInvalid) as caught:
        profiles_from_json(broken)
    return caught.value.errors


def test_round_trip() -> None:
    profiles = profile_set(
        [pair(), pair(thinking=True), pair(model=MIDDLE, policy="cross_check", verifier_model=LARGE)]
    )
    again = profiles_from_json(profiles_to_json(profiles))
    assert isinstance(again, ProfileSet)
    assert again == profiles
    assert again.digest == profiles.digest


def test_the_digest_follows_what_planning_reads() -> None:
    assert profile_set([pair(quality=0.8)]).digest != profile_set([pair(quality=0.81)]).digest
    assert profile_set([pair()], version="a").digest == profile_set([pair()], version="b").digest


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda d: d.pop("version"), "/version: is missing; give text"),
        (lambda d: d.update(dyserve_profiles=2), "/dyserve_profiles: must be 1"),
        (lambda d: d.update(illustrative="yes"), "/illustrative: must be true or false"),
        (lambda d: d["pairs"][0].update(quality=1.5), "/pairs/0: need 0 <= low <= quality"),
        (lambda d: d["pairs"][0].update(quality=float("nan")), "/pairs/0/quality: must be a number"),
        (lambda d: d["pairs"][0].update(quality=True), "/pairs/0/quality: must be a number"),
        (lambda d: d["pairs"][0].update(samples=0), "/pairs/0: samples must be at least 1"),
        (lambda d: d["pairs"][0].update(samples=1.5), "/pairs/0/samples: must be a whole number"),
        (lambda d: d["pairs"][0].update(interval=[0.1]), "/pairs/0/interval: must be two numbers"),
        (lambda d: d["pairs"][0].update(policy="prayer"), "/pairs/0/policy: is unknown; known policies: none"),
        (lambda d: d["pairs"][0].update(verifier_model="x"), "/pairs/0/verifier_model: policy none takes no"),
        (lambda d: d["pairs"][2].pop("verifier_model"), "/pairs/2/verifier_model: policy cross_check needs"),
        (lambda d: d["pairs"][1]["calls"].pop(), "/pairs/1/calls: policy self_check has the roles"),
        (lambda d: d["pairs"][0]["calls"][0].update(probability=0.5), "/pairs/0/calls: role generate always runs"),
        (lambda d: d["pairs"][0]["calls"][0].update(output_tokens=-1), "/pairs/0/calls/0: token counts"),
        (lambda d: d["pairs"].append(d["pairs"][0]), "/pairs/3: repeats /pairs/0"),
        (lambda d: d["pairs"].append("x"), "/pairs/3: must be an object"),
        (lambda d: d.pop("vulnerability"), "/vulnerability: is missing; give an object"),
        (lambda d: d["vulnerability"].update(cells=[]), "/vulnerability: the vulnerability table needs"),
        (lambda d: d["vulnerability"]["cells"][0].update(role="boss"), "/vulnerability/cells/0/role: must be one of"),
        (lambda d: d["vulnerability"]["cells"][0].update(flips=9999), "/vulnerability/cells/0: flips must lie"),
    ],
)
def test_one_error_with_its_place(change: Any, error: str) -> None:
    assert any(found.startswith(error) for found in errors_of(change)), errors_of(change)


def test_every_error_is_reported_at_once() -> None:
    def spoil(document: dict[str, Any]) -> None:
        document["pairs"][0]["quality"] = "good"
        document["pairs"][1]["model"] = 9
        document["vulnerability"]["cells"][0]["fan_in"] = "many"

    assert [error.split(":")[0] for error in errors_of(spoil)] == [
        "/vulnerability/cells/0/fan_in",
        "/pairs/0/quality",
        "/pairs/1/model",
    ]


@pytest.mark.parametrize("value", [None, [], "text", 3])
def test_something_else_than_a_document(value: object) -> None:
    with pytest.raises(ProfilesInvalid, match="must be an object"):
        profiles_from_json(value)
