"use strict";
// The overview: methods with means over seeds, or run by run; sorted within a setting only.

const accuracyColumn = (metric, choice) => ({
  key: `${metric}/${choice}`, show: percent, spread: (v) => (100 * v).toFixed(2),
  title: `${METRICS[metric]}\n${choice === "last" ? "last" : "best"}`,
});

function columns() {
  return [
    { key: "label", title: "method", text: true },
    { key: "seeds", title: "seeds", scale: true },
    { key: "rounds", title: "rounds", scale: true },
    ...Object.keys(METRICS).flatMap((m) => Object.keys(CHOICES).map((c) => accuracyColumn(m, c))),
    { key: `${state.metric}/worst10`, title: `worst 10 %\n${METRICS[state.metric]}`, show: percent,
      spread: (v) => (100 * v).toFixed(2) },
    { key: "mean_R", title: "mean R", show: (v) => decimal(v), spread: (v) => v.toFixed(3) },
    { key: "megabytes", title: "MB a client\nand round", show: short },
    ...(DATA.runs.some((run) => run.left_out)
      ? [{ key: "left_out", title: "clients\nleft out", show: (v) => (v ? percent(v, 1) : "none") }] : []),
    { key: "seconds", title: "seconds\na round", show: (v) => decimal(v, 2), spread: (v) => v.toFixed(2) },
  ];
}

/** A row of figures; `values` holds what is shown and sorted by. */
function methodRows(group) {
  return group.variants.filter((v) => !state.hidden.has(v.label)).map((variant) => {
    const runs = counted(variant), any = DATA.runs[variant.runs[0]];
    const halted = variant.runs.length - variant.runs.filter((i) => DATA.runs[i].finished).length;
    const seeds = seedsOf(runs);
    return {
      label: variant.label, stats: variant.means || {}, seeds: seeds.join(", ") || "–",
      rounds: runs.length ? group.rounds : any.rounds,
      note: halted ? `${halted} unfinished` : "", place: group.variants.indexOf(variant),
      order: { label: variant.label, seeds: seeds.length, rounds: group.rounds },
    };
  });
}

function runRows(group) {
  return group.variants.filter((v) => !state.hidden.has(v.label)).flatMap((variant) =>
    variant.runs.map((index) => {
      const run = DATA.runs[index];
      const stats = Object.fromEntries(
        Object.entries(run.figures).map(([name, value]) => [name, { mean: value, std: null, n: 1 }]));
      return {
        label: variant.label, sub: run.name, stats, seeds: String(run.seed), rounds: run.rounds,
        note: run.finished ? "" : `unfinished: ${run.rounds} of ${run.planned}`,
        place: -1, order: { label: variant.label, seeds: run.seed, rounds: run.rounds },
      };
    }));
}

/** What rows are sorted by: at first, the accuracy that the page is about. */
const order = () => (state.sort.column ? state.sort
  : { column: `${state.metric}/${state.choice}`, descending: true });

function sorted(rows) {
  const { column, descending } = order();
  const value = (row) => (column in row.order ? row.order[column] : row.stats[column]?.mean);
  return [...rows].sort((a, b) => {
    const [one, two] = [value(a), value(b)];
    // What has no figure stands last, whichever way the others are sorted.
    if (!known(one) || !known(two)) return known(two) - known(one);
    const compared = typeof one === "string" ? one.localeCompare(two) : one - two;
    return descending ? -compared : compared;
  });
}

function headCell(column) {
  const { column: key, descending } = order(), active = key === column.key;
  const next = () => update({
    sort: { column: column.key, descending: active ? !descending : !column.text },
  });
  const arrow = active ? (descending ? " ▾" : " ▴") : "";
  return make("th", {
    scope: "col", class: column.scale ? "wide" : null,
    "aria-sort": active ? (descending ? "descending" : "ascending") : "none",
  }, make("button", { type: "button", onclick: next, "data-sort": column.key }, column.title + arrow));
}

function cell(row, column, lead) {
  const stat = row.stats[column.key];
  if (!stat || !known(stat.mean)) return make("td", {}, "–");
  const spread = known(stat.std) && column.spread ? make("small", {}, `± ${column.spread(stat.std)}`) : null;
  const mark = lead ? make("span", { class: "mark" }, " ▲") : null;
  return make("td", { class: lead ? "lead" : null }, column.show(stat.mean), mark, spread);
}

/** What is said of a row in the ranking by the chosen accuracy. */
const apart = (group, row) => (ranking(group).apart.includes(row.place) ? "other seeds: not ranked" : "");

function bodyOf(group) {
  const rows = state.view === "methods" ? methodRows(group) : runRows(group);
  if (!rows.length) return null;
  const all = columns();
  return make("tbody", {},
    make("tr", { class: "group" },
      make("th", { colspan: all.length, scope: "rowgroup" }, make("span", {}, group.label))),
    sorted(rows).map((row) => make("tr", {},
      make("td", {}, swatch(row.label), " ", row.label,
        row.sub ? make("small", {}, row.sub) : null,
        // On a phone, in the place of two columns.
        make("small", { class: "narrow" }, `seed${String(row.seeds).includes(",") ? "s" : ""} ${row.seeds}; ${plural(row.rounds, "round")}`),
        [row.note, apart(group, row)].filter((text) => text)
          .map((text) => make("small", {}, make("span", { class: "tag" }, text)))),
      make("td", { class: "wide" }, row.seeds), make("td", { class: "wide" }, row.rounds),
      all.slice(3).map((column) =>
        cell(row, column, (group.rankings[column.key]?.leaders || []).includes(row.place))))));
}

function drawTable() {
  const element = body("overview");
  // Focus would be lost with the button that was pressed.
  const focused = element.contains(document.activeElement) && document.activeElement.dataset.sort;
  const view = toggle("Rows", "view", [["methods", "methods, mean over seeds"], ["runs", "every run"]],
    state.view, (value) => update({ view: value }));
  const groups = visibleSettings().map(bodyOf).filter((group) => group);
  const table = make("table", { "aria-describedby": "table-note" },
    make("thead", {}, make("tr", {}, columns().map(headCell))), groups);
  element.replaceChildren(
    make("div", { class: "row" }, view),
    groups.length ? make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table of runs" }, table)
      : gone("No run matches the filters."),
    make("p", { class: "note", id: "table-note" },
      "± is the sample standard deviation over seeds; each seed draws its own partition, the same for "
      + "every method. ▲ marks the best of a setting on the seeds that the ranking compares. Best "
      + "is chosen on test data, as published figures are, and is optimistic. Seconds include "
      + "evaluation and depend on the machine. Rows are sorted within a setting only.",
      ...visibleSettings().map(hiddenWords).filter((text) => text).map((text) => ` ${text}`)));
  if (focused) element.querySelector(`[data-sort="${focused}"]`)?.focus();
}
