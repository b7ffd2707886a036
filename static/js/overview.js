// The overview: one document a second, written into the page in place.
(() => {
  const live = window.dyserve.live;
  const tiles = document.getElementById("tiles");
  const loads = document.getElementById("loads");
  const limits = { high: Number(loads.dataset.high), low: Number(loads.dataset.low) };
  const tile = (name) => tiles.querySelector(`[data-tile="${name}"]`);
  const aside = (name) => tiles.querySelector(`[data-tile-aside="${name}"]`);
  const cell = (row, name) => row.querySelector(`[data-cell="${name}"]`);
  const copy = (id) => document.getElementById(id).content.firstElementChild.cloneNode(true);

  function showStats(stats) {
    ["running", "queued", "succeeded", "switches"].forEach((name) => live.write(tile(name), live.compact(stats[name])));
    live.write(tile("attainment"), live.percent(stats.attainment));
    live.write(tile("p95_s"), live.seconds(stats.p95_s));
    const minutes = Math.round(window_s / 60);
    const ended = [stats.failed && `${stats.failed} failed`, stats.cancelled && `${stats.cancelled} cancelled`].filter(Boolean);
    live.write(aside("succeeded"), ended.length ? `${ended.join(", ")} in ${minutes} min` : `in ${minutes} min`);
    live.write(aside("attainment"), stats.with_deadline ? `${stats.attained} of ${stats.with_deadline} runs` : "no run with a deadline ended");
    live.write(aside("p95_s"), stats.p50_s === null ? "acceptance to end" : `median ${live.seconds(stats.p50_s)}`);
    tile("attainment").dataset.tone = stats.attainment === null ? "" : stats.attainment < 0.9 ? "warn" : "good";
  }

  // Rows by key: those that stay are changed in place, the order follows the document.
  function keyed(body, items, key, make, fill) {
    const known = new Map([...body.children].filter((row) => row.dataset.key).map((row) => [row.dataset.key, row]));
    items.forEach((item, position) => {
      const name = key(item);
      const row = known.get(name) ?? make();
      known.delete(name);
      row.dataset.key = name;
      fill(row, item);
      if (body.children[position] !== row) body.insertBefore(row, body.children[position] ?? null);
    });
    known.forEach((row) => row.remove());
  }

  function fillRun(row, run) {
    const link = cell(row, "name");
    link.href = `/runs/${run.id}/`;
    live.write(link, run.workflow || "unnamed");
    live.write(cell(row, "id"), run.id.slice(-8));
    if (run.late) live.state(cell(row, "state"), "late", `${run.state}, late`);
    else live.state(cell(row, "state"), run.state);
    cell(row, "bar").style.setProperty("--value", String(run.nodes_total ? run.nodes_done / run.nodes_total : 0));
    live.write(cell(row, "nodes"), `${run.nodes_done}/${run.nodes_total}`);
    const latency = cell(row, "latency");
    if (run.finished_at === null) latency.dataset.since = String(run.accepted_at);
    else delete latency.dataset.since;
    live.write(latency, live.seconds((run.finished_at ?? live.now()) - run.accepted_at));
    live.write(cell(row, "switches"), String(run.switches));
  }

  function fillSwitch(row, item) {
    const link = cell(row, "link");
    link.href = `/runs/${item.run}/switches/${item.seq}/`;
    live.write(link, `π(${item.from_variant}) → π(${item.to_variant})`);
    live.write(cell(row, "name"), item.workflow);
    cell(row, "at").dataset.ago = String(item.at);
    live.write(cell(row, "at"), live.ago(item.at));
    live.write(cell(row, "text"), item.text);
  }

  function fillLoad(row, item) {
    const words = live.loadWords(item, limits);
    row.className = `load-now model-${item.token}`;
    row.dataset.class = item.model;
    row.dataset.level = words.level;
    const chip = cell(row, "model");
    chip.className = `model model-${item.token}`;
    live.write(chip, item.model);
    live.write(cell(row, "load"), words.load);
    live.meter(cell(row, "meter"), words.value);
    live.marks(row, limits);
    live.write(cell(row, "detail"), `${words.verdict}; ${live.loadDetail(item)}`);
  }

  const billions = (model) => Number.parseFloat(live.size(model)) || 0;

  function showLoads(items) {
    loads.querySelector("[data-empty]").hidden = items.length > 0;
    const ordered = [...items].sort((a, b) => billions(b.model) - billions(a.model));
    const body = loads.querySelector(".load-list") ?? loads.appendChild(Object.assign(document.createElement("div"), { className: "stack load-list" }));
    keyed(body, ordered, (item) => item.model, () => copy("load-row"), fillLoad);
  }

  function list(body, empty, items, ...rest) {
    document.getElementById(empty).hidden = items.length > 0;
    keyed(document.getElementById(body), items, ...rest);
  }

  let window_s = 900;

  function show(data) {
    window_s = data.window_s;
    showStats(data.stats);
    showLoads(data.loads);
    list("recent-runs", "no-runs", data.runs.slice(0, 12), (run) => run.id, () => copy("run-row"), fillRun);
    list("recent-switches", "no-switches", data.switches, (item) => `${item.run} ${item.seq}`, () => copy("switch-row"), fillSwitch);
  }

  const first = live.document("overview-document");
  live.learnTime(first.server_time);
  show(first);
  live.socket(() => "/ws/overview/", { message: show });
  live.feedCharts(document.getElementById("chart-feed"));
})();
