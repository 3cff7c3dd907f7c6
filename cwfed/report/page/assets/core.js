"use strict";
// Data, state, and elements. Whatever comes from the runs reaches the page as text, never as markup.

const DATA = JSON.parse(document.getElementById("data").textContent);
const METRICS = { received: "received", post_local: "post-local" };
const CHOICES = { last: "last round", best: "best round" };

/** The setting to begin with: the one that compares most. */
function richest(settings) {
  const methods = (s) => s.variants.filter((v) => v.counted.length).length;
  const runs = (s) => s.variants.reduce((sum, v) => sum + v.counted.length, 0);
  const size = (index) => methods(settings[index]) * 1e6 + runs(settings[index]);
  return settings.map((_, i) => i).reduce((best, i) => (size(i) > size(best) ? i : best), 0);
}

const state = {
  dataset: "", setting: richest(DATA.settings), hidden: new Set(), metric: "received", choice: "last",
  sort: { column: "", descending: true }, view: "methods", figure: "accuracy", span: "1",
  pair: ["", ""], run: -1, step: -1, part: "train", scale: "norms",
};
const watchers = [];

/** Change the state and draw whatever depends on it. */
function update(changes) {
  Object.assign(state, changes);
  for (const draw of watchers) draw(changes);
}

/** Make an element; strings become text nodes, so that no data can become markup. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

const body = (id) => document.querySelector(`#${id} .body`);

/** Numbers of a packed array: see arrays.py, which packs them. */
function unpack(packed) {
  if (packed.values) return packed.values;
  const text = atob(packed.data), wide = packed.bits === 16;
  const missing = wide ? 65535 : 255, count = text.length / (wide ? 2 : 1);
  const step = (packed.high - packed.low) / (missing - 1), values = new Float64Array(count);
  for (let i = 0; i < count; i++) {
    const code = wide ? text.charCodeAt(2 * i) + 256 * text.charCodeAt(2 * i + 1) : text.charCodeAt(i);
    values[i] = code === missing ? NaN : packed.low + code * step;
  }
  Object.defineProperty(packed, "values", { value: values });
  return values;
}

const known = (value) => value !== null && value !== undefined && !Number.isNaN(value);
const percent = (value, digits = 2) => (known(value) ? `${(100 * value).toFixed(digits)} %` : "–");
const decimal = (value, digits = 3) => (known(value) ? value.toFixed(digits) : "–");
const short = (value) => {
  if (!known(value)) return "–";
  if (value === 0) return "0";
  return Math.abs(value) >= 100 ? value.toFixed(0) : value.toPrecision(3);
};
const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
/** A text whose numbers stay with their units. */
const tight = (text) => text.replace(/(\d) (?=(?:%|MB|s|points?)(?!\w))/g, "$1\u00a0");
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

// Okabe and Ito's colours, then Tol's: told apart with any colour vision; dashes and marks say the same again.
const COLOURS = {
  light: ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#16202c", "#882255", "#7d7d20",
    "#332288", "#8a3ffc", "#7a5c3e"],
  dark: ["#56B4E9", "#E69F00", "#00B98A", "#E08FBF", "#F0E442", "#D55E00", "#e8edf3", "#ff9b85", "#a5d46a",
    "#9a8fe0", "#c77dff", "#c2a07c"],
};
const DASHES = ["solid", [7, 4], [2, 3], [10, 3, 2, 3], [14, 4], [5, 2, 1, 2]];
// Each centred on its point.
const MARKS = ["circle", "rect", "triangle", "diamond", "path://M-1,-3H1V-1H3V1H1V3H-1V1H-3V-1H-1Z", "roundRect",
  "path://M-3,-3H3L0,3Z"];
const LABELS = [...new Set(DATA.settings.flatMap((s) => s.variants.map((v) => v.label)))].sort();

const dark = () => document.documentElement.dataset.theme === "dark";

/** Colour, dash and mark of a method, the same all over the page. */
function look(label) {
  const index = LABELS.indexOf(label), colours = COLOURS[dark() ? "dark" : "light"];
  return {
    colour: colours[index % colours.length],
    // Moved on where the colours start again.
    dash: DASHES[(index + Math.floor(index / colours.length)) % DASHES.length],
    mark: MARKS[index % MARKS.length],
  };
}

/** A small drawing of a method's line. */
function swatch(label) {
  const { colour, dash } = look(label), space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg"), line = document.createElementNS(space, "line");
  const size = { width: 26, height: 8, "aria-hidden": "true" };
  for (const [name, value] of Object.entries(size)) svg.setAttribute(name, value);
  const drawn = { x1: 0, y1: 4, x2: 26, y2: 4, stroke: colour, "stroke-width": 3 };
  if (dash !== "solid") drawn["stroke-dasharray"] = dash.join(" ");
  for (const [name, value] of Object.entries(drawn)) line.setAttribute(name, value);
  svg.append(line);
  return svg;
}

/** A drop-down list; options are pairs of value and text. */
function picker(label, options, value, change, id = null) {
  const select = make("select", { onchange: () => change(select.value), id },
    options.map(([v, text]) => make("option", { value: v, selected: String(v) === String(value) }, text)));
  return make("label", { class: "field" }, label, select);
}

/** A row of radio buttons; options are pairs of value and text. */
function toggle(label, name, options, value, change) {
  const radios = options.map(([v, text]) => make("label", {},
    make("input", { type: "radio", name, value: v, checked: v === value, onchange: () => change(v) }), text));
  return make("div", { class: "field", role: "radiogroup", "aria-label": label },
    make("span", { "aria-hidden": "true" }, label),
    make("div", { class: "switch wrapping" }, radios));
}

const setting = () => DATA.settings[state.setting];
const shown = () => (setting() ? setting().variants.filter((v) => !state.hidden.has(v.label)) : []);
const counted = (variant) => variant.counted.map((index) => DATA.runs[index]);
const seedsOf = (runs) => [...new Set(runs.map((run) => run.seed))].sort((a, b) => a - b);

const seedWords = (seeds) => `seed${seeds.length > 1 ? "s" : ""} ${seeds.join(", ")}`;

/** The scale of a figure, in words: it stands beside every drawing. Who has other seeds is named. */
function scaleOf(variants) {
  const having = new Map();
  for (const variant of variants.filter((v) => v.counted.length)) {
    const words = seedWords(seedsOf(counted(variant)));
    having.set(words, [...(having.get(words) || []), variant.label]);
  }
  if (!having.size) return "no finished run";
  const seeds = having.size === 1 ? [...having.keys()]
    : [...having].map(([words, labels]) => `${labels.join(", ")}: ${words}`);
  return `${plural(setting().rounds, "round")}, ${seeds.join("; ")}`;
}

/** A ranking that was worked out when the page was made, by the accuracy that is chosen. */
const ranking = (group = setting()) => group.rankings[`${state.metric}/${state.choice}`];

/** What a reader must know of a ranking where methods are hidden: it is not worked out again. */
function hiddenWords(group) {
  const hidden = ranking(group).order.map((one) => group.variants[one.variant].label)
    .filter((label) => state.hidden.has(label));
  return hidden.length ? `Hidden, and ranked all the same: ${hidden.join(", ")}.` : "";
}

function legend(variants) {
  return make("p", { class: "legend" },
    variants.map((v) => make("span", { class: "key" }, swatch(v.label), v.label)));
}

const gone = (text) => make("p", { class: "gone" }, text);
