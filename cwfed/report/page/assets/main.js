"use strict";
// Puts the page together: filters, theme, and who draws again when.

function drawAbout() {
  const unfinished = DATA.runs.filter((run) => !run.finished).length;
  document.getElementById("about").textContent = `${plural(DATA.runs.length, "run")}`
    + `${unfinished ? `, ${unfinished} unfinished` : ""}, `
    + `${plural(new Set(DATA.runs.map((run) => run.dataset)).size, "data set")}, `
    + `${plural(LABELS.length, "method")}; made by cwfed ${DATA.version}`;
}

function chooseSetting(index) {
  update({ setting: index, run: -1, step: -1, pair: ["", ""] });
}

function drawFields() {
  const element = document.getElementById("fields");
  const focused = element.contains(document.activeElement) ? document.activeElement : null;
  const sets = [...new Set(DATA.settings.map((s) => s.dataset))].sort();
  const settings = visibleSettings().map((s) => [DATA.settings.indexOf(s), s.label]);
  element.replaceChildren(
    picker("Data set", [["", "all"], ...sets.map((name) => [name, name])], state.dataset, (value) => {
      const first = DATA.settings.findIndex((s) => !value || s.dataset === value);
      state.dataset = value;
      chooseSetting(first);
    }, "dataset"),
    picker("Setting (data, partition, rounds)", settings, state.setting,
      (value) => chooseSetting(Number(value)), "setting"),
    toggle("Score", "metric", Object.entries(METRICS), state.metric, (value) => update({ metric: value })),
    toggle("Quoted", "choice", Object.entries(CHOICES), state.choice, (value) => update({ choice: value })));
  const again = focused && (focused.id ? document.getElementById(focused.id)
    : element.querySelector(`[name="${focused.name}"][value="${focused.value}"]`));
  again?.focus();
}

function drawChips() {
  const labels = [...new Set(visibleSettings().flatMap((s) => s.variants.map((v) => v.label)))].sort();
  const element = document.getElementById("methods");
  const focused = [...element.children].indexOf(document.activeElement);
  element.replaceChildren(...labels.map((label) => make("button", {
    type: "button", class: "chip", "aria-pressed": String(!state.hidden.has(label)),
    onclick: () => {
      const hidden = new Set(state.hidden);
      if (!hidden.delete(label)) hidden.add(label);
      update({ hidden });
    },
  }, swatch(label), label)));
  if (focused >= 0) element.children[focused]?.focus();
}

function drawSources() {
  const rows = DATA.runs.map((run) => make("tr", {},
    make("td", {}, run.name, make("small", {}, run.path)),
    make("td", {}, run.finished ? "finished" : "unfinished", make("small", {}, `seed ${run.seed}, ${run.rounds} of ${run.planned} rounds`)),
    make("td", {}, (run.hashes.dataset || "–").slice(0, 12)),
    make("td", {}, (run.hashes.partition || "–").slice(0, 12)),
    make("td", {}, (run.hashes.config || "–").slice(0, 12)),
    make("td", {}, run.hardware || "–", make("small", {}, ["python", "torch", "cwfed"].filter((name) => name in run.versions)
      .map((name) => `${name} ${run.versions[name]}`).join(", "))),
    make("td", {}, run.notes.join(" ") || "–")));
  const head = ["run", "state", "data hash", "partition hash", "configuration hash", "machine", "missing"];
  body("sources").replaceChildren(
    ...DATA.notes.map(gone),
    make("p", {}, "Accuracy is pooled over the clients' test sets, each client with its own model. "
      + "“Received” scores the models with which clients start the next round, “post-local” each "
      + "client's model right after its local training. R is the distance between a client's label distribution p and p~, the "
      + "distribution of its output layer's weight norms. Curves and maps are stored with 16 and 8 bits a number; the "
      + "tables hold the runs' own figures."),
    make("details", {}, make("summary", {}, `Folders, hashes and versions of ${plural(DATA.runs.length, "run")}`),
      make("div", { class: "scroll paths", tabindex: 0, role: "region", "aria-label": "Runs" }, make("table", {},
        make("thead", {}, make("tr", {}, head.map((text) => make("th", { scope: "col" }, text)))),
        make("tbody", {}, rows)))));
}

function setTheme(name, keep) {
  document.documentElement.dataset.theme = name;
  document.getElementById("theme").setAttribute("aria-pressed", String(name === "dark"));
  // Storage may be closed to a page opened from a file; the switch works all the same.
  try { if (keep) localStorage.setItem("cwfed-theme", name); } catch { /* not kept */ }
}

function startTheme() {
  let kept = null;
  try { kept = localStorage.getItem("cwfed-theme"); } catch { /* none */ }
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  setTheme(kept || (system.matches ? "dark" : "light"), false);
  system.addEventListener("change", (event) => {
    setTheme(event.matches ? "dark" : "light", false);
    drawAll();
  });
  document.getElementById("theme").addEventListener("click", () => {
    setTheme(dark() ? "light" : "dark", true);
    drawAll();
  });
}

const DRAWERS = [
  [drawFields, ["dataset", "setting", "metric", "choice"]],
  [drawChips, ["dataset", "setting", "hidden"]],
  [drawSummary, ["dataset", "setting", "hidden", "metric", "choice"]],
  [drawTable, ["dataset", "setting", "hidden", "metric", "choice", "sort", "view"]],
  [drawCurves, ["setting", "hidden", "metric", "figure", "span"]],
  [drawClients, ["setting", "hidden", "metric", "choice", "pair"]],
  [drawCost, ["setting", "hidden", "metric"]],
  [drawInside, ["setting", "hidden", "run", "step", "part", "scale"]],
];

function drawAll() {
  for (const [draw] of DRAWERS) draw();
}

startTheme();
drawAbout();
drawPaper();
drawSources();
drawAll();
watchers.push((changes) => {
  for (const [draw, names] of DRAWERS) if (names.some((name) => name in changes)) draw(changes);
});
