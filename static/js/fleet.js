// The fleet: the published pressure once a second, written into the cards in place. Unknown stays unknown.
(() => {
  const live = window.dyserve.live;
  const classes = document.getElementById("classes");
  if (!classes) return;
  const limits = { high: Number(classes.dataset.high), low: Number(classes.dataset.low) };
  const warning = document.getElementById("no-pressure");
  const STATES = { ok: ["healthy", "healthy"], stale: ["unknown", "stale"], stalled: ["unhealthy", "stalled"], unhealthy: ["unhealthy", "unhealthy"] };
  const field = (root, name) => root.querySelector(`[data-field="${name}"]`);
  const share = (element, value) => element.style.setProperty("--value", String(value === null ? 0 : Math.min(1, Math.max(0, value))));

  function showClass(item) {
    const card = classes.querySelector(`[data-class="${CSS.escape(item.model)}"]`);
    if (!card) return;
    const words = live.loadWords(item, limits);
    card.dataset.level = words.level;
    live.write(field(card, "load"), words.load);
    live.write(field(card, "verdict"), words.verdict);
    live.meter(field(card, "meter"), words.value);
    live.write(field(card, "detail"), live.loadDetail(item));
  }

  const count = (value) => (value === null ? "–" : live.compact(value));
  const rate = (value) => (value === null ? "–" : `${live.compact(value)} tok/s`);

  function showReplica(card, item) {
    // What an old page said is not what is: a replica that is not fresh shows no figure of its server.
    const fresh = item !== null && item.state === "ok";
    const known = (value) => (fresh ? value : null);
    const [state, word] = item === null ? ["unknown", "no signal"] : STATES[item.state] ?? ["unknown", item.state];
    const operator = card.dataset.operator;
    if (operator !== "enabled" && item === null) live.state(field(card, "health"), "cancelled", "not watched");
    else live.state(field(card, "health"), state, word);
    card.dataset.fresh = String(fresh);
    const slots = Number(card.dataset.slots);
    const [running, waiting, kv] = item === null ? [null, null, null] : [known(item.running), known(item.waiting), known(item.kv_usage)];
    live.write(field(card, "running"), running === null ? "unknown" : `${count(running)} / ${slots}`);
    share(field(card, "running-bar"), running === null ? null : running / slots);
    live.write(field(card, "waiting"), waiting === null ? "unknown" : count(waiting));
    share(field(card, "waiting-bar"), waiting === null ? null : waiting / slots);
    live.write(field(card, "kv"), kv === null ? "unknown" : live.percent(kv));
    share(field(card, "kv-bar"), kv);
    const load = item === null ? null : item.load;
    live.write(field(card, "load"), load === null ? "unknown" : load.toFixed(2));
    live.write(field(card, "out"), item === null ? "–" : rate(known(item.generation_tokens_per_s)));
    live.write(field(card, "in"), item === null ? "–" : rate(known(item.prompt_tokens_per_s)));
    live.write(field(card, "inflight"), item === null ? "–" : count(item.inflight));
    const missing = item?.missing?.length ? `, lacks ${item.missing.join(", ")}` : "";
    live.write(field(card, "age"), item === null || item.age_s === null ? "never seen" : `${live.seconds(item.age_s)} old${missing}`);
  }

  function show(data) {
    const pressure = data.pressure;
    warning.hidden = pressure !== null;
    if (pressure === null) live.write(warning.querySelector("span"), `Every load is unknown: ${data.reason}. Start the monitor (manage.py monitor).`);
    const items = new Map((pressure?.replicas ?? []).map((item) => [item.replica, item]));
    document.querySelectorAll("[data-replica]").forEach((card) => showReplica(card, items.get(card.dataset.replica) ?? null));
    const known = new Map((pressure?.classes ?? []).map((item) => [item.model, item]));
    classes.querySelectorAll("[data-class]").forEach((card) => {
      const model = card.dataset.class;
      showClass(known.get(model) ?? { model, state: "unknown", load: null, replicas: 0 });
    });
  }

  classes.querySelectorAll("[data-class]").forEach((card) => live.marks(card, limits));
  const first = live.document("fleet-document");
  live.learnTime(first.server_time);
  show(first);
  live.socket(() => "/ws/fleet/", { message: show });
  live.feedCharts(document.getElementById("chart-feed"));
})();
