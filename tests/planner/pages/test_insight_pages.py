from __future__ import annotations

import json

import pytest
from django.contrib.auth.models import User
from django.test import Client

from fleet.models import Replica
from planner.models import PlanBundle, ProfileVersion, WorkflowVersion
from planner.services import prepare_variants, store_workflow
from tests.planner.pages.samples import HOSTILE, native

PARTS = (
    "why/",
    "alternatives/?node=first",
    "ranges/",
    "front/?axis=makespan_s",
    "front/?axis=cost",
    "stability/",
)


@pytest.fixture
def version(ann: User) -> WorkflowVersion:
    return store_workflow(owner=ann, data=native(title=HOSTILE).encode()).version


@pytest.fixture
def address(browser: Client, version: WorkflowVersion) -> str:
    """Of a bundle whose variants are all there."""
    return _compiled(browser, version)


def _compiled(browser: Client, version: WorkflowVersion, query: str = "") -> str:
    response = browser.get(f"/workflows/versions/{version.pk}/plans/{query}")
    assert response.status_code == 200
    bundle = PlanBundle.objects.order_by("-pk")[0]
    prepare_variants(bundle.pk)
    return f"/workflows/versions/{version.pk}/plans/{bundle.pk}/"


def _variant(path: str, index: int | str) -> str:
    return f"{path}{'&' if '?' in path else '?'}variant={index}"


def _html(browser: Client, path: str) -> str:
    response = browser.get(path)
    assert response.status_code == 200
    return response.content.decode()


@pytest.mark.parametrize("part", PARTS)
def test_every_part_answers_for_every_variant(browser: Client, address: str, part: str) -> None:
    for index in range(PlanBundle.objects.get().variants.count()):
        assert _html(browser, address + _variant(part, index))
    for text in ("99", "-1", "x", "²"):
        assert browser.get(address + _variant(part, text)).status_code == 404


@pytest.mark.parametrize("part", PARTS)
def test_what_people_wrote_stays_text(browser: Client, address: str, part: str) -> None:
    html = _html(browser, address + part)

    assert "<img" not in html
    assert HOSTILE not in html


@pytest.mark.parametrize("part", PARTS)
def test_somebody_elses_plan_does_not_exist(stranger: Client, address: str, part: str) -> None:
    assert stranger.get(address + part).status_code == 404


@pytest.mark.parametrize("part", PARTS)
def test_who_is_not_signed_in_is_sent_to_sign_in(client: Client, address: str, part: str) -> None:
    assert client.get(address + part).status_code == 302


@pytest.mark.parametrize("part", PARTS)
def test_a_bundle_of_another_structure_does_not_exist_here(browser: Client, ann: User, address: str, part: str) -> None:
    single = '{"dyserve": 1, "name": "One", "nodes": [{"id": "a", "kind": "llm", "skill": "code", "prompt": "p"}]}'
    other = store_workflow(owner=ann, data=single.encode()).version

    path = f"/workflows/versions/{other.pk}/plans/{PlanBundle.objects.get().pk}/{part}"
    assert browser.get(path).status_code == 404


@pytest.mark.parametrize("part", PARTS)
def test_a_plan_of_another_fleet_asks_to_compile_again(browser: Client, address: str, part: str) -> None:
    used = {node["backend"] for node in PlanBundle.objects.get().variants.get(index=0).plan["assignment"].values()}
    Replica.objects.filter(backend__name__in=used).update(state=Replica.State.DISABLED)

    html = _html(browser, address + part)

    assert "changed since this plan was made" in html
    assert "data-recompile" in html


@pytest.mark.parametrize("part", PARTS)
def test_without_profiles_the_remedy_is_named(browser: Client, address: str, part: str) -> None:
    ProfileVersion.objects.update(active=False)

    assert "activate a version in the admin" in _html(browser, address + part)


def test_why_names_nodes_path_terms_and_what_verification_adds(browser: Client, address: str) -> None:
    html = _html(browser, address + "why/")

    assert 'data-why="first"' in html
    assert 'data-path-node="second"' in html
    assert "risk</th>" in html
    assert "on the makespan" in html
    marks = json.loads(html.split('id="plan-path" type="application/json">')[1].split("</script>")[0])
    assert marks["edges"] == [["first", "second"]]


def test_alternatives_are_paged_and_unknown_ones_do_not_exist(browser: Client, address: str) -> None:
    first = _html(browser, address + "alternatives/?node=first")
    second = _html(browser, address + "alternatives/?node=first&page=2")

    assert "planned</span>" in first
    assert "page=2" in first
    assert "11–" in second
    for query in ("", "?node=nobody", "?node=first&page=99", "?node=first&page=0", "?node=first&page=x"):
        assert browser.get(f"{address}alternatives/{query}").status_code == 404


def test_fronts_mark_the_variants_and_have_a_table(browser: Client, address: str) -> None:
    html = _html(browser, address + "front/?axis=cost")

    assert "Estimated quality against cost" in html
    assert "exact; quality is the product surrogate" in html
    for index in range(PlanBundle.objects.get().variants.count()):
        assert f"π({index})</td>" in html
    for query in ("", "?axis=", "?axis=quality"):
        assert browser.get(f"{address}front/{query}").status_code == 404


def test_stability_names_shares_and_the_cell_to_measure(browser: Client, address: str) -> None:
    html = _html(browser, address + "stability/")

    assert "How often each node keeps its implementation" in html
    assert "/profiles/#" in html
    assert "a surrogate" in html


def test_stability_has_no_answer_under_caps_and_says_why(browser: Client, version: WorkflowVersion) -> None:
    address = _compiled(browser, version, "?max_calls=8")

    assert "Not for plans under caps" in _html(browser, address + "stability/")
    assert "break this bundle&#x27;s caps" in _html(browser, address + "front/?axis=cost").replace("'", "&#x27;")


def test_a_priced_plan_has_its_own_terms_and_one_range(browser: Client, version: WorkflowVersion) -> None:
    address = _compiled(browser, version, "?bundle=priced")

    assert "log quality</th>" in _html(browser, address + "why/")
    ranges = _html(browser, address + "ranges/")
    assert "Price level" in ranges
    assert 'id="range-lambda_l"' not in ranges


def test_the_page_holds_places_for_the_parts_and_loads_nothing_by_itself(
    browser: Client, version: WorkflowVersion
) -> None:
    html = _html(browser, f"/workflows/versions/{version.pk}/plans/")

    assert html.count('data-lazy="insight"') == 5
    assert html.count('hx-trigger="insight"') == 5
    assert "illustrative profiles" in html
    assert "emulated rates" in html


def test_a_refresh_leaves_the_parts_as_they_are(browser: Client, address: str) -> None:
    html = _html(browser, address)

    assert "data-lazy" not in html
    assert 'id="insight-variants" hx-swap-oob="true"' in html
