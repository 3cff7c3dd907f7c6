"use strict";
// Published figures beside one's own.

function drawPaper() {
  const section = document.getElementById("paper");
  section.hidden = !DATA.tables.length;
  body("paper").replaceChildren(...DATA.tables.flatMap(paperTable));
}

function paperTable(table) {
  const rows = table.rows.filter((row) =>
    row.cells.some((c) => c.paper !== null || known(c.sibling) || c.ours.length));
  const drawn = make("table", { class: "paper" }, paperHead(table), make("tbody", {}, rows.map((row) =>
    make("tr", {}, make("th", { scope: "row" }, row.method), make("td", {}, METRICS[row.metric]),
      row.cells.flatMap((one, i) => paperCells(one, table, table.columns[i]))))));
  const none = !table.rows.some((row) => row.cells.some((c) => c.ours.length));
  return [
    make("h3", {}, table.title),
    ...(none ? [gone("No finished run here belongs to a cell of this table.")] : []),
    make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": table.title }, drawn),
    ...paperNotes(table).map((text) => make("p", { class: "note" }, text)),
  ];
}

/** Two lines: the settings, and below each what stands there. */
function paperHead(table) {
  const protocol = plural(table.protocol_rounds, "round");
  const rounds = table.sibling.split(", ").at(-1);
  const below = table.columns.flatMap((column) => [
    `ours\n${CHOICES[table.choice] || "chosen on validation"}`, `paper\n${protocol}`,
    ...(column.sibling ? [`sibling\n${rounds}`] : []),
  ].map((text, i) => make("th", { scope: "col", class: i ? null : "start" }, text)));
  return make("thead", {},
    make("tr", {}, make("th", { scope: "col", rowspan: 2 }, "method"),
      make("th", { scope: "col", rowspan: 2 }, "scored"),
      table.columns.map((column) => make("th", {
        scope: "colgroup", colspan: column.sibling ? 3 : 2, class: "start",
      }, column.title))),
    make("tr", {}, below));
}

function paperNotes(table) {
  const rounds = plural(table.protocol_rounds, "round");
  return [
    `Test accuracy in percent. Source of the paper's figures: ${table.source || "not stated"}. A run of all `
    + `${rounds} is judged: reproduced within the tolerance, near within twice that, else off. Runs of `
    + "another number of rounds are marked: the difference is shown and nothing is judged by it.",
    ...(table.sibling ? [`Sibling: another protocol's figures, a second yardstick that nothing is judged by. ${table.sibling}.`] : []),
    ...table.notes,
  ];
}

function paperCells(one, table, column) {
  const published = one.paper === null ? "–" : `${one.approx ? "≈ " : ""}${one.paper.toFixed(2)}`;
  const ours = one.ours.length ? one.ours.map((each) => oursOf(each, one, table)) : "–";
  return [
    make("td", { class: "start" }, ours), make("td", {}, published),
    ...(column.sibling ? [make("td", {}, known(one.sibling) ? one.sibling.toFixed(2) : "–")] : []),
  ];
}

/** A mean over runs of one length, with what it may be compared by. */
function oursOf(ours, one, table) {
  const rounds = ours.rounds.toLocaleString("en"), whole = table.protocol_rounds.toLocaleString("en");
  const spread = known(ours.std) ? ` ± ${ours.std.toFixed(2)}` : "";
  const sign = ours.difference >= 0 ? "+" : "−";
  const verdict = ours.verdict ? `, ${ours.verdict} (± ${one.tolerance})` : "";
  return make("div", {}, known(ours.mean) ? `${ours.mean.toFixed(2)}${spread}` : "–",
    known(ours.difference)
      ? make("small", {}, `${sign}${Math.abs(ours.difference).toFixed(2)} points${verdict}`) : null,
    make("small", {}, make("span", { class: ours.scaled ? "tag" : null },
      ours.scaled ? `${rounds} of ${whole} rounds` : `${rounds} rounds`), ` ${plural(ours.n, "seed")}`),
    make("small", {}, ours.partition));
}
