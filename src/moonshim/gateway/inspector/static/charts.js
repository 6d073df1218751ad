// Small SVG charts with a table behind them for screen readers. Series are told apart by colour and by a legend.

import { h, plain, svg } from "./dom.js";

const HEIGHT = 180;
const LEFT = 52;
const BOTTOM = 22;
const TOP = 8;

/** Units, which a narrow page shows in about as many pixels: what is scaled down cannot be read. */
const fullWidth = () => (matchMedia("(max-width: 720px)").matches ? 320 : 640);

const scale = (low, high, from, to) => (value) => from + ((value - low) / (high - low || 1)) * (to - from);

/** Each with another label: there is no half a request. */
function ticks(high, format, count = 4) {
  if (high <= 0) return [0, 1];
  for (let power = 10 ** Math.floor(Math.log10(high / count)); ; power *= 10) {
    for (const step of [1, 2, 5].map((factor) => factor * power)) {
      const values = [];
      if (step >= high / count) for (let value = 0; value < high + step; value += step) values.push(value);
      if (values.length && new Set(values.map(format)).size === values.length) return values;
    }
  }
}

function frame(label, high, format) {
  const width = fullWidth();
  const chart = svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, class: "chart", role: "img", "aria-label": label });
  const values = ticks(high, format);
  const y = scale(0, values.at(-1), HEIGHT - BOTTOM, TOP);
  for (const value of values) {
    chart.append(svg("line", { x1: LEFT, x2: width, y1: y(value), y2: y(value), class: "grid-line" }));
    chart.append(svg("text", { x: LEFT - 6, y: y(value) + 4, class: "tick", "text-anchor": "end" }, format(value)));
  }
  return { chart, width, y };
}

export function areaChart(points, { x, label }) {
  const high = Math.max(...points.map((point) => point.y), 1);
  const { chart, width, y } = frame(label, high, (value) => (value >= 1000 ? `${value / 1000}k` : String(value)));
  const place = scale(0, points.at(-1).x || 1, LEFT, width - 4);
  const path = points.map((point, index) => `${index ? "L" : "M"}${place(point.x).toFixed(1)} ${y(point.y).toFixed(1)}`).join("");
  chart.append(svg("path", { d: `${path}L${place(points.at(-1).x)} ${y(0)}L${place(points[0].x)} ${y(0)}Z`, class: "area s0" }), svg("path", { d: path, class: "line-path s0" }));
  for (const part of [0, 0.5, 1]) {
    const at = points.at(-1).x * part;
    chart.append(svg("text", { x: place(at), y: HEIGHT - 6, class: "tick", "text-anchor": part === 1 ? "end" : part ? "middle" : "start" }, x(at)));
  }
  return h("figure", { class: "narrow-chart" }, chart);
}

/** `series`: [{name, values}], all as long as `labels`. `stacked` bars or lines. */
export function seriesChart(labels, series, { title, kind = "bars", format = (value) => String(value) }) {
  const stacked = kind === "bars";
  const tops = labels.map((_, index) => (stacked ? series.reduce((sum, one) => sum + (one.values[index] ?? 0), 0) : Math.max(...series.map((one) => one.values[index] ?? 0))));
  const high = Math.max(...tops, 0);
  const some = series.some((one) => one.values.some((value) => value !== null && value !== undefined && (value > 0 || !stacked)));
  const { chart, width, y } = frame(title, high || 1, format);
  const step = (width - LEFT) / Math.max(labels.length, 1);
  if (stacked) {
    labels.forEach((label, index) => {
      let sum = 0;
      series.forEach((one, order) => {
        const value = one.values[index] ?? 0;
        if (!value) return;
        chart.append(svg("rect", { x: LEFT + index * step + step * 0.12, width: Math.max(1, step * 0.76), y: y(sum + value), height: Math.max(1, y(sum) - y(sum + value)), class: `fill s${order % 8}` },
          svg("title", {}, `${label}: ${plain(one.name)} ${format(value)}`)));
        sum += value;
      });
    });
  } else {
    series.forEach((one, order) => {
      let path = "";
      one.values.forEach((value, index) => {
        if (value === null || value === undefined) return;
        const gap = index === 0 || one.values[index - 1] === null || one.values[index - 1] === undefined;
        path += `${gap ? "M" : "L"}${(LEFT + (index + 0.5) * step).toFixed(1)} ${y(value).toFixed(1)}`;
        if (gap && (one.values[index + 1] ?? null) === null) chart.append(svg("circle", { cx: LEFT + (index + 0.5) * step, cy: y(value), r: 2.5, class: `fill s${order % 8}` }));
      });
      chart.append(svg("path", { d: path, class: `line-path s${order % 8}` }));
    });
  }
  const every = Math.max(1, Math.ceil(labels.length / 6));
  labels.forEach((label, index) => {
    if (index % every === 0) chart.append(svg("text", { x: LEFT + (index + 0.5) * step, y: HEIGHT - 6, class: "tick", "text-anchor": "middle" }, label));
  });
  const legend = h("figcaption", { class: "legend" }, series.map((one, order) => h("span", {}, h("i", { class: `s${order % 8}`, "aria-hidden": "true" }), plain(one.name))));
  return h("figure", { class: "card" }, h("h2", {}, title), some ? chart : h("p", { class: "hint" }, "Nothing in this time."), some ? legend : null, some ? dataTable(labels, series, format) : null);
}

function dataTable(labels, series, format) {
  return h("details", { class: "data" }, h("summary", {}, "Data"), h("div", { class: "scroll", tabindex: "0" }, h("table", {},
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Time"), series.map((one) => h("th", { scope: "col" }, plain(one.name))))),
    h("tbody", {}, labels.map((label, index) => h("tr", {}, h("th", { scope: "row" }, label), series.map((one) => h("td", {}, one.values[index] === null || one.values[index] === undefined ? "–" : format(one.values[index])))))))));
}
