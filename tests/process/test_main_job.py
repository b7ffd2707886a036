"""The main job on a real instance, in a real Chromium: real workflow files, a burst, a switch and its reason.

The figures that these tests measure are printed, never asserted: machines differ.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from rich.console import Console
from rich.table import Table

from dyserve_site import demo
from dyserve_site.client import Client, Run
from planner.data import demo_workflow_sources
from runtime.stats import percentile
from tests.chromium import Window, open_window, sign_in

pytestmark = [pytest.mark.process, pytest.mark.browser, pytest.mark.timeout(400)]

RUN_TIMEOUT_MS = 120_000
BURST = 100
WATCHED = 6
# Every node_committed message with how long ago, by the same clock, its commit was written down.
RECORD_LAGS = """
window.dyserveLags = [];
window.WebSocket = class extends WebSocket {
  constructor(...given) {
    super(...given);
    const opened = Date.now();
    this.addEventListener("message", (message) => {
      const data = JSON.parse(message.data);
      for (const event of data.type === "events" ? data.events : [])
        if (event.kind === "node_committed" && event.at * 1000 > opened)
          requestAnimationFrame(() => window.dyserveLags.push(Date.now() - event.at * 1000));
    });
  }
};
"""


@pytest.fixture(scope="module")
def state(chromium: Browser, instance: demo.Instance, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("state") / "state.json"
    sign_in(chromium, instance.url, instance.username, instance.password, path)
    return path


@pytest.fixture
def window(chromium: Browser, instance: demo.Instance, state: Path) -> Iterator[Window]:
    opened = open_window(chromium, instance.url, state, viewport={"width": 1440, "height": 900})
    yield opened
    opened.context.close()
    assert opened.problems == []


def upload(page: Page, file: Path) -> None:
    """Chooses the file, looks at the preview, saves."""
    page.goto("/workflows/upload/")
    page.locator("#file").set_input_files(file)
    page.get_by_role("button", name="Save version").click()
    page.get_by_role("button", name="Start run").wait_for()


def start_run(page: Page) -> str:
    """Presses Start run and waits until the page says that the run has succeeded; returns the run's id."""
    page.get_by_role("button", name="Start run").click()
    expect(page.locator("#run-head .state").first).to_contain_text("succeeded", timeout=RUN_TIMEOUT_MS)
    return page.url.rstrip("/").rsplit("/", 1)[-1]


def show(capsys: pytest.CaptureFixture[str], table: Table) -> None:
    with capsys.disabled():
        Console(width=150).print(table)


def row(name: str, client: Client, run: Run) -> tuple[str, ...]:
    planned = next(event for event in client.events(run.id) if event.kind == "plan_ready")
    return (name, str(run.nodes_total), f"{planned.data['makespan_s']:.2f}", f"{run.latency_s:.2f}", str(run.calls))


def test_every_flow_file_is_uploaded_compiled_and_run_to_the_end(
    window: Window, client: Client, shared_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = sorted((shared_data / "workflows" / "flow").glob("*.json"))
    assert len(files) >= 10
    table = Table("file", "nodes", "makespan s", "latency s", "calls", title="Flow files (emulated H200, illustrative)")
    for file in files:
        upload(window.page, file)
        run = client.run(start_run(window.page))
        assert run.nodes_done == run.nodes_total
        assert run.calls >= 1
        table.add_row(*row(file.stem, client, run))
    show(capsys, table)


def test_a_native_file_goes_the_same_way(window: Window, client: Client, tmp_path: Path) -> None:
    name, text = next(iter(demo_workflow_sources().items()))
    file = tmp_path / name
    file.write_text(text.replace("\nname: ", "\nname: Uploaded ", 1))
    upload(window.page, file)
    assert client.run(start_run(window.page)).output


def test_a_burst_loses_no_run_and_a_person_reads_why_the_plan_switched(
    window: Window,
    chromium: Browser,
    instance: demo.Instance,
    state: Path,
    client: Client,
    capsys: pytest.CaptureFixture[str],
) -> None:
    slugs = sorted(workflow.slug for workflow in client.workflows())[: len(demo_workflow_sources())]
    watchers = [open_window(chromium, instance.url, state) for _ in range(WATCHED)]
    for watcher in watchers:
        watcher.context.add_init_script(RECORD_LAGS)
        watcher.page.goto("/runs/")
    runs = [client.submit_run(workflow=slugs[index % len(slugs)]).run.id for index in range(BURST)]
    for watcher, run_id in zip(watchers, reversed(runs), strict=False):
        watcher.page.goto(f"/runs/{run_id}/", wait_until="commit")
    done = [client.wait(run_id, timeout_s=300) for run_id in runs]
    lags: list[float] = []
    for watcher in watchers:
        expect(watcher.page.locator("#run-head .state").first).to_contain_text("succeeded", timeout=RUN_TIMEOUT_MS)
        lags += watcher.page.evaluate("window.dyserveLags")
        watcher.context.close()
        assert watcher.problems == []

    assert {run.state for run in done} == {"succeeded"}
    assert len({run.id for run in done}) == BURST
    switched = next(run for run in done if run.switches)
    entry = next(entry for entry in client.switches(switched.id) if entry["to_variant"] is not None)
    window.page.goto(f"/runs/{switched.id}/switches/{entry['seq']}/")
    expect(window.page.locator("main")).to_contain_text(entry["text"])

    total = demo.summarise(done)[-1]
    figures = {
        "runs": total.runs,
        "done": total.done,
        "switches": total.switches,
        "p50_s": total.p50_s,
        "p95_s": total.p95_s,
        "node_committed_to_browser_ms": {
            "events": len(lags),
            "p50": percentile(lags, 0.5),
            "p95": percentile(lags, 0.95),
        },
        "reason": entry["text"],
    }
    with capsys.disabled():
        print("\n" + json.dumps(figures, indent=1))  # noqa: T201  # the figures are what this test is read for
