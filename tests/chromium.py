"""A real Chromium for tests. A page that logs an error, throws, opens a dialog or violates the CSP has a problem."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Dialog, Page, sync_playwright

from tests.conftest import missing

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
# A violation of the CSP is an error of the page, whatever the browser prints about it.
REPORT_VIOLATIONS = """
document.addEventListener("securitypolicyviolation", (event) => {
  console.error(`CSP: ${event.violatedDirective} blocked ${event.blockedURI}`);
});
"""


@contextmanager
def launched() -> Iterator[Browser]:
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        missing("a Chromium (Debian: apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


@dataclass(kw_only=True)  # no slots: playwright marks the object of a bound handler
class Window:
    """A page with everything that went wrong on it."""

    context: BrowserContext
    page: Page
    problems: list[str] = field(default_factory=list)

    def refuse(self, dialog: Dialog) -> None:
        self.problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()


def open_window(chromium: Browser, url: str, state: Path | None, **options: Any) -> Window:
    """A window of its own; `options` are the browser context's (viewport, color_scheme). The test reads `problems`."""
    context = chromium.new_context(base_url=url, storage_state=state, **options)
    context.add_init_script(REPORT_VIOLATIONS)
    window = Window(context=context, page=context.new_page())
    page, problems = window.page, window.problems
    page.on("console", lambda line: problems.append(f"console: {line.text}") if line.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(f"page: {error}"))
    page.on("dialog", window.refuse)
    return window


def sign_in(chromium: Browser, url: str, user: str, password: str, state: Path) -> None:
    """Signs in through the page and keeps the cookies in `state`."""
    context = chromium.new_context()
    page = context.new_page()
    page.goto(url + "/login/?next=/workflows/")
    page.get_by_label("User name").fill(user)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("navigation", name="Main").wait_for()
    context.storage_state(path=state)
    context.close()
