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


def test_the_kind_of_bundle_is_chosen_and_written_into_the_address(browser: Client, version: WorkflowVersion) -> None:
    response = browser.get(f"/workflows/versions/{version.pk}/plans/?bundle=priced")

    assert response.headers["HX-Replace-Url"] == f"/workflows/versions/{version.pk}/?bundle=priced"
    assert _bundle().kind == "priced"
    assert '<th scope="col" class="num">Price</th>' in response.content.decode()
    page = browser.get(response.headers["HX-Replace-Url"]).content.decode()
    assert 'name="bundle" value="priced" checked' in page


def test_limits_are_kept_and_stand_in_the_form_again(browser: Client, version: WorkflowVersion) -> None:
    query = {"max_calls": "6", "limits": "pin.first=qwen3.5-9b\r\n\r\nforbid.*=qwen3.5-4b"}
    response = browser.get(f"/workflows/versions/{version.pk}/plans/", query)

    plan = _bundle().variants.get(index=0).plan
    assert plan["assignment"]["0"]["model"] == "qwen3.5-9b"
    page = browser.get(response.headers["HX-Replace-Url"]).content.decode()
    assert 'name="max_calls" type="number" inputmode="decimal" min="0" step="1" value="6"' in page
    assert "pin.first=qwen3.5-9b\nforbid.*=qwen3.5-4b</textarea>" in page
    assert '<details class="more limits" id="limits" open>' in page


def test_what_is_wrong_with_a_limit_is_said_beside_its_field(browser: Client, version: WorkflowVersion) -> None:
    html = _plans(browser, version, "?effort=5&max_cost=many&limits=pin.nobody%0Arubbish")

    assert 'id="error-max_cost" data-error-for="max_cost" hx-swap-oob="true" role="alert">must be a finite' in html
    assert 'id="error-max_calls" data-error-for="max_calls" hx-swap-oob="true"></span>' in html
    assert "rubbish: write NAME=VALUE" in html
    assert "effort: must lie between 0 and 1" in html
    assert not PlanBundle.objects.exists()


def test_a_limit_that_names_nothing_is_said_with_what_there_is(browser: Client, version: WorkflowVersion) -> None:
    html = _plans(browser, version, "?limits=pin.%3Cimg%3E=qwen3.5-9b")

    assert "LLM nodes: first, second" in html
    assert "<img" not in html


def test_limits_that_no_plan_keeps_are_shown_as_a_conflict(browser: Client, version: WorkflowVersion) -> None:
    html = _plans(browser, version, "?max_cost=1&min_quality=0.7")

    assert "No plan keeps these limits." in html
    assert 'data-fill="max_cost" data-value="' in html
    value = html.split('data-fill="max_cost" data-value="')[1].split('"')[0]
    # What the button puts in is enough, if this was the only conflict.
    again = _plans(browser, version, f"?max_cost={value}&min_quality=0.7")
    assert "data-variant-row" in again
    assert 'id="insights" hx-swap-oob="true" hidden' in html


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

    for path in ("", "compare/"):
        assert browser.get(f"/workflows/versions/{other.pk}/plans/{_bundle().pk}/{path}").status_code == 404


def test_a_workflow_without_llm_nodes_has_the_empty_plan(browser: Client, ann: User) -> None:
    tool = '{"dyserve": 1, "name": "T", "nodes": [{"id": "a", "kind": "tool", "tool": "template", "arguments": {}}]}'
    version = store_workflow(owner=ann, data=tool.encode()).version

    html = _plans(browser, version)

    assert "no LLM node" in html
    assert "Nothing to choose" in html
    assert "data-chart" not in html
    assert "data-lazy" not in html
