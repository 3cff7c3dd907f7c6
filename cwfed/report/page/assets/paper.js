"use strict";
// Published figures beside one's own.

function drawPaper() {
  const section = document.getElementById("paper");
  section.hidden = !DATA.tables.length;
  body("paper").replaceChildren(...DATA.tables.flatMap(paperTable));
}

function paperTable(table) {
  const head = make("tr", {}, ["method", "scored", ...table.columns].map((text) =>
    make("th", { scope: "col" }, text)));
  const rows = table.rows.filter((row) => row.cells.some((c) => c.paper !== null || c.ours.length));
  return [
    make("h3", {}, table.title),
    make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": table.title },
      make("table", {}, make("thead", {}, head), make("tbody", {}, rows.map((row) =>
        make("tr", {}, make("td", {}, row.method), make("td", {}, METRICS[row.metric]),
          row.cells.map((one) => paperCell(one, table))))))),
    make("p", { class: "note" },
      `Test accuracy in percent, ${table.choice.replace("_", " ")} over rounds. Source of the published `
      + `figures: ${table.source || "not stated"}. Runs with fewer than `
      + `${table.protocol_rounds.toLocaleString("en")} rounds are at a reduced scale: the difference is `
      + "shown and nothing is judged by it."),
    ...table.notes.map((note) => make("p", { class: "note" }, note)),
  ];
}

function paperCell(one, table) {
  const published = one.paper === null ? "n/a" : `${one.approx ? "≈ " : ""}${one.paper.toFixed(2)}`;
  const parts = [make("small", {}, `paper ${published}`)];
  for (const ours of one.ours) {
    const seeds = plural(ours.n, "seed"), rounds = ours.rounds.toLocaleString("en");
    const spread = known(ours.std) ? ` ± ${ours.std.toFixed(2)}` : "";
    parts.push(make("div", {}, known(ours.mean) ? `ours ${ours.mean.toFixed(2)}${spread}` : "ours –"));
    if (known(ours.difference)) {
      const sign = ours.difference >= 0 ? "+" : "−";
      const verdict = ours.verdict ? `, ${ours.verdict} (${one.tolerance})` : "";
      parts.push(make("small", {}, `${sign}${Math.abs(ours.difference).toFixed(2)} points${verdict}`));
    }
    const scale = ours.reduced ? `reduced: ${rounds} of ${table.protocol_rounds.toLocaleString("en")} rounds`
      : `${rounds} rounds`;
    parts.push(make("small", {}, make("span", { class: ours.reduced ? "tag" : null }, scale), ` ${seeds}`));
  }
  if (!one.ours.length) parts.push(make("small", {}, "ours: no run"));
  return make("td", {}, parts);
}
