"use strict";
// Client by client: how accuracies are spread, and who wins where.

/** Accuracies of clients with test samples, over the counted seeds. */
function clientScores(variant) {
  const key = `${state.metric}/${state.choice}`;
  return counted(variant).flatMap((run) => (run.correct[key] && run.test
    ? run.test.map((total, client) => ({
      seed: run.seed, client, correct: run.correct[key][client],
      value: total ? run.correct[key][client] / total : NaN,
    })).filter((one) => !Number.isNaN(one.value)) : []));
}

function quantile(ordered, share) {
  const at = (ordered.length - 1) * share, below = Math.floor(at);
  return ordered[below] + (at - below) * ((ordered[below + 1] ?? ordered[below]) - ordered[below]);
}

const fiveNumbers = (values) => {
  const ordered = [...values].sort((a, b) => a - b);
  return [0, 0.25, 0.5, 0.75, 1].map((share) => quantile(ordered, share));
};

let boxes = null, scatter = null, bars = null;

function drawClients() {
  const element = body("clients");
  const variants = shown().filter((v) => clientScores(v).length);
  clear(element);
  if (!variants.length) {
    element.append(gone("No client's accuracy is known: no finished run, or no partition.json."));
    return;
  }
  boxes = figure("Accuracy of the clients, by method");
  element.append(boxes.element);
  drawBoxes(variants);
  if (variants.length > 1) element.append(duel(variants));
}

function drawBoxes(variants) {
  const scores = variants.map((v) => clientScores(v)), rows = variants.map((v) => v.label);
  const five = scores.map((one) => fiveNumbers(one.map((s) => 100 * s.value)));
  const narrow = window.innerWidth < 700, room = narrow ? 96 : 190;
  const points = scores.flatMap((one, row) => one.map((s, i) => ({
    // Spread by place in the list, so that the picture is the same every time.
    value: [100 * s.value, row, ((i * 7) % 11) / 11 - 0.45], row, score: s,
  })));
  boxes.draw({
    grid: { left: room, right: 18, top: 8, bottom: 42 },
    tooltip: hint((item) => (item.seriesType === "boxplot"
      ? [item.name, ...["lowest", "lower quartile", "median", "upper quartile", "highest"].map(
        (word, i) => `${word} ${five[item.dataIndex][i].toFixed(1)} %`)]
      : [item.data.label, `client ${item.data.score.client}, seed ${item.data.score.seed}`,
        percent(item.data.score.value)])),
    xAxis: axis("accuracy, %", { type: "value", scale: true, max: 100 }),
    yAxis: axis("", { type: "category", data: rows, inverse: true, splitLine: { show: false },
      axisLabel: { width: room - 14, overflow: "truncate", color: css("--ink"), hideOverlap: false, interval: 0 } }),
    series: [
      { type: "boxplot", data: five.map((value, i) => ({
        value, name: rows[i],
        itemStyle: { color: "transparent", borderColor: look(rows[i]).colour, borderWidth: 2 },
      })), boxWidth: [14, 24] },
      { type: "scatter", symbolSize: 6, data: points.map((p) => ({
        value: [p.value[0], p.row], label: rows[p.row], score: p.score, symbol: look(rows[p.row]).mark,
        symbolOffset: [0, p.value[2] * 22],
        itemStyle: { color: look(rows[p.row]).colour, opacity: 0.55 },
      })).map(({ label, ...rest }) => ({ ...rest, label: { show: false }, name: label })) },
    ],
  }, `${scaleOf(variants)}; ${METRICS[state.metric]}, ${CHOICES[state.choice]}. Boxes hold the middle `
    + "half of the clients, whiskers reach to the lowest and highest. Medians: "
    + `${rows.map((row, i) => `${row} ${five[i][2].toFixed(1)} %`).join(", ")}.`
    + " The table has every client under every method, the best marked.",
  clientTable(variants, scores), { tall: Math.max(40 * rows.length + 70, 160) });
}

