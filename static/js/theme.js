// Runs before the first paint: the stored choice of dark or light, else the system's.
(() => {
  let stored = null;
  try { stored = localStorage.getItem("dyserve-theme"); } catch { /* storage is off: follow the system */ }
  if (stored === "dark" || stored === "light") document.documentElement.dataset.theme = stored;
})();
