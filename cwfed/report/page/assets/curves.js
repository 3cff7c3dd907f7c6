"use strict";
// Curves by method: means over seeds with a band from the lowest to the highest seed.

const FIGURES = {
  accuracy: "accuracy", loss: "test loss", train_loss: "training loss", mean_R: "mean R",
  ...(DATA.runs.some((run) => run.left_out) ? { left_out: "clients left out" } : {}),
};
const curveName = (figure) =>
  (figure === "accuracy" || figure === "loss" ? `${state.metric}_${figure}` : figure);

/** Shares of the rounds, counted from the end, that the curves may be narrowed to. */
const SPANS = { 1: "all", 0.5: "last half", 0.2: "last fifth" };
const LEAST_TO_NARROW = 10;

/** The first round that is drawn. */
function firstDrawn() {
  const rounds = setting() ? setting().rounds : 0;
  return rounds < LEAST_TO_NARROW || state.span === "1" ? 0 : Math.floor(rounds * (1 - state.span));
}

/** Mean, lowest and highest over seeds, round by round. */
function average(runs, name) {
  const rounds = runs[0].curves.rounds, all = runs.map((run) => unpack(run.curves[name]));
  return rounds.map((round, i) => {
    const values = all.map((one) => one[i]).filter((value) => known(value));
    if (values.length < all.length || !values.length) return { round, mean: NaN, low: NaN, high: NaN };
    return { round, mean: mean(values), low: Math.min(...values), high: Math.max(...values) };
  });
}

function lineSeries(variant, points, scale = 1) {
  const { colour, dash, mark } = look(variant.label);
  const kept = points.filter((p) => !Number.isNaN(p.y));
  return {
    type: "line", name: variant.label, data: kept.map((p) => [p.x, p.y * scale]),
    symbol: mark, symbolSize: 7, showSymbol: true, connectNulls: true,
    showAllSymbol: "auto", lineStyle: { color: colour, width: 2, type: dash },
    itemStyle: { color: colour }, emphasis: { focus: "series" },
  };
}

/** Two stacked lines, the lower one unseen: the area between them is the band. */
function bandSeries(variant, points, scale) {
  const { colour } = look(variant.label), kept = points.filter((p) => !Number.isNaN(p.mean));
  const base = { type: "line", stack: `band ${variant.label}`, symbol: "none", silent: true,
    lineStyle: { opacity: 0 }, stackStrategy: "all", tooltip: { show: false } };
  return [
    { ...base, data: kept.map((p) => [p.round, p.low * scale]) },
    { ...base, data: kept.map((p) => [p.round, (p.high - p.low) * scale]),
      areaStyle: { color: colour, opacity: 0.16 } },
  ];
}

/** More bands than these hide each other. */
const MOST_BANDS = 6;
const banded = (variants) => variants.filter((v) => v.counted.length > 1).length <= MOST_BANDS;

function curveSeries(variants, name, scale) {
  const bands = banded(variants), first = firstDrawn();
  return variants.flatMap((variant) => {
    const runs = counted(variant), series = [];
    if (runs.length) {
      const points = average(runs, name).filter((p) => p.round >= first);
      if (bands && runs.length > 1) series.push(...bandSeries(variant, points, scale));
      series.push(lineSeries(variant, points.map((p) => ({ x: p.round, y: p.mean })), scale));
    }
    for (const run of variant.runs.map((i) => DATA.runs[i]).filter((r) => !r.finished && r.curves)) {
      const values = unpack(run.curves[name]);
      const points = run.curves.rounds.map((round, i) => ({ x: round, y: values[i] }))
        .filter((p) => p.x >= first);
      const line = lineSeries(variant, points, scale);
      series.push({ ...line, name: `${variant.label}, unfinished (${run.name})`,
        lineStyle: { ...line.lineStyle, width: 1, opacity: 0.7 } });
    }
    return series;
  });
}

function lineOption(series, xName, yName, accuracy) {
  return {
    grid: { left: 58, right: 18, top: 14, bottom: 42 },
    tooltip: hint((item) => [item.seriesName, `${xName} ${short(item.value[0])}`,
      `${yName} ${accuracy ? `${item.value[1].toFixed(2)} %` : short(item.value[1])}`]),
    xAxis: axis(xName, { type: "value", min: "dataMin", max: xName === "round" ? "dataMax" : null,
      minInterval: xName === "round" ? 1 : 0, splitLine: { show: false },
      axisLabel: { showMaxLabel: true, formatter: (v) => Number(v.toPrecision(4)).toLocaleString("en") } }),
    yAxis: axis(yName, { type: "value", scale: true, nameGap: 40 }),
    series,
  };
}

let curveFigure = null;

