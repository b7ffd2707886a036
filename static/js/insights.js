// What is said about one plan: tabs whose parts load when they are first looked at, each at most one request at a time;
// the critical path goes into the graph, and the graph's nodes lead to their rows.
//   [data-lazy]    a part, which the event of this name loads; [data-retry] inside loads it again
//   [data-expand]  opens the row with this id and loads its part
(() => {
  const dag = document.querySelector("#workflow-dag .dag");
  let tab = "why";
  let variant = 0;

  const panel = (name) => document.getElementById(`panel-${name}`);
  const copyOf = (id) => document.getElementById(id)?.content.cloneNode(true);

  function load(part) {
    part.dataset.loaded = String(variant);
    part.setAttribute("aria-busy", "true");
    part.replaceChildren(copyOf("insight-skeleton"));
    htmx.trigger(part, part.dataset.lazy);
  }

  // Parts inside rows wait until their row is opened.
  function loadPanel(name) {
    panel(name)?.querySelectorAll("[data-lazy]").forEach((part) => {
      if (!part.closest(".detail-row") && part.dataset.loaded !== String(variant)) load(part);
    });
  }

  function openTab(name, focus = false) {
    if (!panel(name)) return;
    tab = name;
    document.querySelectorAll("#insights [data-tab]").forEach((button) => {
      const open = button.dataset.tab === name;
      button.setAttribute("aria-selected", String(open));
      button.tabIndex = open ? 0 : -1;
      if (open && focus) button.focus();
      panel(button.dataset.tab).hidden = !open;
    });
    loadPanel(name);
    panel(name).querySelectorAll("[data-chart][data-drawn]").forEach((plot) => window.Plotly.Plots.resize(plot));
  }

  function showVariant(index) {
    variant = index;
    const field = document.getElementById("insight-variant");
    if (!field) return markPath();
    field.value = String(index);
    openTab(tab);
    // The path is of the variant that is shown, whichever tab is open: the part that knows it is loaded always.
    loadPanel("why");
    return markPath();
  }

  function markPath() {
    if (!dag) return;
    const block = document.getElementById("plan-path");
    const { nodes, edges } = block ? JSON.parse(block.textContent) : { nodes: [], edges: [] };
    const critical = new Set(nodes);
    dag.querySelectorAll(".dag-node").forEach((group) => {
      const now = critical.has(group.dataset.node);
      if (now !== (group.dataset.critical === "true")) window.dyserve.dag.setNode(dag, group.dataset.node, { critical: now });
    });
    const on = new Set(edges.map(([source, target]) => `${source}\n${target}`));
    dag.querySelectorAll(".dag-edge").forEach((edge) => {
      edge.dataset.critical = String(on.has(`${edge.dataset.source}\n${edge.dataset.target}`));
    });
  }

  function expand(button) {
    const row = document.getElementById(button.dataset.expand);
    const open = row.hidden;
    row.hidden = !open;
    button.setAttribute("aria-expanded", String(open));
    const part = row.querySelector("[data-lazy]");
    if (open && part.dataset.loaded === undefined) load(part);
  }

  function selectRow(node) {
    openTab("why");
    const row = document.querySelector(`[data-why="${CSS.escape(node)}"]`);
    if (!row) return;
    document.querySelectorAll("[data-why][aria-selected]").forEach((other) => other.removeAttribute("aria-selected"));
    row.setAttribute("aria-selected", "true");
    row.scrollIntoView({ block: "center", behavior: "smooth" });
  }

  function isLate(event, part) {
    const asked = new URL(event.detail.pathInfo.finalRequestPath, location.href).searchParams.get("variant");
    return asked !== part.dataset.loaded;
  }

  function fail(event) {
    const part = event.target instanceof Element ? event.target.closest("[data-lazy]") : null;
    if (!part || isLate(event, part)) return;
    part.removeAttribute("aria-busy");
    delete part.dataset.loaded;
    part.replaceChildren(copyOf("insight-error"));
  }

  // A bundle that is ready has more variants than before: what shows all of them is looked at again.
  function countVariants() {
    const count = document.querySelectorAll("#insight-variants [data-show-variant]").length;
    document.querySelectorAll("#insights [data-all-variants]").forEach((part) => {
      if (part.dataset.loaded !== undefined && part.dataset.allVariants !== String(count)) delete part.dataset.loaded;
      part.dataset.allVariants = String(count);
    });
  }

  document.addEventListener("variant:show", (event) => {
    countVariants();
    showVariant(event.detail.index);
  });
  document.addEventListener("dag:select", (event) => selectRow(event.detail.node));
  document.addEventListener("htmx:afterSettle", (event) => {
    const part = event.detail.target;
    if (!part?.matches?.("[data-lazy]")) return;
    part.removeAttribute("aria-busy");
    if (part.id === "why") markPath();
  });
  // What was asked for another variant meanwhile is not shown: the request for this one waits behind it.
  document.addEventListener("htmx:beforeSwap", (event) => {
    const part = event.detail.target;
    if (part?.dataset?.lazy === "insight" && isLate(event, part)) event.detail.shouldSwap = false;
  });
  ["htmx:responseError", "htmx:sendError", "htmx:timeout"].forEach((name) => document.addEventListener(name, fail));

  document.addEventListener("click", (event) => {
    const target = event.target instanceof Element ? event.target : null;
    const hit = (selector) => target?.closest(selector);
    if (hit("#insights [data-tab]")) openTab(hit("[data-tab]").dataset.tab);
    if (hit("[data-expand]")) expand(hit("[data-expand]"));
    if (hit("[data-retry]")) load(hit("[data-lazy]"));
    if (hit("[data-path-node]")) selectRow(hit("[data-path-node]").dataset.pathNode);
  });

  document.addEventListener("keydown", (event) => {
    const button = event.target instanceof Element ? event.target.closest("#insights [data-tab]") : null;
    if (!button) return;
    const all = [...document.querySelectorAll("#insights [data-tab]")];
    const at = all.indexOf(button);
    const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: all.length - 1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    openTab(all[(next + all.length) % all.length].dataset.tab, true);
  });
})();
