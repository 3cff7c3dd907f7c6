"use strict";
// One run: who holds what, what the output layers' norms say of it, and who learned from whom.

let parts = null;

const chosenRun = () => DATA.runs[state.run];
const chosenStep = (held) => (state.step < 0 ? held.rounds.length - 1 : Math.min(state.step, held.rounds.length - 1));

/** Values of one snapshot out of an array over snapshots. */
function slice(packed, step) {
  const [, rows, columns] = packed.shape, all = unpack(packed);
  return all.subarray(step * rows * columns, (step + 1) * rows * columns);
}

/** Shares of a row's sum: p~ of norms; uniform where all are zero. */
function shares(values, columns) {
  const made = new Float64Array(values.length);
  for (let start = 0; start < values.length; start += columns) {
    let sum = 0;
    for (let j = 0; j < columns; j++) sum += values[start + j];
    for (let j = 0; j < columns; j++) made[start + j] = sum > 0 ? values[start + j] / sum : 1 / columns;
  }
  return made;
}

/** Redraw what the run or the round decides; a new run builds the section anew. */
function drawInside(changes = {}) {
  const onlyRound = parts && Object.keys(changes).every((name) => ["step", "scale", "part"].includes(name));
  if (!onlyRound) buildInside();
  if (parts?.bubbles && !("step" in changes && onlyRound)) drawBubbles();
  if (parts?.lost && !onlyRound) drawLost();
  if (!parts?.held) return;
  showRound();
  if (!("step" in changes && onlyRound)) drawLabels();
  // A slider that is dragged draws once a frame, whatever it passes over.
  if (!parts.waiting) requestAnimationFrame(drawOnce(parts));
  parts.waiting = true;
}

const drawOnce = (asked) => () => {
  asked.waiting = false;
  if (asked === parts) drawRound();
};

/** The number of the round, at once. */
function showRound() {
  const { held, input, now } = parts, round = held.rounds[chosenStep(held)];
  now.textContent = `${round} of ${chosenRun().planned}`;
  input.setAttribute("aria-valuetext", `round ${round}`);
}

/** Labels do not change from round to round. */
function drawLabels() {
  const { held, division } = parts;
  if (!division) return;
  const [rows, columns] = division.p.shape, p = unpack(division.p), share = state.scale === "shares";
  const map = { values: p, rows, columns: division.classes, across: "class", down: "client" };
  parts.p.draw(heat({ ...map, low: 0, high: share ? topShare(held, p) : greatest(p),
    text: (i, j, v) => [`client ${i}, class ${division.classes[j]}`, `p ${v.toFixed(3)}`] }),
  "Share of a client's training samples that each class has.", heatTable(map), { tall: heightFor(rows, 17, 110) });
}

function buildInside() {
  const element = body("inside"), indices = shown().flatMap((v) => v.runs);
  // Focus would be lost with the list that was used.
  const focused = element.contains(document.activeElement) ? document.activeElement.id : "";
  clear(element);
  parts = null;
  if (!indices.length) return element.append(gone("No run matches the filters."));
  // To begin with, a run whose norms have something to tell.
  if (!indices.includes(state.run)) {
    state.run = indices.find((i) => DATA.runs[i].finished && DATA.runs[i].wdr > 0) ?? indices[0];
  }
  const run = chosenRun(), held = run.snapshots, division = DATA.partitions[run.partition];
  const names = indices.map((index) => [index, `${DATA.runs[index].name} (seed ${DATA.runs[index].seed})`]);
  const tools = make("div", { class: "row" }, picker("Run", names, state.run,
    (value) => update({ run: Number(value), step: -1 }), "run"));
  element.append(tools, ...run.notes.map(gone));
  parts = { held, division };
  if (division) {
    tools.append(toggle("Samples", "part", [["train", "training"], ["test", "test"]], state.part,
      (value) => update({ part: value })));
    parts.bubbles = figure("Who holds which classes");
    element.append(parts.bubbles.element);
  }
  if (run.left_out) {
    parts.lost = figure("Who was left out of which rounds");
    element.append(parts.lost.element);
  }
  if (held) buildRound(element);
  document.getElementById(focused)?.focus();
  return undefined;
}

