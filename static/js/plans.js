// The plans of a workflow page: presets set the sliders, a variant's badges go into the DAG, nodes lead to their row.
(() => {
  const form = document.getElementById("plan-form");
  const dag = document.querySelector("#workflow-dag .dag");
  let shown = 0;

  function badges() {
    const block = document.getElementById("plan-badges");
    return block ? JSON.parse(block.textContent).variants : [];
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

  document.addEventListener("click", (event) => {
    const target = event.target instanceof Element ? event.target : null;
    const preset = target?.closest("[data-preset]");
    if (preset) {
      setSliders(JSON.parse(preset.dataset.preset));
      markPreset();
    }
    const button = target?.closest("[data-show-variant]");
    if (button) showVariant(Number(button.dataset.showVariant));
  });
  form?.addEventListener("input", markPreset);

  document.addEventListener("dag:select", (event) => {
    const row = document.querySelector(`[data-why="${CSS.escape(event.detail.node)}"]`);
    if (!row) return;
    document.querySelectorAll("[data-why][aria-selected]").forEach((other) => other.removeAttribute("aria-selected"));
    row.setAttribute("aria-selected", "true");
    row.scrollIntoView({ block: "center", behavior: "smooth" });
  });

  document.addEventListener("htmx:afterSettle", (event) => {
    if (event.detail.target?.id === "plans") showVariant(shown);
  });
})();
