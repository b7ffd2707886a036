// A run's page: events move the graph and the log at once; what the server words (head, ledger, bars) is fetched soon after.
(() => {
  const live = window.dyserve.live;
  const start = live.document("run-state");
  const dag = document.querySelector("#run-dag .dag");
  const timeline = document.getElementById("timeline");
  const drawer = document.getElementById("node-drawer");
  const LEAST_MS = 350;
  const STRIP_MS = 2500;
  const AWAY_MS = 2000;
  const ENDED = { run_succeeded: "succeeded", run_failed: "failed", run_cancelled: "cancelled" };
  const OVER = new Set(["committed", "failed", "cancelled"]);
  const nodes = new Map(Object.entries(start.nodes));
  let seq = start.seq;
  let active = start.active_variant;
  let finishedAt = start.finished_at;

  const log = window.dyserve.log({
    box: document.getElementById("log"),
    filter: document.getElementById("log-filter"),
    follow: document.getElementById("log-follow"),
    count: document.getElementById("log-count"),
    earlier: document.getElementById("log-earlier"),
    origin: start.accepted_at,
  });

  // --- The graph ---

  const before = new Map([...nodes.keys()].map((node) => [node, []]));
  const after = new Map([...nodes.keys()].map((node) => [node, []]));
  dag.querySelectorAll(".dag-edge").forEach(({ dataset: { source, target } }) => {
    before.get(target)?.push(source);
    after.get(source)?.push(target);
  });

  function variants() {
    return live.document("plan-badges")?.variants ?? [];
  }

  // `variant` stays once it is known: it names the badge of what was dispatched.
  function set(node, state, attempt, variant) {
    const known = nodes.get(node);
    if (!known) return false;
    // The page may know more than the event: it was read after it.
    if (attempt < known.attempt || (attempt === known.attempt && OVER.has(known.state))) return false;
    nodes.set(node, { state, attempt, variant: variant ?? known.variant });
    window.dyserve.dag.setNode(dag, node, { state, locked: ["dispatched", "committed", "failed"].includes(state) });
    return true;
  }

  function badge(node, index) {
    const found = variants()[index]?.[node];
    if (found) window.dyserve.dag.setNode(dag, node, { badge: found.badge, model: found.model, reassigned: found.changed });
  }

  function makeReady(node) {
    after.get(node)?.forEach((next) => {
      const { state, attempt } = nodes.get(next);
      const ready = state === "waiting" && before.get(next).every((other) => nodes.get(other).state === "committed");
      if (ready) set(next, "ready", attempt);
    });
  }

  const undispatched = ({ state }) => state === "waiting" || state === "ready";

  // What waits follows the active variant; what was dispatched keeps its binding.
  function reassign() {
    nodes.forEach((known, node) => badge(node, undispatched(known) ? active : known.variant));
  }

  function endNodes() {
    nodes.forEach(({ state, attempt }, node) => {
      if (state === "dispatched") set(node, "cancelled", attempt);
      if (state === "ready") {
        nodes.set(node, { ...nodes.get(node), state: "waiting" });
        window.dyserve.dag.setNode(dag, node, { state: "waiting" });
      }
    });
  }

  const HANDLERS = {
    run_accepted: () => {},
    run_claimed: () => want("head"),
    plan_ready: () => want("head", "strip", "badges"),
    bundle_ready: () => want("head", "badges"),
    node_dispatched: ({ node, attempt, variant }) => {
      if (set(node, "dispatched", attempt, variant)) badge(node, variant);
      wantNode(node);
    },
    node_committed: ({ node, attempt }) => {
      set(node, "committed", attempt);
      makeReady(node);
      wantNode(node);
      want("head");
    },
    node_failed: ({ node, attempt }) => {
      set(node, "failed", attempt);
      wantNode(node);
      want("head");
    },
    switched: ({ to_variant: to }) => {
      active = to;
      reassign();
      want("head", "strip", "ledger");
      nodes.forEach((known, node) => { if (undispatched(known)) wantNode(node); });
    },
    switch_refused: () => want("ledger"),
    cancel_requested: () => want("head"),
  };

  function apply(event) {
    if (event.seq <= seq) return;
    seq = event.seq;
    HANDLERS[event.kind]?.(event.data);
    if (event.kind in ENDED) {
      finishedAt = event.at;
      endNodes();
      want("head", "result", "strip");
      nodes.forEach((_, node) => wantNode(node));
      // The end is what a person waits for: nothing is saved up any more.
      soon();
    }
  }

  // --- Parts: rendered by the server, put in the place of the elements with their ids ---

  const wanted = { parts: new Set(), nodes: new Set() };
  let timer = 0;
  let busy = false;

  function want(...parts) {
    parts.forEach((part) => wanted.parts.add(part));
    soon();
  }

  function wantNode(node) {
    wanted.nodes.add(node);
    if (drawer.hasAttribute("open") && drawer.dataset.node === node) wanted.drawer = node;
    soon();
  }

  // One request at a time, so that an older answer never replaces a newer one.
  function soon(waitMs = finishedAt === null ? LEAST_MS : 0) {
    if (busy || (timer && waitMs > 0)) return;
    clearTimeout(timer);
    timer = setTimeout(fetchParts, waitMs);
  }

  async function fetchParts() {
    timer = 0;
    if (document.getElementById("timeline-table").closest("details").open) wanted.parts.add("table");
    const asked = { parts: [...wanted.parts], nodes: [...wanted.nodes].slice(0, 200), drawer: wanted.drawer };
    if (!asked.parts.length && !asked.nodes.length) return;
    wanted.parts.clear();
    asked.nodes.forEach((node) => wanted.nodes.delete(node));
    wanted.drawer = undefined;
    busy = true;
    let pause;
    try {
      const query = new URLSearchParams([...asked.parts.map((part) => ["part", part]), ...asked.nodes.map((node) => ["node", node])]);
      const answer = await fetch(`${start.parts_url}?${query}`);
      if (answer.ok) place(await answer.text(), asked.parts);
      if (asked.drawer && asked.drawer === drawer.dataset.node) await fill(asked.drawer);
    } catch (error) {
      if (!(error instanceof TypeError)) throw error;
      // The server is away: ask again when it is back.
      asked.parts.forEach((part) => wanted.parts.add(part));
      asked.nodes.forEach((node) => wanted.nodes.add(node));
      pause = AWAY_MS;
    } finally {
      busy = false;
    }
    if (wanted.parts.size || wanted.nodes.size) soon(pause);
  }

  function place(text, parts) {
    const fresh = document.createElement("template");
    fresh.innerHTML = text;
    [...fresh.content.children].forEach((element) => {
      const old = document.getElementById(element.id);
      // An open question stays open while figures move around it.
      if (element.id === "run-head" && old?.querySelector("details[open]") && !finishedAt) keepOpen(element);
      live.swap(old, element);
    });
    if (parts.includes("badges")) reassign();
    drawLines();
    clock();
    live.tick();
  }

  function keepOpen(element) {
    element.querySelector("details.menu")?.setAttribute("open", "");
  }

  // --- Time: everything on the timeline is placed by --now and --span alone ---

  function spanOf(nowS) {
    return Math.max(nowS * (finishedAt === null ? 1.06 : 1.01), 1);
  }

  const STEPS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400];
  let drawnAxis = "";

  function axis(span) {
    const most = Math.max(3, Math.floor(document.getElementById("time-axis").clientWidth / 90));
    const step = STEPS.find((one) => span / one <= most) ?? 86400;
    const wantedAxis = `${step} ${Math.floor(span / step)}`;
    if (wantedAxis === drawnAxis) return;
    drawnAxis = wantedAxis;
    const ticks = document.createDocumentFragment();
    for (let at = 0; at <= span; at += step) {
      const tick = document.createElement("span");
      tick.style.setProperty("--a", String(at));
      tick.textContent = at === 0 ? "0 s" : live.seconds(Number(at.toFixed(1))).replace(".0 s", " s");
      ticks.append(tick);
    }
    document.getElementById("time-axis").replaceChildren(ticks);
  }

  function drawLines() {
    const lines = [...document.querySelectorAll("#run-strip .switch-mark")].map(({ dataset: { at } }) => {
      const line = document.createElement("i");
      line.style.setProperty("--a", at);
      return line;
    });
    document.getElementById("switch-lines").replaceChildren(...lines);
  }

  function clock() {
    const until = Math.max(0, (finishedAt ?? live.now()) - start.accepted_at);
    timeline.style.setProperty("--now", until.toFixed(2));
    const span = spanOf(until);
    timeline.style.setProperty("--span", span.toFixed(2));
    axis(span);
    live.write(document.querySelector("#run-head [data-latency]"), live.seconds(until));
    const aside = document.querySelector("#run-head [data-deadline]");
    if (aside) {
      const left = Number(aside.dataset.deadline) - (finishedAt ?? live.now());
      const words = left < 0 ? `${live.seconds(-left)} late` : `${live.seconds(left)} ${finishedAt === null ? "left" : "to spare"}`;
      live.write(aside, `${words} of ${live.seconds(start.deadline_s)}`);
    }
  }

  // --- The drawer ---

  let opener = null;

  async function openNode(node, from) {
    if (!nodes.has(node)) return;
    if (!drawer.hasAttribute("open")) opener = from;
    drawer.dataset.node = node;
    drawer.setAttribute("open", "");
    history.replaceState(null, "", `#node=${encodeURIComponent(node)}`);
    live.write(document.getElementById("drawer-heading"), node);
    document.getElementById("drawer-body").replaceChildren();
    drawer.querySelector("[data-close-drawer]").focus();
    await fill(node);
  }

  // The address names the node that is open, so that it can be passed on.
  function openAsked() {
    const asked = /^#node=(.+)$/.exec(location.hash);
    if (asked) openNode(decodeURIComponent(asked[1]), null);
  }

  async function fill(node) {
    const answer = await fetch(`/runs/${start.run}/nodes/${encodeURIComponent(node)}/`).catch(() => null);
    if (drawer.dataset.node !== node) return;
    const body = document.getElementById("drawer-body");
    if (!answer?.ok) {
      if (!body.children.length) body.textContent = "The node could not be read. Close this and try again.";
      return;
    }
    const fresh = document.createElement("template");
    fresh.innerHTML = await answer.text();
    const view = fresh.content.firstElementChild;
    // Calls that a person opened stay open, and the place that is read stays in sight.
    const open = [...body.querySelectorAll("details")].map((one) => one.open);
    view.querySelectorAll("details").forEach((one, index) => { if (open[index]) one.open = true; });
    const top = body.scrollTop;
    body.replaceChildren(view);
    body.scrollTop = top;
    live.write(document.getElementById("drawer-heading"), view.dataset.heading);
  }

  new MutationObserver(() => {
    if (drawer.hasAttribute("open")) return;
    history.replaceState(null, "", location.pathname + location.search);
    dag.querySelectorAll('[aria-pressed="true"]').forEach((group) => group.setAttribute("aria-pressed", "false"));
    (opener?.isConnected ? opener : window.dyserve.dag.find(dag, drawer.dataset.node))?.focus();
    opener = null;
  }).observe(drawer, { attributes: true, attributeFilter: ["open"] });

  document.addEventListener("dag:select", (event) => openNode(event.detail.node, event.target));
  document.addEventListener("click", (event) => {
    const button = event.target instanceof Element ? event.target.closest("[data-open-node]") : null;
    if (button) openNode(button.dataset.openNode, button);
  });
  document.querySelector('[data-table="table"]').addEventListener("toggle", (event) => { if (event.target.open) want("table"); });

  // --- Start ---

  // The whole graph in sight, unless that makes it too small to read.
  function fitGraph() {
    const svg = dag.querySelector(".dag-view svg");
    const width = Number(svg.getAttribute("viewBox").split(" ")[2]);
    if (dag.querySelector(".dag-view").clientWidth / width > 0.45) dag.querySelector('[data-zoom-by="fit"]').click();
  }

  live.learnTime(start.server_time);
  fitGraph();
  log.add(start.events);
  if (start.first_seq > 1) document.getElementById("log-earlier").hidden = false;
  drawLines();
  clock();
  addEventListener("resize", clock);
  openAsked();
  addEventListener("hashchange", openAsked);
  if (start.ended) {
    window.dyserve.connection("ended");
    return;
  }
  const clocks = [setInterval(clock, 250), setInterval(() => want("strip"), STRIP_MS)];
  live.socket(() => `/ws/runs/${start.run}/?after=${seq}`, {
    message: ({ events }) => {
      events.forEach(apply);
      log.add(events);
    },
    ended: () => clocks.forEach(clearInterval),
  });
})();
