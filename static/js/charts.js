// Draws every [data-chart] with Plotly from the JSON block it names: theme-aware, responsive, without the mode bar.
// Loaded after app.js and vendor/plotly.min.js. `dyserve.charts.draw(root)` draws what a fragment brought along.
(() => {
  const CONFIG = { displayModeBar: false, displaylogo: false, responsive: true, scrollZoom: false };
  const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", Arial, sans-serif';

  // var(--token), optionally var(--token)/alpha, becomes this theme's colour.
  function resolved(value) {
    if (typeof value === "string") {
      const found = /^var\((--[a-z0-9-]+)\)(?:\/([0-9.]+))?$/.exec(value);
      if (!found) return value;
      const colour = window.dyserve.colour(found[1]);
      return found[2] ? colour.replace("rgb(", "rgba(").replace(")", `, ${found[2]})`) : colour;
    }
    if (Array.isArray(value)) return value.map(resolved);
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, resolved(item)]));
    }
    return value;
  }

  function axis(given = {}) {
    const colours = { gridcolor: "var(--grid-line)", linecolor: "var(--border-strong)", zerolinecolor: "var(--grid-line)" };
    const title = typeof given.title === "string" ? { text: given.title } : given.title;
    return {
      automargin: true, ticks: "", ...colours, ...given,
      title: { standoff: 8, font: { size: 11.5, color: "var(--muted)" }, ...title },
      tickfont: { size: 11, color: "var(--muted)", ...given.tickfont },
    };
  }

  function themed(layout) {
    const axes = Object.keys(layout).filter((key) => /^[xy]axis\d*$/.test(key));
    const named = new Set([...axes, "xaxis", "yaxis"]);
    const result = {
      margin: { l: 8, r: 12, t: 10, b: 8 },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: FONT, size: 12, color: "var(--text)" },
      hoverlabel: { bgcolor: "var(--surface)", bordercolor: "var(--border-strong)", font: { family: FONT, size: 12, color: "var(--text)" }, align: "left" },
      legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, font: { size: 11.5, color: "var(--muted)" } },
      ...layout,
    };
    named.forEach((key) => { result[key] = axis(layout[key]); });
    return resolved(result);
  }

  function figureOf(plot) {
    return JSON.parse(document.getElementById(plot.dataset.chart).textContent);
  }

  function drawOne(plot) {
    const figure = figureOf(plot);
    window.Plotly.react(plot, resolved(figure.data), themed(figure.layout ?? {}), CONFIG);
    plot.dataset.drawn = "true";
  }

  function draw(root = document) {
    if (!window.Plotly) return;
    root.querySelectorAll("[data-chart]").forEach(drawOne);
  }

  function forget(root) {
    if (!window.Plotly || !root?.querySelectorAll) return;
    root.querySelectorAll("[data-chart][data-drawn]").forEach((plot) => window.Plotly.purge(plot));
  }

  window.dyserve.charts = { draw, drawOne, resolved, themed, CONFIG };
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.shouldSwap) forget(event.detail.target);
  });
  document.addEventListener("htmx:afterSettle", (event) => draw(event.detail.elt));
  window.dyserve.whenThemeChanges(() => draw());
  draw();
})();