/** A row a client and seed: what it holds, and its accuracy with every method, the best marked. */
function clientTable(variants, scores) {
  return () => {
    const own = scores.map((one) => new Map(one.map((s) => [`${s.seed}/${s.client}`, s])));
    const keys = [...new Set(own.flatMap((one) => [...one.keys()]))].map((key) => key.split("/").map(Number))
      .sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    return {
      head: ["client", "seed", "training samples", "classes", "test samples", ...variants.map((v) => v.label)],
      rows: keys.map(([seed, client]) => {
        const all = own.map((one) => one.get(`${seed}/${client}`));
        const best = Math.max(...all.map((s) => (s ? s.value : -1)));
        const run = variants.flatMap(counted).find((r) => r.seed === seed && r.test);
        return [String(client), String(seed), ...holdings(run, client), String(run.test[client]),
          ...all.map((s) => (s ? `${percent(s.value)}${variants.length > 1 && s.value === best ? " ▲" : ""}` : "–"))];
      }),
    };
  };
}

/** A client's training samples, and how many classes they are of. */
function holdings(run, client) {
  const division = DATA.partitions[run.partition];
  if (!division) return ["–", "–"];
  const classes = division.train.shape[1];
  const counts = unpack(division.train).subarray(client * classes, (client + 1) * classes).map(Math.round);
  return [String(counts.reduce((a, b) => a + b, 0)), String(counts.filter((count) => count > 0).length)];
}

/** Two methods, client by client. */
function duel(variants) {
  const labels = variants.map((v) => v.label), ranked = byAccuracy(variants);
  const [one, two] = [0, 1].map((i) => (labels.includes(state.pair[i]) ? state.pair[i] : ranked[i]));
  const choices = labels.map((label) => [label, label]);
  const pick = (place) => (value) => {
    const pair = place ? [one, value] : [value, two];
    update({ pair });
    document.getElementById(`pair-${place}`)?.focus();
  };
  const pairs = matched(...[one, two].map((label) => variants.find((v) => v.label === label)));
  scatter = figure("Each client under both", 340);
  bars = figure("Difference by client", 340);
  const element = make("div", {}, make("h3", { style: "margin-top:1.4rem" }, "Who wins where"),
    make("div", { class: "row" }, picker("First method", choices, one, pick(0), "pair-0"),
      picker("Second method", choices, two, pick(1), "pair-1")),
    make("p", { id: "verdict", "aria-live": "polite" }, verdict(pairs, one, two)),
    make("div", { class: "grid" }, scatter.element, bars.element));
  // Drawn once they are in the page and have a size.
  requestAnimationFrame(() => {
    drawScatter(pairs, one, two);
    drawBars(pairs, one, two);
  });
  return element;
}

/** Labels as the page ranks them; what is not ranked comes last. */
function byAccuracy(variants) {
  const place = new Map(ranking().order.map((one, i) => [setting().variants[one.variant].label, i]));
  const at = (v) => place.get(v.label) ?? place.size;
  return [...variants].sort((a, b) => at(a) - at(b)).map((v) => v.label);
}

/** Clients that both methods have, seed by seed: a seed's partition is the same for both. */
function matched(one, two) {
  const second = new Map(clientScores(two).map((s) => [`${s.seed}/${s.client}`, s]));
  return clientScores(one).map((s) => ({ ...s, other: second.get(`${s.seed}/${s.client}`) }))
    .filter((s) => s.other).map((s) => ({
      ...s, difference: 100 * (s.value - s.other.value), sign: Math.sign(s.correct - s.other.correct),
    }));
}

function verdict(pairs, one, two) {
  if (!pairs.length) return `${one} and ${two} have no seed in common.`;
  const count = (sign) => pairs.filter((p) => p.sign === sign).length;
  return `${one} is better on ${count(1)} of ${plural(pairs.length, "client")}, ${two} on ${count(-1)}; `
    + `equal on ${count(0)}. ${seedWords(seedsOf(pairs)).replace("s", "S")}, `
    + `${METRICS[state.metric]}, ${CHOICES[state.choice]} (${plural(setting().rounds, "round")}).`;
}

