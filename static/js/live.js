// What live pages share: a socket that comes back, the server's clock, numbers as the server writes them.
//   dyserve.live.socket(path, {message, ended})   path: a function, asked anew at every connection
//   dyserve.live.now()                            the server's time in epoch seconds
//   dyserve.live.feedCharts(element)              brings the charts of a page up to date from the address it names
(() => {
  const DASH = "–";
  const FIRST_RETRY_MS = 500;
  const LONGEST_RETRY_MS = 10000;
  // The server says something at least every ten seconds; a connection that is silent for longer is dead.
  const SILENCE_MS = 25000;
  const REFUSALS = {
    4400: "The live feed does not understand this page: reload it.",
    4401: "Your session has ended: sign in again.",
    4404: "This run is not here any more.",
  };
  let offset = 0;

  // The fastest message knows best: delays only ever make the server seem behind.
  function learnTime(serverTime) {
    const seen = serverTime - Date.now() / 1000;
    offset = learnTime.known ? Math.max(offset - 0.001, seen) : seen;
    learnTime.known = true;
  }

  function now() {
    return Date.now() / 1000 + offset;
  }

  function socket(path, { message, ended }) {
    const connection = window.dyserve.connection;
    let web = null;
    let retryMs = FIRST_RETRY_MS;
    let timer = 0;
    let silence = 0;
    let leaving = false;

    function listen() {
      clearTimeout(silence);
      silence = setTimeout(() => web?.close(), SILENCE_MS);
    }

    function open() {
      clearTimeout(timer);
      const scheme = location.protocol === "https:" ? "wss:" : "ws:";
      web = new WebSocket(`${scheme}//${location.host}${path()}`);
      web.addEventListener("message", (event) => {
        const data = JSON.parse(event.data);
        retryMs = FIRST_RETRY_MS;
        if (data.server_time) learnTime(data.server_time);
        listen();
        message(data);
      });
      web.addEventListener("open", () => {
        connection("live");
        listen();
      });
      web.addEventListener("close", closed);
    }

    function closed(event) {
      clearTimeout(silence);
      if (leaving) return;
      if (event.code === 1000) {
        connection("ended");
        ended?.();
      } else if (event.code in REFUSALS) {
        connection("off");
        window.dyserve.toast(REFUSALS[event.code], "error");
      } else {
        connection("reconnecting");
        timer = setTimeout(open, retryMs * (0.75 + Math.random() / 2));
        retryMs = Math.min(2 * retryMs, LONGEST_RETRY_MS);
      }
    }

    addEventListener("pagehide", () => { leaving = true; web?.close(); });
    addEventListener("pageshow", (event) => { if (event.persisted) { leaving = false; open(); } });
    addEventListener("online", () => { if (web.readyState === WebSocket.CLOSED && timer) open(); });
    open();
  }

  // --- Words: the same as fleet/common/presentation.py ---

  function seconds(value) {
    if (value === null || value === undefined || !Number.isFinite(value)) return DASH;
    const sign = value < 0 ? "−" : "";
    const size = Math.abs(value);
    if (size < 0.0005) return "0 s";
    if (size < 0.9995) return `${sign}${(size * 1000).toFixed(0)} ms`;
    if (size < 99.95) return `${sign}${size.toFixed(1)} s`;
    const whole = Math.round(size);
    const two = (number) => String(number).padStart(2, "0");
    if (whole < 3600) return `${sign}${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
    return `${sign}${Math.floor(whole / 3600)} h ${two(Math.floor((whole % 3600) / 60))} min`;
  }

  function compact(value) {
    if (value === null || value === undefined || !Number.isFinite(value)) return DASH;
    const size = Math.abs(value);
    if (size >= 1e9) return `${trimmed(value / 1e9)}G`;
    if (size >= 1e6) return `${trimmed(value / 1e6)}M`;
    if (size >= 1e4) return `${trimmed(value / 1e3)}k`;
    return trimmed(value);
  }

  function trimmed(value) {
    const size = Math.abs(value);
    return String(Number(value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2)));
  }

  function percent(value) {
    if (value === null || value === undefined || !Number.isFinite(value)) return DASH;
    return value > 0 && value < 0.005 ? "< 1%" : `${Math.round(value * 100)}%`;
  }

  function ago(at) {
    const past = Math.max(0, now() - at);
    if (past < 5) return "just now";
    if (past < 60) return `${Math.floor(past)} s ago`;
    if (past < 3600) return `${Math.floor(past / 60)} min ago`;
    if (past < 86400) return `${Math.floor(past / 3600)} h ago`;
    return `${Math.floor(past / 86400)} d ago`;
  }

  const size = (model) => {
    const found = /(?:^|[-_.])(\d+(?:\.\d+)?)b(?:$|[-_.])/i.exec(model ?? "");
    return found ? `${found[1]}B` : model ?? "";
  };

  // --- Elements ---

  // An unchanged text is not written again: nothing flickers, and a selection stays.
  function write(element, text) {
    if (element && element.textContent !== text) element.textContent = text;
  }

  const SVG = "http://www.w3.org/2000/svg";

  function icon(name) {
    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("class", "icon");
    svg.setAttribute("aria-hidden", "true");
    const use = document.createElementNS(SVG, "use");
    use.setAttribute("href", `#i-${name}`);
    svg.append(use);
    return svg;
  }

  const ICONS = {
    waiting: "waiting", queued: "waiting", ready: "ready", running: "running", dispatched: "running",
    committed: "done", succeeded: "done", healthy: "done", failed: "failed", unhealthy: "failed",
    cancelled: "cancelled", late: "late", overloaded: "late",
  };

  // The chip of {% state %}; an existing one is changed in place.
  function state(holder, value, word = value) {
    let chip = holder.querySelector(".state");
    if (!chip) {
      chip = document.createElement("span");
      chip.className = "state";
      const text = document.createElement("span");
      text.className = "state-text";
      chip.append(icon(ICONS[value] ?? "unknown"), text);
      holder.replaceChildren(chip);
    }
    if (chip.dataset.state !== value) {
      chip.dataset.state = value;
      chip.querySelector("use").setAttribute("href", `#i-${ICONS[value] ?? "unknown"}`);
    }
    write(chip.querySelector(".state-text"), word);
  }

  // A load bar reaches to 1.5, so that overload is seen.
  const SCALE = 1.5;

  function meter(element, load) {
    element?.style.setProperty("--value", String(load === null ? 0 : Math.min(1, load / SCALE)));
  }

  function marks(element, { high, low }) {
    Object.entries({ high, low }).forEach(([name, value]) => {
      const mark = element.querySelector(`[data-field="${name}"], [data-cell="${name}"]`);
      if (!mark) return;
      mark.style.setProperty("--at", String(Math.min(1, value / SCALE)));
      mark.dataset.name = `${name} ${value}`;
    });
  }

  // How a class's published load reads: `loads` of the overview and `classes` of the fleet.
  function loadWords(item, { high, low }) {
    if (item.state === "overloaded") return { load: "none", verdict: "no healthy replica", value: SCALE, level: "high" };
    if (item.load === null) return { load: DASH, verdict: "unknown", value: null, level: "unknown" };
    const level = item.load > high ? "high" : item.load < low ? "low" : "between";
    const words = { high: "above high", low: "below low", between: "between low and high" };
    return { load: item.load.toFixed(2), verdict: words[level], value: item.load, level };
  }

  function loadDetail(item) {
    if (item.state === "overloaded") return `none of ${item.replicas} replicas takes calls`;
    if (item.load === null) return `no fresh signal from ${item.replicas} replicas`;
    const planned = item.planned ? ` + ${trimmed(item.planned)} planned` : "";
    return `${trimmed(item.outstanding)} outstanding${planned} of ${trimmed(item.capacity)} slots, ${item.fresh} of ${item.replicas} replicas fresh`;
  }

  // --- Charts ---

  const CHART_MS = 2000;

  function feedCharts(element) {
    if (!element) return;
    let busy = false;
    async function refresh() {
      if (busy || document.hidden) return;
      busy = true;
      try {
        const answer = await fetch(element.dataset.url, { headers: { Accept: "application/json" } });
        if (answer.ok) Object.entries(await answer.json()).forEach(([id, chart]) => show(id, chart));
      } catch (error) {
        // The server is away: the connection's indicator says so, and the next round tries again.
        if (!(error instanceof TypeError)) throw error;
      } finally {
        busy = false;
      }
    }
    setInterval(refresh, CHART_MS);
  }

  function show(id, { figure, table }) {
    const block = document.getElementById(`${id}-figure`);
    const holder = document.getElementById(id);
    if (!block || !holder) return;
    block.textContent = JSON.stringify(figure);
    window.dyserve.charts.drawOne(holder.querySelector("[data-chart]"));
    tables.set(id, table);
    const details = holder.querySelector("details");
    if (!details.dataset.fed) {
      details.dataset.fed = "true";
      details.addEventListener("toggle", () => { if (details.open) showTable(holder); });
    }
    if (details.open) showTable(holder);
  }

  // The newest rows of each chart's table; they are put into the page while it is open.
  const tables = new Map();

  function showTable(holder) {
    const scratch = document.createElement("template");
    scratch.innerHTML = tables.get(holder.id);
    holder.querySelector("tbody").replaceChildren(scratch.content);
  }

  // Times that pass: "12 s ago", and latencies that go on.
  function tick() {
    document.querySelectorAll("[data-ago]").forEach((element) => write(element, ago(Number(element.dataset.ago))));
    document.querySelectorAll("[data-since]").forEach((element) => write(element, seconds(now() - Number(element.dataset.since))));
  }

  // The same element, with new content where it differs: `fresh` is a parsed fragment of this page's own server.
  function swap(old, fresh) {
    if (!old || old.isEqualNode(fresh)) return false;
    old.replaceWith(fresh);
    return true;
  }

  window.dyserve.live = {
    socket, now, seconds, compact, percent, ago, size, write, icon, state, meter, marks, loadWords, loadDetail, feedCharts, tick, swap,
    document: (id) => JSON.parse(document.getElementById(id)?.textContent ?? "null"),
    learnTime,
  };
  setInterval(tick, 1000);
  tick();
})();
