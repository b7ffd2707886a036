// The upload page: drop, choose or paste a document; the server previews it and names problems line by line.
(() => {
  const form = document.getElementById("upload-form");
  if (!form) return;
  const [text, file, filename] = ["text", "file", "filename"].map((name) => form.elements[name]);
  const gutter = form.querySelector(".gutter");
  const drop = form.querySelector(".drop");
  const chosen = form.querySelector("[data-chosen]");
  const maxBytes = Number(form.dataset.maxBytes);
  // The server's own answer to a slightly larger file is better than ours; a far larger one is not sent at all.
  const refuseBytes = 1.8 * maxBytes;
  let badLines = new Set();
  let timer = 0;

  function drawGutter() {
    const count = text.value.split("\n").length;
    const lines = document.createDocumentFragment();
    for (let line = 1; line <= count; line += 1) {
      const mark = document.createElement("b");
      mark.textContent = String(line);
      if (badLines.has(line)) mark.className = "bad";
      lines.append(mark);
    }
    gutter.replaceChildren(lines);
    gutter.scrollTop = text.scrollTop;
  }

  function preview() {
    htmx.trigger(form, "preview");
  }

  function later() {
    clearTimeout(timer);
    timer = setTimeout(preview, 350);
  }

  function show(value, name) {
    text.value = value;
    filename.value = name;
    file.value = "";
    badLines = new Set();
    // Skills chosen for the document before do not carry over.
    document.querySelectorAll("#preview [data-skill]").forEach((select) => { select.name = ""; });
    drawGutter();
  }

  function decoded(bytes) {
    try {
      return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    } catch {
      return null;
    }
  }

  function say(words) {
    if (chosen) chosen.textContent = words;
  }

  async function take(given) {
    if (!given) return;
    if (given.size > refuseBytes) {
      const limit = maxBytes.toLocaleString("en");
      window.dyserve.toast(`${given.name} has ${given.size.toLocaleString("en")} bytes; the limit is ${limit}.`, "error");
      file.value = "";
      return;
    }
    say(given.name);
    const value = given.size > maxBytes ? null : decoded(await given.arrayBuffer());
    if (value === null) {
      // Too large or no UTF-8: the bytes themselves go to the server, which says what is wrong.
      const list = new DataTransfer();
      list.items.add(given);
      file.files = list.files;
      text.value = "";
      drawGutter();
    } else {
      show(value, given.name);
    }
    preview();
  }

  function goToLine(line) {
    const lines = text.value.split("\n");
    const start = lines.slice(0, line - 1).reduce((sum, other) => sum + other.length + 1, 0);
    text.focus();
    text.setSelectionRange(start, start + (lines[line - 1]?.length ?? 0));
    text.scrollTop = Math.max(0, (line - 6) * 18);
  }

  text.addEventListener("input", () => {
    if (file.value) file.value = "";
    drawGutter();
    later();
  });
  text.addEventListener("scroll", () => { gutter.scrollTop = text.scrollTop; });
  file.addEventListener("change", () => take(file.files[0]));
  form.addEventListener("change", (event) => {
    const select = event.target;
    if (!select.matches("[data-skill]")) return;
    // Only what a person chose is sent: the rule decides about all other nodes, also after an edit.
    select.name = select.dataset.skill;
    preview();
  });
  form.addEventListener("click", (event) => {
    const button = event.target.closest("[data-line]");
    if (button) goToLine(Number(button.dataset.line));
  });

  // The whole page takes a drop, so that a near miss does not navigate away.
  document.addEventListener("dragover", (event) => {
    event.preventDefault();
    drop.classList.add("over");
  });
  document.addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) drop.classList.remove("over");
  });
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    take(event.dataTransfer?.files[0]);
  });

  document.addEventListener("htmx:afterSwap", (event) => {
    if (event.detail.target.id !== "preview") return;
    badLines = new Set([...event.detail.target.querySelectorAll("[data-line]")].map((mark) => Number(mark.dataset.line)));
    drawGutter();
  });

  badLines = new Set([...document.querySelectorAll("#preview [data-line]")].map((mark) => Number(mark.dataset.line)));
  drawGutter();
})();
