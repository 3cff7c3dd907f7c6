"use strict";
// Drawing with ECharts: one place for colours, sizes, hints and resizing.

const charts = new Map();
const VIRIDIS = ["#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779",
  "#6ece58", "#b5de2b", "#fde725"];

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
      caption.textContent = text;
      numbers.set(table);
      let chart = charts.get(plot);
      if (!chart) {
        chart = echarts.init(plot, null, { renderer: "canvas" });
        charts.set(plot, chart);
      }
      chart.resize();
      chart.setOption({ animation: false, ...option, textStyle: { fontFamily: FONT } }, true);
    },
  };
}

/** A drawing's numbers, made when somebody asks for them. */
function dataTable(heading) {
  let table = null;
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
      fill();
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
  const data = [];
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j < columns.length; j++) {
      const value = values[i * columns.length + j];
      if (!Number.isNaN(value)) data.push([j, i, value]);
    }
  }
  const edge = columns.length <= 40 && rows <= 40 ? 1 : 0;
  return {
    grid: { left: 46, right: 10, top: 8, bottom: 84 },
    tooltip: hint((item) => text(item.value[1], item.value[0], item.value[2])),
    xAxis: axis(across, {
      type: "category", data: columns, splitArea: { show: false }, nameGap: 26,
      axisLabel: { formatter: (name) => (name.length > 9 ? `${name.slice(0, 8)}…` : name) },
    }),
    yAxis: axis(down, { type: "category", data: [...Array(rows).keys()], inverse: true }),
    visualMap: {
      min: low, max: high > low ? high : low + 1, calculable: false, orient: "horizontal",
      left: "center", bottom: 0, itemHeight: 130, itemWidth: 10, precision: 3,
      text: [short(high), short(low)], textStyle: { color: css("--soft"), fontSize: 12 }, textGap: 8,
      inRange: { color: VIRIDIS },
    },
    series: [{
      type: "heatmap", data, progressive: 0,
      itemStyle: { borderColor: css("--card"), borderWidth: edge },
      emphasis: { itemStyle: { borderColor: css("--ink"), borderWidth: 1 } },
    }],
  };
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
