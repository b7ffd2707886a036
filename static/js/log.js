// A run's event log: one line an event in a person's words, its JSON on demand. Texts of models are texts, never markup.
//   const log = dyserve.log({box, filter, follow, count, earlier, origin, titles});  log.add(events)
(() => {
  const MAX_ROWS = 2000;
  const live = window.dyserve.live;
  const variant = (index) => `π(${index})`;
  const named = (list) => (list.length > 4 ? `${list.slice(0, 4).join(", ")} and ${list.length - 4} more` : list.join(", "));

  function implementation(binding) {
    if (!binding) return "";
    const verifier = binding.verifier_model ? `@${live.size(binding.verifier_model)}` : "";
    return `${live.size(binding.model)} · ${binding.policy}${verifier}`;
  }

  function again(attempt) {
    return attempt > 1 ? ` (attempt ${attempt})` : "";
  }

  const SENTENCES = {
    run_accepted: (d) => `Accepted: ${d.workflow || "inline workflow"}${d.version ? ` v${d.version}` : ""}, ${d.deadline_s ? `deadline ${live.seconds(d.deadline_s)}` : "no deadline"}.`,
    run_claimed: (d) => (d.epoch > 1 ? `Taken over by worker ${d.worker}: the one before lost its lease.` : `Claimed by worker ${d.worker}.`),
    plan_ready: (d) => `π(0) is ready: mostly ${d.dominant_model ?? "no model"}, estimated quality ${d.estimated_quality.toFixed(3)}, makespan ${live.seconds(d.makespan_s)}, solved in ${live.seconds(d.solve_s)} by ${d.solver}.`,
    bundle_ready: (d) => (d.variants.length === 1 ? "The bundle is complete: every level gives the same plan." : `The bundle is complete: ${d.variants.map((v) => `${variant(v.index)} ${live.size(v.dominant_model) || "no model"}`).join(", ")}.`),
    node_dispatched: (d) => (d.kind === "tool" ? `Dispatched tool ${d.node}${again(d.attempt)}.` : `Dispatched ${d.node}${again(d.attempt)} to ${implementation(d.binding)}, as ${variant(d.variant)} has it.`),
    node_committed: (d) => `Committed ${d.node} after ${live.seconds(d.duration_s)}${d.calls ? `: ${d.calls} call${d.calls === 1 ? "" : "s"}, ${live.compact(d.prompt_tokens)} + ${live.compact(d.output_tokens)} tokens` : ""}.`,
    node_failed: (d) => `${d.node} failed${again(d.attempt)}: ${d.error?.code ?? ""} ${d.error?.message ?? ""}`.trim(),
    switched: (d) => d.text + (d.changed.length ? ` Changed ${named(d.changed)}.` : ""),
    switch_refused: (d) => d.text,
    cancel_requested: (d) => `${d.by} asked to cancel: nothing more is dispatched.`,
    run_succeeded: (d) => `Succeeded after ${live.seconds(d.duration_s)}${d.late ? ", late" : ""}.`,
    run_failed: (d) => `Failed${d.node ? ` at ${d.node}` : ""}: ${d.error?.code ?? ""} ${d.error?.message ?? ""}`.trim(),
    run_cancelled: (d) => `Cancelled after ${live.seconds(d.duration_s)}.`,
  };

  const ICONS = {
    run_accepted: "waiting", run_claimed: "runs", plan_ready: "workflows", bundle_ready: "workflows", node_dispatched: "running",
    node_committed: "done", node_failed: "failed", switched: "switch", switch_refused: "switch", cancel_requested: "cancelled",
    run_succeeded: "done", run_failed: "failed", run_cancelled: "cancelled",
  };

  function sentence(event) {
    try {
      return SENTENCES[event.kind]?.(event.data) ?? event.kind.replaceAll("_", " ");
    } catch {
      // An event of another schema is still an event: its JSON says the rest.
      return event.kind.replaceAll("_", " ");
    }
  }

  function line(event, origin) {
    const row = document.createElement("details");
    row.className = "log-row";
    row.dataset.kind = event.kind;
    row.dataset.seq = String(event.seq);
    const head = document.createElement("summary");
    const time = document.createElement("time");
    time.textContent = `+${live.seconds(Math.max(0, event.at - origin))}`;
    time.title = new Date(event.at * 1000).toISOString();
    const words = document.createElement("span");
    words.className = "log-words";
    words.textContent = sentence(event);
    head.append(time, live.icon(ICONS[event.kind] ?? "info"), words);
    row.append(head);
    row.addEventListener("toggle", () => {
      if (!row.open || row.querySelector("pre")) return;
      const raw = document.createElement("pre");
      raw.textContent = JSON.stringify(event, null, 2);
      row.append(raw);
    });
    row.dataset.text = `${event.kind} ${words.textContent}`.toLowerCase();
    return row;
  }

  function log({ box, filter, follow, count, earlier, origin }) {
    let last = 0;
    let total = 0;

    function toEnd() {
      box.scrollTop = box.scrollHeight;
    }

    function matches(row) {
      const wanted = filter.value.trim().toLowerCase();
      row.hidden = Boolean(wanted) && !row.dataset.text.includes(wanted);
    }

    function say() {
      const shown = [...box.querySelectorAll(".log-row")].filter((row) => !row.hidden).length;
      live.write(count, filter.value.trim() ? `${shown} of ${total} events` : `${total} event${total === 1 ? "" : "s"}`);
    }

    function add(events) {
      const fresh = events.filter((event) => event.seq > last);
      if (!fresh.length) return;
      last = fresh.at(-1).seq;
      total += fresh.length;
      const rows = document.createDocumentFragment();
      fresh.slice(-MAX_ROWS).forEach((event) => {
        const row = line(event, origin);
        matches(row);
        rows.append(row);
      });
      box.append(rows);
      const kept = box.querySelectorAll(".log-row");
      for (let spare = 0; spare < kept.length - MAX_ROWS; spare += 1) kept[spare].remove();
      if (kept.length > MAX_ROWS) earlier.hidden = false;
      say();
      if (follow.checked) toEnd();
    }

    filter.addEventListener("input", () => {
      box.querySelectorAll(".log-row").forEach(matches);
      say();
      if (follow.checked) toEnd();
    });
    follow.addEventListener("change", () => { if (follow.checked) toEnd(); });
    // Whoever scrolls up reads: the log stops following until its end is reached again.
    box.addEventListener("scroll", () => {
      follow.checked = box.scrollHeight - box.scrollTop - box.clientHeight < 24;
    });
    return { add };
  }

  window.dyserve.log = log;
})();
