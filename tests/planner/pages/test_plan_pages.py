from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client

from fleet.models import Fleet, Replica
from planner.models import PlanBundle, ProfileVersion, WorkflowVersion
from planner.services import prepare_variants, store_workflow
from tests.planner.pages.samples import native


@pytest.fixture
def version(ann: User) -> WorkflowVersion:
    return store_workflow(owner=ann, data=native().encode()).version


def _plans(browser: Client, version: WorkflowVersion, query: str = "") -> str:
    response = browser.get(f"/workflows/versions/{version.pk}/plans/{query}")
    assert response.status_code == 200
    return response.content.decode()


def _bundle() -> PlanBundle:
    return PlanBundle.objects.get()


def test_the_first_plan_is_there_while_the_others_are_prepared(browser: Client, version: WorkflowVersion) -> None:
    html = _plans(browser, version)

    assert html.count("data-variant-row=") == 1
    assert "preparing further variants" in html
    assert f'hx-get="/workflows/versions/{version.pk}/plans/{_bundle().pk}/" hx-trigger="every 1s"' in html


def test_the_table_refreshes_itself_until_it_is_ready(browser: Client, version: WorkflowVersion) -> None:
    _plans(browser, version)
    address = f"/workflows/versions/{version.pk}/plans/{_bundle().pk}/"
    assert browser.get(address).status_code == 204

    prepare_variants(_bundle().pk)
    html = browser.get(address).content.decode()

    assert html.count("data-variant-row=") == _bundle().variants.count() > 1
    assert "every 1s" not in html
    assert "Compare variants" in html


def test_the_page_says_illustrative_surrogate_and_emulated(browser: Client, version: WorkflowVersion) -> None:
    html = _plans(browser, version)

    assert "<strong>illustrative</strong>" in html
    assert "surrogate" in html
    assert "emulated H200, time × 10" in html


def test_sliders_choose_another_bundle_and_are_written_into_the_address(
    browser: Client, version: WorkflowVersion
) -> None:
    _plans(browser, version)
    response = browser.get(f"/workflows/versions/{version.pk}/plans/?effort=0.9&lambda_l=0.8&beta=2")

    assert response.headers["HX-Replace-Url"] == f"/workflows/versions/{version.pk}/?effort=0.9&lambda_l=0.8"
    assert sorted(PlanBundle.objects.values_list("effort", flat=True)) == [0.5, 0.9]
    page = browser.get(response.headers["HX-Replace-Url"]).content.decode()
    assert 'name="lambda_l" type="range" min="0" max="1.0" step="0.01" value="0.8"' in page


def test_settings_out_of_range_are_refused_in_words(browser: Client, version: WorkflowVersion) -> None:
    assert "must lie between 0 and 1" in _plans(browser, version, "?effort=5")


def test_without_a_usable_replica_every_node_says_why(browser: Client, version: WorkflowVersion) -> None:
    Replica.objects.update(state=Replica.State.DISABLED)

    html = _plans(browser, version)

    assert "This workflow has no plan on this fleet." in html
    assert "node first" in html
    assert "node second" in html


def test_without_profiles_or_fleet_the_remedy_is_named(browser: Client, version: WorkflowVersion) -> None:
    ProfileVersion.objects.update(active=False)
    assert "no profiles are active" in _plans(browser, version)
    Fleet.objects.update(is_default=False)
    assert "no fleet is the default one" in _plans(browser, version)


def test_a_failed_preparation_is_said(browser: Client, version: WorkflowVersion) -> None:
    _plans(browser, version)
    PlanBundle.objects.update(state=PlanBundle.State.FAILED, error="the <b>reason</b>")

    html = browser.get(f"/workflows/versions/{version.pk}/plans/{_bundle().pk}/").content.decode()

    assert "the &lt;b&gt;reason&lt;/b&gt;" in html
    assert "Runs use π(0)" in html


def test_why_names_an_alternative_for_every_node_of_any_variant(browser: Client, version: WorkflowVersion) -> None:
    _plans(browser, version)
    prepare_variants(_bundle().pk)
    address = f"/workflows/versions/{version.pk}/plans/{_bundle().pk}/why/"

    for index in range(_bundle().variants.count()):
        html = browser.get(f"{address}?variant={index}").content.decode()
        assert 'data-why="first"' in html
        assert 'data-why="second"' in html
    for text in ("99", "-1", "x", "²"):
        assert browser.get(f"{address}?variant={text}").status_code == 404


def test_why_says_when_the_fleet_has_changed_since(browser: Client, version: WorkflowVersion) -> None:
    _plans(browser, version)
    bundle = _bundle()
    used = {node["backend"] for node in bundle.variants.get(index=0).plan["assignment"].values()}
    Replica.objects.filter(backend__name__in=used).update(state=Replica.State.DISABLED)

    html = browser.get(f"/workflows/versions/{version.pk}/plans/{bundle.pk}/why/").content.decode()

    assert "have changed since this bundle was made" in html


def test_variants_stand_side_by_side(browser: Client, version: WorkflowVersion) -> None:
    _plans(browser, version)
    prepare_variants(_bundle().pk)

    html = browser.get(f"/workflows/versions/{version.pk}/plans/{_bundle().pk}/compare/").content.decode()

    assert html.count('class="changed"') >= 1
    assert "Estimated quality" in html


def test_a_bundle_of_another_structure_does_not_exist_here(
    browser: Client, ann: User, version: WorkflowVersion
) -> None:
    _plans(browser, version)
    single = '{"dyserve": 1, "name": "One", "nodes": [{"id": "a", "kind": "llm", "skill": "code", "prompt": "p"}]}'
    other = store_workflow(owner=ann, data=single.encode()).version
    prepare_variants(_bundle().pk)

    for path in ("", "why/", "compare/"):
        assert browser.get(f"/workflows/versions/{other.pk}/plans/{_bundle().pk}/{path}").status_code == 404


def test_a_workflow_without_llm_nodes_has_the_empty_plan(browser: Client, ann: User) -> None:
    tool = '{"dyserve": 1, "name": "T", "nodes": [{"id": "a", "kind": "tool", "tool": "template", "arguments": {}}]}'
    version = store_workflow(owner=ann, data=tool.encode()).version

    html = _plans(browser, version)

    assert "no LLM node" in html
    assert "data-chart" not in html
