// The plans of a workflow page: presets set the sliders, limits are sent when they are complete, a variant's badges go
// into the DAG. Event "variant:show" (detail.index) says which variant the page is about.
(() => {
  const form = document.getElementById("plan-form");
  const dag = document.querySelector("#workflow-dag .dag");
  const limits = document.getElementById("limits");
  let shown = 0;
  let sent = "";

  function badges() {
    const block = document.getElementById("plan-badges");
    return block ? JSON.parse(block.textContent).variants : [];
  }

  // Without a plan the graph shows none.
  function showNone() {
    dag?.querySelectorAll('.dag-node[data-kind="llm"]').forEach((group) => {
      window.dyserve.dag.setNode(dag, group.dataset.node, { badge: "", model: "none" });
      group.dataset.changed = "false";
    });
    const caption = document.getElementById("dag-caption");
    if (caption) caption.textContent = "no plan";
    document.dispatchEvent(new CustomEvent("variant:show", { detail: { index: shown } }));
  }

  function showVariant(index) {
    const variants = badges();
    if (!variants.length || !dag) return;
    shown = Math.min(index, variants.length - 1);
    Object.entries(variants[shown]).forEach(([node, { badge, model, changed }]) => {
      window.dyserve.dag.setNode(dag, node, { badge, model });
      const group = window.dyserve.dag.find(dag, node);
      if (group) group.dataset.changed = String(changed);
    });
    document.querySelectorAll("[data-variant-row]").forEach((row) => {
      row.setAttribute("aria-selected", String(Number(row.dataset.variantRow) === shown));
    });
    document.querySelectorAll("[data-show-variant]").forEach((button) => {
      button.setAttribute("aria-pressed", String(Number(button.dataset.showVariant) === shown));
    });
    const caption = document.getElementById("dag-caption");
    if (caption) {
      const changed = Object.values(variants[shown]).filter((node) => node.changed).length;
      caption.textContent = shown === 0 ? "showing π(0)" : `showing π(${shown}), ${changed} of ${Object.keys(variants[shown]).length} nodes differ from π(0)`;
    }
    document.dispatchEvent(new CustomEvent("variant:show", { detail: { index: shown } }));
  }

  function setSliders(values) {
    Object.entries(values).forEach(([name, value]) => {
      const input = form.elements[name];
      if (!input) return;
      input.value = value;
      window.dyserve.showSlider(input);
    });
    htmx.trigger(form, "recompile");
  }

  // A preset is marked while the sliders stand where it puts them.
  function markPreset() {
    document.querySelectorAll("[data-preset]").forEach((button) => {
      const values = Object.entries(JSON.parse(button.dataset.preset));
      const active = values.every(([name, value]) => Math.abs(Number(form.elements[name].value) - value) < 1e-9);
      button.setAttribute("aria-pressed", String(active));
    });
  }

  // Half a limit means nothing: limits are sent on Enter and when a field is left, not while they are typed.
  const limitValues = () => [...limits.querySelectorAll("input, textarea")].map((field) => field.value.trim()).join("\n\n");

  function sendLimits() {
    if (limitValues() === sent) return;
    sent = limitValues();
    htmx.trigger(form, "recompile");
  }

  function nameOf(line) {
    return line.slice(0, Math.max(0, line.lastIndexOf("="))).trim();
  }

  // Puts a limit where it was given, in its field or in its line of the text; an empty value takes it away.
  function fill(name, value) {
    const field = form.elements[name];
    const text = form.elements.limits;
    const lines = text.value.split(/\r?\n/);
    const place = lines.findIndex((line) => nameOf(line) === name);
    limits.open = true;
    if (place >= 0) {
      lines.splice(place, 1, ...(value ? [`${name}=${value}`] : []));
      text.value = lines.join("\n");
    } else if (field) field.value = value;
    else if (value) text.value = [...lines.filter((line) => line.trim()), `${name}=${value}`].join("\n");
    sendLimits();
    (place < 0 && field ? field : text).focus();
  }

  function clearLimits() {
    limits.querySelectorAll("input, textarea").forEach((field) => { field.value = ""; });
    sendLimits();
  }

  function markErrors() {
    document.querySelectorAll("[data-error-for]").forEach((box) => {
      const field = form.elements[box.dataset.errorFor];
      if (!field) return;
      if (box.textContent) {
        field.setAttribute("aria-invalid", "true");
        limits.open = true;
      } else field.removeAttribute("aria-invalid");
    });
  }

  document.addEventListener("click", (event) => {
    const target = event.target instanceof Element ? event.target : null;
    const preset = target?.closest("[data-preset]");
    if (preset) {
      setSliders(JSON.parse(preset.dataset.preset));
      markPreset();
    }
    const button = target?.closest("[data-show-variant]");
    if (button) showVariant(Number(button.dataset.showVariant));
    const filled = target?.closest("[data-fill]");
    if (filled) fill(filled.dataset.fill, filled.dataset.value);
    if (target?.closest("[data-clear-limits]")) clearLimits();
    if (target?.closest("[data-recompile]")) htmx.trigger(form, "recompile");
  });
  form?.addEventListener("input", markPreset);
  form?.addEventListener("submit", (event) => {
    event.preventDefault();
    sendLimits();
  });
  if (limits) {
    sent = limitValues();
    limits.addEventListener("input", (event) => event.stopPropagation());
    limits.addEventListener("change", sendLimits);
  }

  document.addEventListener("htmx:afterSettle", (event) => {
    if (event.detail.target?.id !== "plans") return;
    markErrors();
    // A run uses the plan that is shown: its options are what the page's address says now.
    const plan = document.querySelector('input[name="plan"]');
    if (plan && badges().length) plan.value = location.search.slice(1);
    if (badges().length) showVariant(shown);
    else showNone();
  });
})();
