// The list of runs: whenever the overview's document says that something moved, the rows are fetched and put in place.
(() => {
  const live = window.dyserve.live;
  const box = document.getElementById("runs");
  const list = document.getElementById("run-list");
  const filters = box.querySelector("[data-filters]");
  const LEAST_MS = 900;
  let signature = "";
  let busy = false;
  let again = false;

  filters.querySelector("[data-no-script]").hidden = true;
  filters.addEventListener("change", () => {
    // Empty filters stay out of the address.
    [...filters.elements].forEach((field) => { if (field.name && !field.value) field.disabled = true; });
    filters.requestSubmit();
  });

  function parsed(text) {
    const scratch = document.createElement("div");
    const fragment = document.createElement("template");
    fragment.innerHTML = text;
    scratch.append(fragment.content);
    return scratch;
  }

  // Rows that did not change are left alone; focus and selection stay where they are.
  function place(fresh) {
    const [old, body] = [list.querySelector('tbody[data-keep="rows"]'), fresh.querySelector('tbody[data-keep="rows"]')];
    if (!old || !body) {
      list.replaceChildren(...fresh.childNodes);
      return;
    }
    ["tabs", "pager"].forEach((name) => {
      const [before, after] = [list, fresh].map((root) => root.querySelector(`[data-keep="${name}"]`));
      if (before && after) live.swap(before, after);
      else if (after) list.append(after);
      else before?.remove();
    });
    const rows = [...body.rows];
    const wanted = new Set(rows.map((row) => row.id));
    [...old.rows].forEach((row) => { if (!wanted.has(row.id)) row.remove(); });
    rows.forEach((row, position) => {
      const known = document.getElementById(row.id);
      if (!known) old.insertBefore(row, old.rows[position] ?? null);
      else cells(known, row);
    });
  }

  function cells(known, row) {
    [...row.cells].forEach((cell, position) => {
      const before = known.cells[position];
      // What ticks on this page is not compared with what the server wrote.
      if (cell.dataset.since && before.dataset.since === cell.dataset.since) return;
      if (before.querySelector("[data-ago]")) return;
      live.swap(before, cell);
    });
  }

  async function refresh() {
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    try {
      const address = new URL(box.dataset.rowsUrl, location.href);
      address.searchParams.set("rows", "1");
      const answer = await fetch(address);
      if (answer.ok) place(parsed(await answer.text()));
      live.tick();
    } catch (error) {
      if (!(error instanceof TypeError)) throw error;
      signature = "";
    }
    setTimeout(() => {
      busy = false;
      if (again) {
        again = false;
        refresh();
      }
    }, LEAST_MS);
  }

  live.socket(() => "/ws/overview/", {
    message: (data) => {
      const { running, queued, succeeded, failed, cancelled } = data.stats;
      const moving = data.runs.map((run) => [run.id, run.state, run.nodes_done, run.switches]);
      const seen = JSON.stringify([running, queued, succeeded, failed, cancelled, moving]);
      // Runs further down than the document reaches move, too, while any is active.
      if (seen === signature && running + queued === 0) return;
      signature = seen;
      refresh();
    },
  });
})();
