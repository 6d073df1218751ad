// Four charts: requests, latency, repairs by rule, errors by provider.

import { get } from "./api.js";
import { seriesChart } from "./charts.js";
import { clock, duration, h, redraw, replace, short } from "./dom.js";

const SPANS = [[15, "15 min"], [60, "1 h"], [360, "6 h"], [1440, "24 h"]];
const REFRESH_MS = 5000;
let minutes = 60;

export async function show(main, context) {
  let timer = 0;
  let left = false;
  const charts = h("div", { class: "cards" });
  const picker = h("div", { class: "segmented", role: "group", "aria-label": "Time span" }, SPANS.map(([value, label]) =>
    h("button", { type: "button", "aria-pressed": String(value === minutes), onclick: (event) => {
      minutes = value;
      for (const button of picker.children) button.setAttribute("aria-pressed", String(button === event.currentTarget));
      draw();
    } }, label)));
  replace(main, h("div", { class: "tools" }, h("h1", {}, "Overview"), h("span", { class: "spring" }), picker), charts);

  async function draw() {
    clearTimeout(timer);
    const asked = minutes;
    let data;
    try {
      data = await get(`overview?minutes=${asked}`);
    } catch (error) {
      if (left || asked !== minutes) return;
      if (error.status) return context.fail(error);
      timer = setTimeout(draw, REFRESH_MS); // the gateway is restarted
      return;
    }
    if (left || asked !== minutes) return;
    const labels = data.buckets.map((start) => clock(start).slice(0, 5));
    const percent = (value) => `${Math.round(100 * value)}%`;
    redraw(charts,
      seriesChart(labels, data.requests, { title: "Requests", format: short }),
      seriesChart(labels, data.latency, { title: "Time to first token", kind: "lines", format: duration }),
      seriesChart(labels, data.repairs, { title: "Repairs by rule", format: short }),
      seriesChart(labels, data.errors, { title: "Error rate by provider", kind: "lines", format: percent }));
    clearTimeout(timer);
    timer = setTimeout(draw, REFRESH_MS);
  }
  await draw();
  return { leave: () => { left = true; clearTimeout(timer); } };
}
