// What every page's shell does. Other scripts use `dyserve`: toast, connection, colour, showSlider, whenThemeChanges.
(() => {
  const root = document.documentElement;
  const themeListeners = [];

  function isDark() {
    if (root.dataset.theme) return root.dataset.theme === "dark";
    return matchMedia("(prefers-color-scheme: dark)").matches;
  }

  function showTheme() {
    const use = document.querySelector("[data-theme-toggle] use");
    if (use) use.setAttribute("href", isDark() ? "#i-sun" : "#i-moon");
    themeListeners.forEach((listener) => listener());
  }

  function toggleTheme() {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("dyserve-theme", root.dataset.theme); } catch { /* lasts for this page only */ }
    showTheme();
  }

  // A token's colour in the current theme, as rgb(...): light-dark() resolves only where it is used.
  function colour(token) {
    const probe = document.createElement("span");
    probe.style.color = `var(${token})`;
    probe.hidden = true;
    document.body.append(probe);
    const value = getComputedStyle(probe).color;
    probe.remove();
    return value;
  }

  function toast(text, kind = "info") {
    const box = document.createElement("div");
    box.className = `toast ${kind}`;
    const words = document.createElement("span");
    words.textContent = text;
    const close = document.createElement("button");
    close.className = "button quiet small";
    close.type = "button";
    close.dataset.dismiss = "";
    close.textContent = "Dismiss";
    box.append(words, close);
    document.getElementById("toasts")?.append(box);
    if (kind !== "error") setTimeout(() => box.remove(), 6000);
  }

  const CONNECTION_WORDS = { live: "Live", reconnecting: "Reconnecting", ended: "Ended" };

  // Pages with a live feed call this; `off` hides the indicator.
  function connection(state) {
    const box = document.querySelector("[data-connection]");
    if (!box) return;
    box.dataset.connection = state;
    box.hidden = !(state in CONNECTION_WORDS);
    box.textContent = CONNECTION_WORDS[state] ?? "";
  }

  function sortTable(button) {
    const heading = button.closest("th");
    const table = button.closest("table");
    const ascending = heading.getAttribute("aria-sort") !== "ascending";
    const column = [...heading.parentNode.children].indexOf(heading);
    const body = table.tBodies[0];
    const key = (row) => row.children[column]?.dataset.sort ?? row.children[column]?.textContent.trim() ?? "";
    const compare = (a, b) => {
      const [x, y] = [Number(key(a)), Number(key(b))];
      return Number.isNaN(x) || Number.isNaN(y) ? key(a).localeCompare(key(b)) : x - y;
    };
    [...body.rows].sort((a, b) => (ascending ? compare(a, b) : compare(b, a))).forEach((row) => body.append(row));
    table.querySelectorAll("th[aria-sort]").forEach((other) => other.removeAttribute("aria-sort"));
    heading.setAttribute("aria-sort", ascending ? "ascending" : "descending");
  }

  async function copy(button) {
    const source = document.getElementById(button.dataset.copy);
    if (!source) return;
    try {
      await navigator.clipboard.writeText(source.textContent.trim());
      toast("Copied.", "success");
    } catch {
      const range = document.createRange();
      range.selectNodeContents(source);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      toast("The browser does not let this page copy: the text is selected, press Ctrl+C.");
    }
  }

  // The navigation of a narrow window.
  function openMenu(toggle, open) {
    const menu = document.getElementById(toggle.dataset.toggle);
    menu.classList.toggle("open", open);
    toggle.setAttribute("aria-expanded", String(open));
    if (open) menu.querySelector("a")?.focus();
  }

  function closeMenus() {
    document.querySelectorAll('[data-toggle][aria-expanded="true"]').forEach((toggle) => openMenu(toggle, false));
  }

  document.addEventListener("click", (event) => {
    const target = event.target instanceof Element ? event.target : null;
    if (!target) return;
    const hit = (selector) => target.closest(selector);
    if (hit("[data-theme-toggle]")) toggleTheme();
    if (hit("[data-dismiss]")) hit("[data-dismiss]").closest(".toast, .notice")?.remove();
    if (hit(".sort-button")) sortTable(hit(".sort-button"));
    if (hit("[data-copy]")) copy(hit("[data-copy]"));
    if (hit("[data-close-drawer]")) hit(".drawer")?.removeAttribute("open");
    const toggle = hit("[data-toggle]");
    if (toggle) openMenu(toggle, toggle.getAttribute("aria-expanded") !== "true");
    else if (!hit("#sidebar")) closeMenus();
    document.querySelectorAll("details.menu[open]").forEach((menu) => {
      if (!menu.contains(target)) menu.open = false;
    });
  });

  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    closeMenus();
    document.querySelectorAll("details.menu[open]").forEach((menu) => { menu.open = false; });
    document.querySelectorAll(".drawer[open]").forEach((drawer) => drawer.removeAttribute("open"));
  });

  function fillSlider(input) {
    const [low, high] = [Number(input.min || 0), Number(input.max || 100)];
    input.style.setProperty("--fill", `${((Number(input.value) - low) / (high - low)) * 100}%`);
  }

  // Sliders say their value at once, before the server answers.
  function showSlider(input) {
    fillSlider(input);
    const output = input.parentElement?.querySelector("output");
    if (output) output.textContent = Number(input.value).toFixed(2);
  }

  document.addEventListener("input", (event) => {
    if (event.target instanceof HTMLInputElement && event.target.type === "range") showSlider(event.target);
  });
  document.querySelectorAll('input[type="range"]').forEach(showSlider);

  const REQUEST_ERRORS = {
    403: "You are not allowed to do this, or your session has ended: sign in again.",
    404: "This is not here any more: reload the page.",
    413: "The upload is too large.",
  };
  document.addEventListener("htmx:responseError", (event) => {
    const status = event.detail.xhr.status;
    toast(REQUEST_ERRORS[status] ?? `The server answered with an error (${status}).`, "error");
  });
  // A session that has ended answers a fragment's request with the sign-in page: go there, do not show it inside this one.
  document.addEventListener("htmx:beforeSwap", (event) => {
    const url = event.detail.xhr.responseURL;
    if (!url || new URL(url).pathname !== "/login/" || location.pathname === "/login/") return;
    event.detail.shouldSwap = false;
    location.assign(`/login/?next=${encodeURIComponent(location.pathname + location.search)}`);
  });
  document.addEventListener("htmx:sendError", () => toast("The server cannot be reached. Try again.", "error"));
  document.addEventListener("htmx:timeout", () => toast("The server took too long to answer. Try again.", "error"));

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showTheme);
  document.querySelectorAll("[data-toast].success, [data-toast].info").forEach((box) => setTimeout(() => box.remove(), 6000));
  window.dyserve = { toast, connection, colour, showSlider, isDark, whenThemeChanges: (listener) => themeListeners.push(listener) };
  showTheme();
})();
