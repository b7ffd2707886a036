from __future__ import annotations

from django.test import Client

from planner.models import ProfileVersion


def test_the_page_shows_quality_and_vulnerability_and_says_illustrative(browser: Client) -> None:
    html = browser.get("/profiles/").content.decode()

    assert "<strong>Not measured.</strong> Illustrative profiles" in html
    assert 'data-chart="profile-figure"' in html
    assert 'data-chart="profile-thinking-figure"' in html
    assert 'data-chart="vulnerability-figure"' in html
    assert html.count('class="chart-table"') == 3


def test_without_active_profiles_the_page_says_what_to_do(browser: Client) -> None:
    ProfileVersion.objects.update(active=False)

    assert "No profiles are active" in browser.get("/profiles/").content.decode()
