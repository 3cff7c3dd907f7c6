"use strict";
// Drawing with ECharts: one place for colours, sizes, hints and resizing.

const charts = new Map();
const VIRIDIS = ["#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779",
  "#6ece58", "#b5de2b", "#fde725"];

/** Where the mouse is, within the drawing that it is over. */
let pointer = [0, 0];

const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif';

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** A figure with heading, drawing, caption and the numbers as a table; returns what draws into it. */
function figure(title, height = 320) {
  const heading = make("h3", {}, title), plot = make("div", { class: "plot", role: "img" });
  const caption = make("figcaption"), numbers = dataTable(heading);
  plot.style.height = `${height}px`;
  const element = make("figure", {}, heading, plot, caption, numbers.element);
  return {
    element,
    /**
     * Draw; the caption says in words what is drawn, for those who do not see it too. `table` returns
     * the numbers that are drawn: `head`, a text a column, and `rows` of texts, the first of each its name.
     */
    draw(option, text, table, { tall = height, name = title } = {}) {
      heading.textContent = name;
      plot.style.height = `${tall}px`;
      plot.setAttribute("aria-label", `${name}. ${text}`);
      caption.textContent = tight(text);
      numbers.set(table);
      let chart = charts.get(plot);
      if (!chart) {
        chart = echarts.init(plot, null, { renderer: "canvas" });
        chart.getZr().on("mousemove", (event) => { pointer = [event.offsetX, event.offsetY]; });
        charts.set(plot, chart);
      }
      chart.resize();
      chart.setOption({ animation: false, ...option, textStyle: { fontFamily: FONT } }, true);
    },
  };
}

/** A drawing's numbers, made when somebody asks for them. */
function dataTable(heading) {
  let table = null, later = 0;
  const unseen = make("span", { class: "unseen" }), holder = make("div");
  const fill = () => {
    if (!element.open || !table) return holder.replaceChildren();
    const { head, rows } = table();
    return holder.replaceChildren(make("div", {
      class: "scroll", tabindex: 0, role: "region", "aria-label": `Numbers: ${heading.textContent}`,
    }, make("table", {},
      make("thead", {}, make("tr", {}, head.map((text) => make("th", { scope: "col" }, text)))),
      make("tbody", {}, rows.map(([first, ...rest]) => make("tr", {},
        make("th", { scope: "row" }, first), rest.map((text) => make("td", {}, text))))))));
  };
  const element = make("details", { class: "numbers", ontoggle: fill },
    make("summary", {}, "Show as table", unseen), holder);
  return {
    element,
    set(made) {
      table = made;
      unseen.textContent = `: ${heading.textContent}`;
      clearTimeout(later);
      // A large table waits until the slider rests.
      if (holder.querySelectorAll("td").length > 2000) later = setTimeout(fill, 200);
      else fill();
    },
  };
}

/** Forget the drawings below an element that is about to be emptied. */
function clear(element) {
  for (const [plot, chart] of charts) {
    if (element.contains(plot)) {
      chart.dispose();
      charts.delete(plot);
    }
  }
  element.replaceChildren();
}

window.addEventListener("resize", () => {
  for (const chart of charts.values()) chart.resize();
});

/** An axis in the page's colours. */
function axis(name, more = {}) {
  const { axisLabel, ...rest } = more;
  return {
    name, nameLocation: "middle", nameGap: 28, nameTextStyle: { color: css("--soft"), fontSize: 12.5 },
    axisLine: { lineStyle: { color: css("--line") } },
    axisTick: { lineStyle: { color: css("--line") } },
    splitLine: { lineStyle: { color: css("--grid") } },
    axisLabel: { color: css("--soft"), fontSize: 12, hideOverlap: true, ...axisLabel },
    ...rest,
  };
}

/** Hints on hovering, made of text lines. */
function hint(lines, more = {}) {
  return {
    backgroundColor: css("--card"), borderColor: css("--line"), confine: true,
    textStyle: { color: css("--ink") },
    formatter: (item) => {
      const texts = lines(item);
      return texts ? make("div", { class: "tip" }, texts.map((text) => make("div", {}, text))) : "";
    },
    ...more,
  };
}

