"use strict";
// Drawing with ECharts: one place for colours, sizes, hints and resizing.

const charts = new Map();
const VIRIDIS = ["#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779",
  "#6ece58", "#b5de2b", "#fde725"];

const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif';

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** A figure with heading, drawing and caption; returns what draws into it. */
function figure(title, height = 320) {
  const plot = make("div", { class: "plot", role: "img", style: `height:${height}px` });
  const caption = make("figcaption");
  const element = make("figure", {}, make("h3", {}, title), plot, caption);
  return {
    element,
    /** Draw; the caption says in words what is drawn, for those who do not see it too. */
    draw(option, text, tall = height) {
      plot.style.height = `${tall}px`;
      plot.setAttribute("aria-label", `${title}. ${text}`);
      caption.textContent = text;
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

/** A height that gives every row room, within what a screen holds. */
const heightFor = (rows, each = 17, extra = 100) => Math.min(Math.max(rows * each + extra, 240), 560);
