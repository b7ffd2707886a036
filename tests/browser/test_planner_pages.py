"""What a person does with workflows and plans, in a real Chromium."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Site, open_window
from tests.planner.pages.samples import BROKEN, FLOW, HOSTILE, native

pytestmark = [pytest.mark.browser, pytest.mark.process]

PREPARED_MS = 60_000
DROP = """
([text, name]) => {
  const data = new DataTransfer();
  data.items.add(new File([text], name));
  return data;
}
"""


def _save(page: Page) -> None:
    """Saves what is previewed, or opens the version that holds it already."""
    save = page.get_by_role("button", name=re.compile("^Save version"))
    save.or_(page.get_by_role("link", name=re.compile("^Open version"))).click()
    expect(page.get_by_role("heading", name="Graph", exact=True)).to_be_visible()


def _upload(page: Page, text: str) -> None:
    page.goto("/workflows/upload/")
    page.get_by_label("Document").fill(text)
    _save(page)


def _prepared(page: Page) -> None:
    """Until all variants are there; the table refreshes itself."""
    expect(page.get_by_text("bundle ready")).to_be_visible(timeout=PREPARED_MS)
    expect(page.locator("#why tbody tr").first).to_be_visible()


@pytest.fixture
def workflow(page: Page) -> str:
    """The address of a stored workflow whose plans are prepared."""
    _upload(page, native("Shown everywhere"))
    _prepared(page)
    return page.url


# --- Uploads ---------------------------------------------------------------------------------------------------------


def test_a_file_is_previewed_saved_and_compiled(page: Page, tmp_path: Path) -> None:
    file = tmp_path / "chosen.json"
    file.write_text(native("Chosen from the disk"))

    page.goto("/workflows/upload/")
    page.set_input_files("#file", file)

    expect(page.locator("#preview .dag-node")).to_have_count(2)
    expect(page.get_by_label("Document")).to_have_value(file.read_text())
    _save(page)
    _prepared(page)
    assert page.locator("[data-variant-row]").count() > 1
    expect(page.locator(".dag-node .badge-text").first).to_have_text(re.compile(r"^(4|9|27)B · "))


def test_a_pasted_flow_file_shows_why_each_skill_was_chosen_and_can_be_corrected(page: Page) -> None:
    page.goto("/workflows/upload/")
    page.get_by_label("Document").fill(json.dumps(FLOW, indent=1))

    rows = page.locator("#preview tbody tr", has=page.locator("select"))
    expect(rows).to_have_count(4)
    expect(rows.nth(1)).to_contain_text("the word 'implement'")
    rows.nth(1).get_by_role("combobox").select_option("test")
    expect(rows.nth(1)).to_contain_text("given by the user")
    expect(page.locator('#preview [data-node="task1"] .detail')).to_have_text("test")
    _save(page)
    expect(page.locator('[data-node="task1"]')).to_be_visible()


def test_a_dropped_file_is_read(page: Page) -> None:
    page.goto("/workflows/upload/")
    dropped = page.evaluate_handle(DROP, [native("Dropped"), "dropped.json"])
    page.dispatch_event(".drop", "drop", {"dataTransfer": dropped})

    expect(page.locator("[data-chosen]")).to_have_text("dropped.json")
    _save(page)
    expect(page.get_by_role("cell", name="dropped.json")).to_be_visible()


def test_the_same_content_is_recognised(page: Page) -> None:
    _upload(page, native("Only once"))

    page.goto("/workflows/upload/")
    page.get_by_label("Document").fill(native("Only once"))

    expect(page.get_by_text("already stored as version 1")).to_be_visible()
    expect(page.get_by_role("button", name=re.compile("^Save"))).to_have_count(0)
    page.get_by_role("link", name="Open version 1").click()
    expect(page.get_by_role("heading", name="Only once")).to_be_visible()


def test_a_bad_file_shows_line_and_pointer_and_stores_nothing(page: Page, tmp_path: Path) -> None:
    page.goto("/workflows/")
    stored = page.locator("#workflow-rows tbody tr").count()
    file = tmp_path / "broken.yaml"
    file.write_text(BROKEN)

    page.goto("/workflows/upload/")
    page.set_input_files("#file", file)

    problems = page.locator("#preview .problems > li")
    expect(problems.first).to_contain_text("line 7")
    expect(problems.first).to_contain_text("/nodes/0/prompt")
    expect(page.locator(".gutter b.bad").first).to_have_text("7")
    expect(page.get_by_role("button", name=re.compile("^Save"))).to_have_count(0)
    problems.first.get_by_role("button").click()
    selected = page.evaluate("getSelection().toString()")
    assert selected.strip() == 'prompt: "{{ nodes.missing.output }}"'
    page.goto("/workflows/")
    assert page.locator("#workflow-rows tbody tr").count() == stored


def test_correcting_the_text_clears_the_problems(page: Page) -> None:
    page.goto("/workflows/upload/")
    page.get_by_label("Document").fill(BROKEN)
    expect(page.locator(".gutter b.bad").first).to_be_visible()

    page.get_by_label("Document").fill(native("Corrected"))

    expect(page.locator("#preview .dag-node")).to_have_count(2)
    expect(page.locator(".gutter b.bad")).to_have_count(0)


def test_bytes_that_are_no_text_are_refused(page: Page, tmp_path: Path) -> None:
    file = tmp_path / "image.json"
    file.write_bytes(b"\xff\xfe\x00\x01")

    page.goto("/workflows/upload/")
    page.set_input_files("#file", file)

    expect(page.locator("#preview .problems")).to_contain_text("UTF-8")


def test_real_flow_files_are_previewed_saved_and_compiled(page: Page, shared_data: Path) -> None:
    files = sorted((shared_data / "workflows" / "flow").glob("*.json"))
    refused = []
    for file in files:
        page.goto("/workflows/upload/")
        page.set_input_files("#file", file)
        expect(page.locator("#preview .dag-node, #preview .problems").first).to_be_visible()
        if page.locator("#preview .problems").count():
            refused.append(file.name)
            continue
        nodes = page.locator("#preview .dag-node").count()
        _save(page)
        expect(page.locator("#workflow-dag .dag-node")).to_have_count(nodes)
        _prepared(page)
    assert files
    assert refused == []


def test_what_people_wrote_stays_text_everywhere(page: Page) -> None:
    _upload(page, native(HOSTILE, title=HOSTILE, description=HOSTILE))
    _prepared(page)

    expect(page.get_by_role("heading", name=HOSTILE)).to_be_visible()
    page.get_by_role("link", name="Compare variants").click()
    expect(page.get_by_role("heading", name="Variants side by side")).to_be_visible()
    page.goto("/workflows/")
    expect(page.get_by_role("link", name=HOSTILE)).to_be_visible()
    assert page.locator("img").count() == 0


# --- Plans -----------------------------------------------------------------------------------------------------------


def _slide(page: Page, name: str, value: str) -> None:
    """Moves a slider as a hand does: many input events, then rest."""
    page.locator(f"#slider-{name}").evaluate(
        """(slider, value) => {
          for (const step of [0.5, 0.75, 1]) {
            slider.value = String(Number(value) * step);
            slider.dispatchEvent(new Event("input", { bubbles: true }));
          }
        }""",
        value,
    )


def test_sliders_recompile_once_they_rest_and_write_the_address(page: Page, workflow: str) -> None:
    compiled: list[str] = []
    page.on("request", lambda request: compiled.append(request.url) if "/plans/?" in request.url else None)
    first = page.locator('[data-variant-row="0"]')
    before = first.inner_text()

    _slide(page, "lambda_l", "1")

    expect(page.locator('output[for="slider-lambda_l"]')).to_have_text("1.00")
    expect(page).to_have_url(re.compile(r"\?lambda_l=1$"), timeout=PREPARED_MS)
    expect(first).not_to_have_text(before)
    assert len(compiled) == 1
    page.reload()
    expect(page.locator("#slider-lambda_l")).to_have_value("1")


def test_a_preset_sets_the_sliders_and_is_marked(page: Page, workflow: str) -> None:
    fast = page.get_by_role("button", name="Fast")
    fast.click()

    expect(page).to_have_url(re.compile("lambda_l="))
    expect(fast).to_have_attribute("aria-pressed", "true")
    _prepared(page)


def test_a_variant_is_shown_in_the_graph(page: Page, workflow: str) -> None:
    last = page.locator("[data-show-variant]").last
    last.click()

    expect(last).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#dag-caption")).to_contain_text("differ from π(0)")
    assert page.locator('.dag-node[data-changed="true"]').count() >= 1


def test_charts_are_drawn_and_have_a_table_behind_them(page: Page, workflow: str) -> None:
    for chart in ("pareto", "demand"):
        figure = page.locator(f"#{chart}")
        expect(figure.locator(".main-svg").first).to_be_visible()
        figure.get_by_text("Table").click()
        expect(figure.locator("tbody tr").first).to_be_visible()


def test_a_node_leads_to_its_explanation_by_keyboard_too(page: Page, workflow: str) -> None:
    page.locator('.dag-node[data-node="first"]').focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator('.dag-node[data-node="second"]')).to_be_focused()
    page.keyboard.press("Enter")

    expect(page.locator('[data-why="second"]')).to_have_attribute("aria-selected", "true")
    expect(page.locator('.dag-node[data-node="second"]')).to_have_attribute("aria-pressed", "true")


def test_the_graph_zooms_to_fit(page: Page, workflow: str) -> None:
    drawing = page.locator("#workflow-dag .dag-view svg")
    width = drawing.bounding_box()
    page.get_by_role("button", name="Zoom in").click()
    larger = drawing.bounding_box()
    page.get_by_role("button", name="Zoom to fit").click()
    fitted = drawing.bounding_box()

    assert width is not None
    assert larger is not None
    assert fitted is not None
    assert larger["width"] > width["width"] >= fitted["width"]


# --- The shell -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/workflows/", "/workflows/upload/", "/profiles/", "/account/", "workflow", "compare"]
)
def test_no_page_scrolls_sideways_on_a_phone(narrow: Page, path: str) -> None:
    if path in ("workflow", "compare"):
        _upload(narrow, native("On a phone", title="A title that is rather long for a phone " * 3))
        _prepared(narrow)
        if path == "compare":
            narrow.get_by_role("link", name="Compare variants").click()
    else:
        narrow.goto(path)
    expect(narrow.get_by_role("heading", level=1)).to_be_visible()

    assert narrow.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_the_menu_opens_on_a_phone(narrow: Page) -> None:
    narrow.goto("/workflows/")
    navigation = narrow.get_by_role("navigation", name="Main")
    expect(navigation).to_be_hidden()

    narrow.get_by_role("button", name="Menu").click()

    navigation.get_by_role("link", name="Profiles").click()
    expect(narrow.get_by_role("heading", name="Profiles")).to_be_visible()


@pytest.fixture(params=["light", "dark"])
def themed(
    request: pytest.FixtureRequest, chromium: Browser, site: Site, signed_in: Path
) -> Iterator[tuple[Page, str]]:
    window = open_window(chromium, site, signed_in, color_scheme=request.param)
    yield window.page, request.param
    window.context.close()
    assert window.problems == []


def _is_dark(page: Page) -> bool:
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return sum(map(int, re.findall(r"\d+", colour)[:3])) < 200


def test_the_theme_follows_the_system_until_it_is_chosen(themed: tuple[Page, str]) -> None:
    page, scheme = themed
    page.goto("/profiles/")
    expect(page.locator(".main-svg").first).to_be_visible()
    assert _is_dark(page) == (scheme == "dark")

    page.get_by_role("button", name="Switch between dark and light").click()
    assert _is_dark(page) == (scheme == "light")

    page.reload()
    assert _is_dark(page) == (scheme == "light")


def test_a_token_is_made_and_revoked(page: Page) -> None:
    page.goto("/account/")
    page.get_by_label("Name").fill("from the browser")
    page.get_by_role("button", name="Create token").click()
    expect(page.locator("#new-token")).to_have_text(re.compile("^dys_"))
    page.reload()
    expect(page.locator("#new-token")).to_have_count(0)


def test_the_first_tab_stop_skips_to_the_content(page: Page) -> None:
    page.goto("/workflows/")
    page.keyboard.press("Tab")

    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#content")).to_be_focused()
