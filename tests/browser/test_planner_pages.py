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


# --- Why this plan ---------------------------------------------------------------------------------------------------


def _asked(page: Page) -> list[str]:
    """Every request for a part, as it is sent."""
    found: list[str] = []
    parts = re.compile(r"/plans/\d+/(why|alternatives|ranges|front|stability)/")
    page.on("request", lambda request: found.append(request.url) if parts.search(request.url) else None)
    return found


def test_the_critical_path_is_listed_and_marked_in_the_graph(page: Page, workflow: str) -> None:
    expect(page.locator('.dag-node[data-critical="true"]')).to_have_count(2)
    expect(page.locator('.dag-edge[data-critical="true"]')).to_have_count(1)
    expect(page.locator('.dag-node[data-node="first"]')).to_have_attribute("aria-label", re.compile("critical path"))
    page.locator("#why .path").get_by_role("button", name="second").click()
    expect(page.locator('[data-why="second"]')).to_have_attribute("aria-selected", "true")
    expect(page.locator("#why")).to_contain_text("on the makespan")


def test_every_alternative_of_a_node_unfolds_page_by_page(page: Page, workflow: str) -> None:
    button = page.get_by_role("button", name="alternatives of First")
    button.press("Enter")

    expect(button).to_have_attribute("aria-expanded", "true")
    part = page.locator(".alternatives")
    expect(part.locator("tbody tr")).to_have_count(10)
    expect(part.locator('tr[aria-selected="true"]')).to_contain_text("planned")
    part.get_by_role("button", name="Worse").click()
    expect(part).to_contain_text("11–")
    button.press("Enter")
    expect(part).to_be_hidden()


def test_parts_load_once_when_they_are_looked_at(page: Page, workflow: str) -> None:
    asked = _asked(page)
    page.get_by_role("tab", name="Prices").focus()
    page.keyboard.press("ArrowRight")

    expect(page.get_by_role("tab", name="Sensitivity")).to_be_focused()
    expect(page.locator("#ranges .range")).to_have_count(3)
    assert ["/ranges/" in url for url in asked] == [True]
    page.keyboard.press("ArrowRight")
    for chart in ("front-makespan", "front-cost"):
        expect(page.locator(f"#{chart} .main-svg").first).to_be_visible()
        page.locator(f"#{chart}").get_by_text("Table").click()
        expect(page.locator(f"#{chart} tbody tr").first).to_contain_text("π(0)")
    page.keyboard.press("Shift+Tab")
    page.get_by_role("tab", name="Stability").click()
    expect(page.locator("#stability")).to_contain_text("Plan stays optimal")
    page.get_by_role("tab", name="Sensitivity").click()
    expect(page.locator("#ranges .range").first).to_be_visible()
    assert len(asked) == 4


def test_another_variant_is_explained_and_shown_together(page: Page, workflow: str) -> None:
    page.get_by_role("tab", name="Sensitivity").click()
    expect(page.locator("#ranges")).to_contain_text("π(0) stays the best plan")

    page.locator("#insight-variants button").last.click()

    name = page.locator("#insight-variants button").last.inner_text()
    expect(page.locator("#ranges")).to_contain_text(f"{name} stays the best plan")
    expect(page.locator("#dag-caption")).to_contain_text(f"showing {name}")
    expect(page.locator("[data-variant-row]").last).to_have_attribute("aria-selected", "true")


def test_a_part_that_fails_can_be_tried_again(chromium: Browser, site: Site, signed_in: Path, workflow: str) -> None:
    """A window of its own: the browser logs what it could not load."""
    window = open_window(chromium, site, signed_in, viewport={"width": 1440, "height": 900})
    page = window.page
    page.goto(workflow)
    _prepared(page)
    page.route("**/ranges/**", lambda route: route.fulfill(status=500, body="no"))

    page.get_by_role("tab", name="Sensitivity").click()

    expect(page.locator("#ranges")).to_contain_text("could not be loaded")
    page.unroute("**/ranges/**")
    page.locator("#ranges").get_by_role("button", name="Try again").click()
    expect(page.locator("#ranges .range")).to_have_count(3)
    window.context.close()


# --- Kinds and limits ------------------------------------------------------------------------------------------------


def _limit(page: Page, name: str, value: str) -> None:
    """Fills a limit and leaves its field."""
    limits = page.locator("#limits")
    if limits.get_attribute("open") is None:
        limits.locator("summary").click()
    with page.expect_response(lambda response: "/plans/?" in response.url):
        page.locator(f"#limit-{name}").fill(value)
        page.locator(f"#limit-{name}").press("Tab")


def test_limits_that_no_plan_keeps_are_relaxed_by_one_click(page: Page, workflow: str) -> None:
    _limit(page, "min_quality", "0.7")
    _prepared(page)
    _limit(page, "max_cost", "1")

    expect(page.get_by_text("No plan keeps these limits.")).to_be_visible()
    expect(page.locator("#dag-caption")).to_have_text("no plan")
    expect(page.locator('.dag-node[data-critical="true"]')).to_have_count(0)
    page.get_by_role("button", name=re.compile("^Use .* for max_cost$")).click()

    _prepared(page)
    expect(page).to_have_url(re.compile(r"\?max_cost=[0-9.]+&min_quality=0.7$"))
    assert float(page.locator("#limit-max_cost").input_value()) > 1
    page.get_by_role("tab", name="Stability").click()
    expect(page.get_by_text("Not for plans under caps")).to_be_visible()


def test_what_is_wrong_with_a_limit_stands_beside_its_field_until_it_is_put_right(page: Page, workflow: str) -> None:
    _limit(page, "limits", "pin.nobody=qwen3.5-9b")

    field = page.locator("#limit-limits")
    expect(page.locator("#error-limits")).to_contain_text("LLM nodes: first, second")
    expect(field).to_have_attribute("aria-invalid", "true")
    _limit(page, "limits", "pin.first=qwen3.5-9b")

    expect(page.locator("#error-limits")).to_be_empty()
    expect(field).not_to_have_attribute("aria-invalid", "true")
    _prepared(page)
    expect(page.locator('[data-node="first"] .badge-text')).to_have_text(re.compile("^9B · "))
    page.reload()
    expect(field).to_have_value("pin.first=qwen3.5-9b")
    _prepared(page)


def test_a_priced_bundle_is_compiled_and_explained(page: Page, workflow: str) -> None:
    page.get_by_text("Priced", exact=True).click()

    expect(page).to_have_url(re.compile(r"\?bundle=priced$"))
    _prepared(page)
    expect(page.get_by_role("columnheader", name="Price", exact=True)).to_be_visible()
    expect(page.locator("#why thead")).to_contain_text("log quality")
    page.get_by_role("tab", name="Sensitivity").click()
    expect(page.locator("#ranges .range")).to_have_count(1)


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
