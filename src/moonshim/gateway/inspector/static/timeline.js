// When things happened in one exchange: phases as bars, and the text over time.

import { areaChart } from "./charts.js";
import { duration, h } from "./dom.js";

export function timelineView(detail) {
  const steps = detail.timeline ?? [];
  if (!steps.length) return h("p", { class: "notice" }, "No times were recorded.");
  const end = Math.max(...steps.map((step) => step.end), 1);
  const rows = steps.map((step) => {
    const bar = h("span", { class: `span ${step.kind}` });
    bar.style.left = `${(100 * step.start) / end}%`;
    bar.style.width = `max(3px, ${(100 * (step.end - step.start)) / end}%)`;
    return h("tr", {}, h("th", { scope: "row" }, step.name), h("td", { class: "bar-cell" }, h("span", { class: "track" }, bar)), h("td", { class: "num" }, duration(step.end - step.start)), h("td", { class: "num faint" }, `at ${duration(step.start)}`));
  });
  return [
    h("h2", {}, "Phases"),
    h("table", { class: "timeline" }, h("tbody", {}, rows)),
    detail.progress?.points.length > 1
      ? [h("h2", {}, detail.progress.unit === "bytes" ? "Bytes from the host over time" : "Characters of output over time"),
         areaChart(detail.progress.points.map(([at, size]) => ({ x: at, y: size })), { x: duration, label: `Received ${detail.progress.unit} over time` })]
      : null,
  ];
}
