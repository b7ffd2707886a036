// DAGs are drawn by the server; this zooms them, moves the focus, and changes attributes as a run moves on.
//   dyserve.dag.setNode(root, node, {state, badge, model, locked, reassigned})   any subset of the fields
//   event "dag:select" (bubbles; detail.node) when a node is chosen by click, Enter or Space
(() => {
  const ICONS = {
    waiting: "waiting", ready: "ready", dispatched: "running", committed: "done", failed: "failed", cancelled: "cancelled",
  };

  const find = (root, node) => root.querySelector(`.dag-node[data-node="${CSS.escape(node)}"]`);

  function setNode(root, node, { state, badge, model, locked, reassigned, critical } = {}) {
    const group = find(root, node);
    if (!group) return;
    if (state !== undefined) {
      group.dataset.state = state;
      group.querySelector(".mark")?.setAttribute("href", `#i-${ICONS[state] ?? "unknown"}`);
    }
    if (badge !== undefined) setBadge(group, badge);
    if (model !== undefined) {
      group.setAttribute("class", `dag-node model-${model}`);
    }
    if (locked !== undefined) group.dataset.locked = String(locked);
    if (reassigned !== undefined) group.dataset.reassigned = String(reassigned);
    if (critical !== undefined) group.dataset.critical = String(critical);
    describe(group);
    colourEdges(root, node);
  }

  function setBadge(group, badge) {
    const text = group.querySelector(".badge-text");
    const box = group.querySelector(".badge-box");
    if (!text || !box) return;
    text.textContent = badge;
    box.setAttribute("width", String(badge ? text.getComputedTextLength() + 12 : 0));
  }

  function describe(group) {
    const { name, state, locked, reassigned, critical } = group.dataset;
    const badge = group.querySelector(".badge-text")?.textContent;
    const words = [name, badge, state, locked === "true" && "committed to its binding", reassigned === "true" && "reassigned by a switch", critical === "true" && "on a critical path"];
    group.setAttribute("aria-label", words.filter(Boolean).join(", "));
  }

  function colourEdges(root, node) {
    const state = (id) => find(root, id)?.dataset.state;
    const name = CSS.escape(node);
    root.querySelectorAll(`.dag-edge[data-source="${name}"], .dag-edge[data-target="${name}"]`).forEach((edge) => {
      const [source, target] = [state(edge.dataset.source), state(edge.dataset.target)];
      edge.dataset.active = String(source === "committed" && target === "dispatched");
      edge.dataset.done = String(source === "committed" && target === "committed");
    });
  }

  function zoom(dag, factor) {
    const svg = dag.querySelector(".dag-view svg");
    const view = dag.querySelector(".dag-view");
    const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
    const fit = Math.min(1, (view.clientWidth - 2) / width, Math.max(view.clientHeight, 160) / height);
    const now = Number(dag.dataset.zoom ?? 1);
    const next = factor === "fit" ? fit : Math.min(2, Math.max(0.05, now * factor));
    dag.dataset.zoom = String(next);
    // A graph that reaches the zoom buttons starts below them.
    view.classList.toggle("under-tools", width * next > view.clientWidth - 240);
    svg.setAttribute("width", String(width * next));
    svg.setAttribute("height", String(height * next));
  }

  // Small graphs are shown at their own size; larger ones shrink to the width, but never below what can be read.
  function firstZoom(dag) {
    const svg = dag.querySelector(".dag-view svg");
    const view = dag.querySelector(".dag-view");
    const [, , width] = svg.getAttribute("viewBox").split(" ").map(Number);
    dag.dataset.zoom = "1";
    zoom(dag, Math.min(1, Math.max(0.62, (view.clientWidth - 2) / width)));
    showStart(dag, view);
  }

  // A tall graph opens where it starts: at the nodes of its first column.
  function showStart(dag, view) {
    const boxes = [...dag.querySelectorAll(".dag-node")].map((group) => group.getBoundingClientRect());
    const left = Math.min(...boxes.map((box) => box.left));
    const first = boxes.find((box) => box.left - left < 1);
    if (first) view.scrollTop += first.top + first.height / 2 - view.getBoundingClientRect().top - view.clientHeight / 2;
  }

  function neighbour(group, key) {
    const dag = group.closest(".dag");
    const box = group.getBoundingClientRect();
    const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
    let best = null;
    dag.querySelectorAll(".dag-node").forEach((other) => {
      if (other === group) return;
      const at = other.getBoundingClientRect();
      const [dx, dy] = [at.x + at.width / 2 - x, at.y + at.height / 2 - y];
      const along = { ArrowRight: dx, ArrowLeft: -dx, ArrowDown: dy, ArrowUp: -dy }[key];
      const across = Math.abs(key === "ArrowRight" || key === "ArrowLeft" ? dy : dx);
      if (along <= 1) return;
      const distance = along + 2 * across;
      if (!best || distance < best.distance) best = { other, distance };
    });
    return best?.other;
  }

  function select(group) {
    const dag = group.closest(".dag");
    if (group.hasAttribute("data-clickable")) {
      dag.querySelectorAll('.dag-node[aria-pressed="true"]').forEach((other) => other.setAttribute("aria-pressed", "false"));
      group.setAttribute("aria-pressed", "true");
    }
    group.dispatchEvent(new CustomEvent("dag:select", { bubbles: true, detail: { node: group.dataset.node } }));
  }

  function prepare(root = document) {
    root.querySelectorAll(".dag:not([data-ready])").forEach((dag) => {
      dag.dataset.ready = "true";
      dag.querySelectorAll(".dag-node").forEach((group) => setBadge(group, group.querySelector(".badge-text")?.textContent ?? ""));
      firstZoom(dag);
    });
  }

  document.addEventListener("click", (event) => {
    const target = event.target instanceof Element ? event.target : null;
    const button = target?.closest("[data-zoom-by]");
    if (button) {
      const by = button.dataset.zoomBy;
      zoom(button.closest(".dag"), by === "fit" ? "fit" : Number(by));
    }
    const group = target?.closest(".dag-node");
    if (group) select(group);
  });

  document.addEventListener("keydown", (event) => {
    const group = event.target instanceof Element ? event.target.closest(".dag-node") : null;
    if (!group) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      select(group);
    } else if (event.key.startsWith("Arrow")) {
      const next = neighbour(group, event.key);
      if (next) {
        event.preventDefault();
        next.focus();
      }
    }
  });

  window.dyserve.dag = { setNode, prepare, find };
  document.addEventListener("htmx:afterSettle", () => prepare());
  prepare();
})();