function buildRound(element) {
  const { held, division } = parts, last = held.rounds.length - 1;
  const output = make("output", { id: "round-now", for: "round" });
  const input = make("input", { type: "range", id: "round", min: 0, max: last, step: 1, value: chosenStep(held),
    oninput: () => update({ step: Number(input.value) }) });
  parts.input = input;
  parts.now = output;
  const grid = make("div", { class: "grid" });
  if (division) parts.p = figure("Label distribution p");
  parts.upload = figure("");
  parts.received = figure("");
  if (division) parts.fit = figure("Norms against labels");
  for (const group of ["output", "base"]) {
    if (held[group]) parts[group] = figure(`Who learns from whom: ${group === "output" ? "output layer" : "base"}`);
  }
  const drawn = ["p", "upload", "received", "fit", "output", "base"].map((name) => parts[name]);
  grid.append(...drawn.filter((f) => f).map((f) => f.element));
  element.append(
    make("h3", { style: "margin-top:1.4rem" }, "Round by round"),
    make("div", { class: "row" }, toggle("Heat maps show", "scale", [["norms", "weight norms"],
      ["shares", "shares of a client's sum (p and p~)"]], state.scale, (value) => update({ scale: value }))),
    make("div", { class: "slider" }, make("label", { for: "round" }, "Round"), input, output), grid);
  if (!held.output && !held.base) {
    grid.after(make("p", { class: "note" }, "This method mixes no uploads by a matrix: there is no map of who learns from whom."));
  }
}

/** Participations that were lost, by client and round. */
function drawLost() {
  const { lost, rounds, reasons, asked } = chosenRun().left_out, [clients] = lost.shape;
  const names = rounds.map(([first, last]) => (first === last ? String(first) : `${first}–${last}`));
  const values = unpack(lost).map(Math.round), total = Object.values(reasons).reduce((a, b) => a + b, 0);
  const said = Object.entries(reasons).map(([reason, count]) => `${count} ${reason}`).join(", ");
  const many = rounds.some(([first, last]) => first !== last);
  const map = { values, rows: clients, columns: names, across: "round", down: "client" };
  parts.lost.draw(heat({ ...map, low: 0, high: Math.max(lost.high, 1),
    text: (i, j, v) => [`client ${i}, round ${names[j]}`, many ? `left out ${plural(v, "time")}` : v ? "left out" : "took part"] }),
  `${total} of ${plural(asked, "participation")} did not count: ${said}. A client that is left out keeps its last `
  + `upload and score. ${many ? "A column holds several rounds. " : ""}Empty where a client was not asked.`,
  heatTable(map, (v) => (Number.isNaN(v) ? "not asked" : String(v))), { tall: heightFor(clients, 17, 110) });
}

/** Bubbles of clients and classes; the longer side lies across where the screen is wide. */
function drawBubbles() {
  const { division, bubbles } = parts, counts = unpack(division[state.part]);
  const [clients, classes] = division[state.part].shape, narrow = window.innerWidth < 700;
  const flipped = classes > 2 * clients && !narrow;
  const ids = [...Array(clients).keys()].map(String), names = division.classes;
  const [across, down] = flipped ? [names, ids] : [ids, names];
  const tall = heightFor(down.length, flipped ? 20 : 17, 70);
  const cell = Math.min((bubbles.element.clientWidth - 110) / across.length, (tall - 60) / down.length);
  const size = Math.max(Math.min(1.7 * cell, 30), 13), most = counts.reduce((a, b) => Math.max(a, b), 1);
  const data = [];
  for (let i = 0; i < clients; i++) {
    for (let j = 0; j < classes; j++) {
      const count = Math.round(counts[i * classes + j]);
      if (count) data.push(flipped ? [j, i, count] : [i, j, count]);
    }
  }
  const samples = data.reduce((sum, d) => sum + d[2], 0);
  const lines = { show: true, lineStyle: { color: css("--grid") } };
  const room = flipped ? 52 : narrow ? 66 : 98;
  bubbles.draw({
    grid: { left: room, right: 16, top: 14, bottom: 42 },
    tooltip: hint(({ value: [x, y, count] }) => [
      `client ${flipped ? y : x}, class ${names[flipped ? x : y]}`, plural(count, "sample")]),
    xAxis: axis(flipped ? "class" : "client", { type: "category", data: across, splitLine: lines }),
    yAxis: axis(flipped ? "client" : "class", { nameGap: room - 14, type: "category", data: down, inverse: true, splitLine: lines,
      axisLabel: { width: room - 26, overflow: "truncate", interval: Math.ceil(down.length / 32) - 1 } }),
    series: [{ type: "scatter", data, symbolSize: (value) => Math.max(size * Math.sqrt(value[2] / most), 2),
      itemStyle: { color: look(LABELS[0]).colour, opacity: 0.7 } }],
  }, `${plural(clients, "client")}, ${classes} classes, ${plural(samples, "sample")} to `
    + `${state.part === "train" ? "train on" : "test on"}; a client holds `
    + `${(data.length / clients).toFixed(1)} classes on average. A bubble's area is the number of samples.`,
  heatTable({ values: counts, rows: clients, columns: names, across: "class", down: "client" }, (v) => String(Math.round(v))), { tall });
}