const sides = (one, two) => [
  { sign: 1, name: `${one} better`, colour: dark() ? "#56B4E9" : "#0072B2", mark: "circle" },
  { sign: -1, name: `${two} better`, colour: dark() ? "#E69F00" : "#D55E00", mark: "triangle" },
  { sign: 0, name: "equal", colour: css("--soft"), mark: "diamond" },
];

function sideLegend() {
  return { bottom: 0, type: "scroll", itemWidth: 14, textStyle: { color: css("--ink") } };
}

function drawScatter(pairs, one, two) {
  const values = pairs.flatMap((p) => [100 * p.value, 100 * p.other.value]);
  const least = Math.floor(Math.min(...values, 99) / 5) * 5;
  const series = sides(one, two).map((side) => ({
    type: "scatter", name: side.name, symbol: side.mark, symbolSize: 11,
    itemStyle: { color: side.colour, opacity: 0.75 },
    data: pairs.filter((p) => p.sign === side.sign).map((p) => ({
      value: [100 * p.other.value, 100 * p.value], pair: p,
    })),
  }));
  series[0].markLine = {
    silent: true, symbol: "none", lineStyle: { color: css("--soft"), type: "dashed" },
    data: [[{ coord: [least, least] }, { coord: [100, 100] }]], label: { show: false },
  };
  scatter.draw({
    grid: { left: 52, right: 18, top: 10, bottom: 74 }, legend: sideLegend(),
    tooltip: hint((item) => (item.data.pair ? [
      `client ${item.data.pair.client}, seed ${item.data.pair.seed}`,
      `${one} ${percent(item.data.pair.value)}`, `${two} ${percent(item.data.pair.other.value)}`] : null)),
    xAxis: axis(`${two}, accuracy in %`, { type: "value", min: least, max: 100 }),
    yAxis: axis(`${one}, accuracy in %`, { type: "value", min: least, max: 100, nameGap: 34 }),
    series,
  }, `Above the dashed line ${one} is better, below it ${two}.`, pairTable(pairs, one, two));
}

/** A row a client under both methods, in the order of the clients. */
function pairTable(pairs, one, two) {
  return () => ({
    head: ["client", "seed", one, two, "difference, points"],
    rows: pairs.map((p) => [String(p.client), String(p.seed), percent(p.value), percent(p.other.value), signed(p.difference)]),
  });
}

const signed = (value) => `${value > 0 ? "+" : value < 0 ? "−" : ""}${Math.abs(value).toFixed(2)}`;

function drawBars(pairs, one, two) {
  const ordered = [...pairs].sort((a, b) => b.difference - a.difference);
  const several = seedsOf(pairs).length > 1;
  const names = ordered.map((p) => (several ? `${p.client} (seed ${p.seed})` : String(p.client)));
  const series = sides(one, two).slice(0, 2).map((side) => ({
    type: "bar", barMaxWidth: 60, name: side.name, stack: "difference", itemStyle: { color: side.colour },
    data: ordered.map((p) => ({ value: p.sign === side.sign ? p.difference : null, pair: p })),
  }));
  const crowded = several && (window.innerWidth < 700 || pairs.length > 40);
  bars.draw({
    grid: { left: 52, right: 18, top: 10, bottom: several && !crowded ? 106 : 74 }, legend: sideLegend(),
    tooltip: hint((item) => [`client ${item.data.pair.client}, seed ${item.data.pair.seed}`,
      `${signed(item.data.pair.difference)} points`]),
    xAxis: axis(crowded ? "clients" : several ? "" : "client", { type: "category", data: names,
      axisLabel: { show: !crowded, rotate: several ? 60 : 0 } }),
    yAxis: axis("points of accuracy", { type: "value", nameGap: 34 }),
    series,
  }, `${one} less ${two}, in percentage points, from the client that gains most to the one that loses most.`,
  pairTable(ordered, one, two));
}