function drawCurves() {
  const element = body("curves"), variants = shown();
  if (!curveFigure) {
    clear(element);
    curveFigure = figure("", 380);
    const options = Object.entries(FIGURES);
    element.append(
      make("div", { class: "row" }, toggle("Figure", "figure", options, state.figure,
        (value) => update({ figure: value })),
      toggle("Rounds drawn", "span", Object.entries(SPANS).sort(([a], [b]) => b - a), state.span,
        (value) => update({ span: value }))),
      make("div", { class: "keys" }), curveFigure.element);
  }
  element.querySelector("input[name=span]").closest(".field").hidden = !setting() || setting().rounds < LEAST_TO_NARROW;
  element.querySelector(".keys").replaceChildren(legend(variants));
  const accuracy = state.figure === "accuracy", scored = accuracy || state.figure === "loss";
  const word = FIGURES[state.figure] + (scored ? ` (${METRICS[state.metric]})` : "");
  const series = curveSeries(variants, curveName(state.figure), accuracy ? 100 : 1);
  curveFigure.draw(lineOption(series, "round", accuracy ? "accuracy, %" : word, accuracy),
    `${scaleOf(variants)}${firstDrawn() ? `, drawn from round ${firstDrawn()}` : ""}. Lines are means over seeds${banded(variants)
      ? ", bands reach from the lowest to the highest seed"
      : `; switch methods off until ${MOST_BANDS} are left for bands from the lowest to the highest seed`}. `
    + curveEnds(variants), curveTable(variants),
    { name: `${word[0].toUpperCase()}${word.slice(1)} by round` });
}

/** Means by round, with lowest and highest seed; unfinished runs in columns of their own. */
function curveTable(variants) {
  const name = curveName(state.figure), show = state.figure === "accuracy" ? percent : short;
  return () => {
    const columns = variants.flatMap((variant) => {
      const runs = counted(variant), halted = variant.runs.map((i) => DATA.runs[i]).filter((r) => !r.finished && r.curves);
      return [
        ...(runs.length ? [{ head: variant.label, points: average(runs, name), spread: runs.length > 1 }] : []),
        ...halted.map((run) => ({ head: `${variant.label}, unfinished (${run.name})`, points: average([run], name) })),
      ];
    });
    const rounds = [...new Set(columns.flatMap((c) => c.points.map((p) => p.round)))].sort((a, b) => a - b);
    const texts = columns.map((c) => new Map(c.points.map((p) => [p.round,
      show(p.mean) + (c.spread && known(p.mean) ? ` (${show(p.low)} to ${show(p.high)})` : "")])));
    return {
      head: ["round", ...columns.map((c) => c.head)],
      rows: rounds.map((round) => [String(round), ...texts.map((own) => own.get(round) || "–")]),
    };
  };
}

function curveEnds(variants) {
  const name = curveName(state.figure), show = state.figure === "accuracy" ? percent : short;
  const ends = variants.filter((v) => v.counted.length).map((v) => {
    const last = average(counted(v), name).filter((p) => !Number.isNaN(p.mean)).at(-1);
    return last ? `${v.label} ${show(last.mean)}` : null;
  }).filter((text) => text);
  return ends.length ? `At the end: ${ends.join(", ")}.` : "";
}

/** What was spent and reached by round, a mean over seeds for each method. */
function spentByRound(variants) {
  const figures = ["megabytes", "seconds", `${state.metric}_accuracy`];
  const all = variants.map((v) => {
    const [megabytes, seconds, accuracy] = figures.map((name) => average(counted(v), name));
    return new Map(megabytes.map((p, i) => [p.round,
      { megabytes: p.mean, seconds: seconds[i].mean, accuracy: accuracy[i].mean }]));
  });
  const rounds = [...new Set(all.flatMap((own) => [...own.keys()]))].sort((a, b) => a - b);
  return rounds.map((round) => ({ round, at: all.map((own) => own.get(round)) }));
}

let costFigures = null;

/** Accuracy against what it took to get there. */
function drawCost() {
  const element = body("cost"), variants = shown().filter((v) => v.counted.length);
  if (!costFigures) {
    clear(element);
    costFigures = { megabytes: figure("Accuracy against traffic"), seconds: figure("Accuracy against time") };
    element.append(make("div", { class: "keys" }),
      make("div", { class: "grid" }, Object.values(costFigures).map((f) => f.element)));
  }
  element.querySelector(".keys").replaceChildren(legend(variants));
  const names = { megabytes: "MB a client, up and down", seconds: "seconds" };
  for (const [name, word] of Object.entries(names)) {
    const ends = [];
    const series = variants.map((variant) => {
      const runs = counted(variant), spent = average(runs, name);
      const scored = average(runs, `${state.metric}_accuracy`);
      const points = spent.map((p, i) => ({ x: p.mean, y: scored[i].mean }));
      ends.push(`${variant.label} ${short(points.at(-1).x)}`);
      return lineSeries(variant, points, 100);
    });
    const digits = (value) => (value === 0 ? "0" : known(value) ? value.toPrecision(4) : "–");
    const table = () => ({
      head: ["round", ...variants.flatMap((v) => [`${v.label}: ${word}`, `${v.label}: accuracy`])],
      rows: spentByRound(variants).map(({ round, at }) => [String(round), ...at.flatMap((p) => (
        p ? [digits(p[name]), percent(p.accuracy)] : ["–", "–"]))]),
    });
    costFigures[name].draw(lineOption(series, word, "accuracy, %", true),
      `${scaleOf(variants)}; ${METRICS[state.metric]}, mean over seeds. `
      + `In all, ${word}: ${ends.join(", ")}.`
      + (name === "seconds" ? " Seconds include evaluation and depend on the machine." : ""), table);
  }
}