/** Clients down, classes or clients across, colour for the value. */
function heat({ values, rows, columns, low, high, across, down, text }) {
  const top = high > low ? high : low + 1, many = columns.length * rows > 1500;
  const drawn = many ? heatImage({ values, rows, columns, low, top, text })
    : heatCells({ values, rows, columns, text });
  return {
    grid: { left: 46, right: 10, top: 8, bottom: 84 },
    xAxis: axis(across, {
      type: "category", data: columns, splitArea: { show: false }, nameGap: 26,
      axisLabel: { formatter: (name) => (name.length > 9 ? `${name.slice(0, 8)}…` : name) },
    }),
    yAxis: axis(down, { type: "category", data: [...Array(rows).keys()], inverse: true }),
    visualMap: {
      min: low, max: top, calculable: false, orient: "horizontal",
      left: "center", bottom: 0, itemHeight: 130, itemWidth: 10, precision: 3,
      text: [short(high), short(low)], textStyle: { color: css("--soft"), fontSize: 12 }, textGap: 8,
      inRange: { color: VIRIDIS },
    },
    ...drawn,
  };
}

function heatCells({ values, rows, columns, text }) {
  const data = [];
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j < columns.length; j++) {
      const value = values[i * columns.length + j];
      if (!Number.isNaN(value)) data.push([j, i, value]);
    }
  }
  return {
    tooltip: hint((item) => text(item.value[1], item.value[0], item.value[2])),
    series: [{
      type: "heatmap", data, progressive: 0,
      itemStyle: { borderColor: css("--card"), borderWidth: columns.length <= 40 && rows <= 40 ? 1 : 0 },
      emphasis: { itemStyle: { borderColor: css("--ink"), borderWidth: 1 } },
    }],
  };
}

/** The same as one image, since thousands of cells one by one would keep the slider waiting. */
function heatImage({ values, rows, columns, low, top, text }) {
  const image = pixels(values, rows, columns.length, low, top);
  let area = null;
  const place = (at, start, size, count) => Math.min(Math.max(Math.floor(((at - start) / size) * count), 0), count - 1);
  return {
    tooltip: hint(() => {
      const i = place(pointer[1], area.y, area.height, rows), j = place(pointer[0], area.x, area.width, columns.length);
      const value = values[i * columns.length + j];
      return Number.isNaN(value) ? null : text(i, j, value);
    }),
    series: [{
      type: "custom", data: [[0, 0, low]],
      renderItem: ({ coordSys: { x, y, width, height } }) => {
        area = { x, y, width, height };
        return { type: "image", style: { image, ...area } };
      },
    }],
  };
}

/** A canvas with a block of pixels a value, large enough not to be blurred. */
function pixels(values, rows, columns, low, top) {
  const small = make("canvas", { width: columns, height: rows }), pen = small.getContext("2d");
  const image = pen.createImageData(columns, rows), stops = VIRIDIS.map((hex) =>
    [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)));
  for (let n = 0; n < rows * columns; n++) {
    if (Number.isNaN(values[n])) continue;
    const at = Math.min(Math.max((values[n] - low) / (top - low), 0), 1) * (stops.length - 1);
    const below = Math.min(Math.floor(at), stops.length - 2), part = at - below;
    stops[below].forEach((value, c) => { image.data[4 * n + c] = value + part * (stops[below + 1][c] - value); });
    image.data[4 * n + 3] = 255;
  }
  pen.putImageData(image, 0, 0);
  const [wide, tall] = [columns, rows].map((count) => count * Math.ceil(800 / count));
  const large = make("canvas", { width: wide, height: tall }), brush = large.getContext("2d");
  brush.imageSmoothingEnabled = false;
  brush.drawImage(small, 0, 0, wide, tall);
  return large;
}

/** The numbers of a heat map: a row a client, a column a class or client. */
function heatTable({ values, rows, columns, across, down }, show = (v) => decimal(v)) {
  return () => ({
    head: [`${down} \\ ${across}`, ...columns],
    rows: [...Array(rows).keys()].map((i) => [String(i), ...columns.map((_, j) => show(values[i * columns.length + j]))]),
  });
}

/** A height that gives every row room, within what a screen holds. */
const heightFor = (rows, each = 17, extra = 100) => Math.min(Math.max(rows * each + extra, 240), 560);
