"""The API's documentation in a real browser: drawn and usable under `script-src 'self'`."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser


def test_the_documentation_is_drawn_and_tries_a_request_with_the_session(page: Page) -> None:
    page.goto("/api/v1/docs")
    operation = page.locator("#operations-tokens-dyserve_site_tokens_api_add_token")
    operation.get_by_role("button").first.click()
    operation.get_by_role("button", name="Try it out").click()
    operation.locator("textarea").fill('{"name": "from the docs", "scopes": ["runs:read"]}')
    operation.get_by_role("button", name="Execute").click()
    # An unsafe method with the session: it needs the CSRF token that the page carries.
    expect(operation.locator(".live-responses-table tbody .response-col_status")).to_contain_text("201")
    expect(operation.locator(".live-responses-table")).to_contain_text("dys_")