function drawRound() {
  const { held, division } = parts, step = chosenStep(held), round = held.rounds[step];
  const [, rows, columns] = held.upload.shape, share = state.scale === "shares";
  const classes = division ? division.classes : [...Array(columns).keys()].map(String);
  const p = division ? unpack(division.p) : null;
  const views = { upload: slice(held.upload, step), received: slice(held.received, step) };
  const estimated = shares(views.upload, columns);
  const common = { rows, columns: classes, across: "class", down: "client" };
  const tall = heightFor(rows, 17, 110);
  const top = share ? topShare(held, p) : Math.max(held.upload.high, held.received.high);
  for (const [name, title] of [["upload", "Uploaded models"], ["received", "Received models"]]) {
    const values = share ? shares(views[name], columns) : views[name], word = share ? "share" : "norm";
    parts[name].draw(heat({ ...common, values, low: 0, high: top,
      text: (i, j, v) => [`client ${i}, class ${classes[j]}`, `${word} ${v.toFixed(3)}`] }),
    `After round ${round}. The scale is the same in all rounds.`, heatTable({ ...common, values }),
    { tall, name: `${title}: ${share ? "shares of the norms" : "norms of the output layer's rows"}` });
  }
  if (division) drawFit(p, estimated, columns, round, classes);
  for (const group of ["output", "base"]) if (parts[group]) drawMixing(group, step, round, rows);
}

const greatest = (values) => values.reduce((a, b) => Math.max(a, b), 0);

/** Greatest share of labels and, over all rounds, of norms, worked out once: a scale that does not move. */
function topShare(held, p) {
  if (held.top === undefined) {
    const top = ["upload", "received"].flatMap((name) => held.rounds.map((_, step) =>
      greatest(shares(slice(held[name], step), held[name].shape[2]))));
    Object.defineProperty(held, "top", { value: greatest(top) });
  }
  return Math.max(held.top, greatest(p || []));
}

function drawFit(p, estimated, columns, round, classes) {
  const edge = Math.ceil(10 * topShare(parts.held, p)) / 10, clients = p.length / columns;
  const run = chosenRun();
  parts.fit.draw({
    grid: { left: 58, right: 18, top: 10, bottom: 42 },
    tooltip: hint((item) => (item.data.length ? [
      `client ${Math.floor(item.dataIndex / columns)}, class ${classes[item.dataIndex % columns]}`,
      `p ${item.value[0].toFixed(3)}, p~ ${item.value[1].toFixed(3)}`] : null)),
    xAxis: axis("p, share of labels", { type: "value", min: 0, max: edge }),
    yAxis: axis("p~, share of norms", { type: "value", min: 0, max: edge, nameGap: 38 }),
    series: [{
      type: "scatter", data: [...p].map((value, i) => [value, estimated[i]]), symbolSize: 7,
      large: p.length > 2000, progressive: 0, itemStyle: { color: look(LABELS[0]).colour, opacity: 0.55 },
      markLine: { silent: true, symbol: "none", label: { show: false },
        lineStyle: { color: css("--soft"), type: "dashed" },
        data: [[{ coord: [0, 0] }, { coord: [edge, edge] }]] },
    }],
  }, `After round ${round}, mean R ${decimal(parts.held.mean_R[chosenStep(parts.held)])}. On the dashed line the uploads' norms are the `
    + `label distribution. ${run.wdr > 0 ? `This run uses WDR with λ = ${run.wdr}.` : "This run does not use WDR."}`,
  fitTable(p, estimated, columns, classes), { tall: heightFor(clients, 17, 110) });
}

/** Two rows a client: its labels' shares, and those of its norms. */
function fitTable(p, estimated, columns, classes) {
  const row = (name, values, client) => [`${client}, ${name}`,
    ...Array.from(values.subarray(client * columns, (client + 1) * columns), (v) => decimal(v))];
  return () => ({
    head: ["client \\ class", ...classes],
    rows: [...Array(p.length / columns).keys()].flatMap((i) => [row("p", p, i), row("p~", estimated, i)]),
  });
}

function drawMixing(group, step, round, rows) {
  const packed = parts.held[group], values = slice(packed, step);
  const ids = [...Array(packed.shape[2]).keys()].map(String);
  let own = 0, there = false;
  for (let i = 0; i < rows; i++) {
    const value = values[i * ids.length + i];
    if (!Number.isNaN(value)) { own += value / rows; there = true; }
  }
  const map = { values, rows, columns: ids, across: "learns from client", down: "client" };
  parts[group].draw(heat({ ...map, low: Math.min(0, packed.low), high: packed.high,
    text: (i, j, v) => [`client ${i} takes ${v.toFixed(3)}`, `of client ${j}'s upload`] }),
  there ? `After round ${round}. On average a client keeps ${own.toFixed(2)} of its own upload.`
    : `After round ${round}: nothing has been mixed yet.`, heatTable(map), { tall: heightFor(rows, 17, 110) });
}
