// What was spent, from the usage books: by day, key, session or model; and the budgets.

import { get } from "./api.js";
import { h, integer, money, plain, replace } from "./dom.js";

const BY = [["day", "Day"], ["key", "Key"], ["session", "Session"], ["model", "Model"]];
const SINCE = [["24h", "24 h"], ["7d", "7 days"], ["30d", "30 days"], ["90d", "90 days"]];
let by = "day";
let since = "7d";

export async function show(main, context) {
  let left = false;
  const body = h("div", {});
  const group = (choices, current, label, set) => {
    const box = h("div", { class: "segmented", role: "group", "aria-label": label }, choices.map(([value, text]) =>
      h("button", { type: "button", "aria-pressed": String(value === current), onclick: (event) => {
        set(value);
        for (const button of box.children) button.setAttribute("aria-pressed", String(button === event.currentTarget));
        draw().catch((error) => left || context.fail(error));
      } }, text)));
    return box;
  };
  replace(main, h("div", { class: "tools" }, h("h1", {}, "Cost"), h("span", { class: "spring" }),
    group(BY, by, "Group by", (value) => (by = value)), group(SINCE, since, "Time span", (value) => (since = value))), body);

  async function draw() {
    const asked = `usage?by=${by}&since=${since}`;
    const data = await get(asked);
    if (left || asked !== `usage?by=${by}&since=${since}`) return;
    const rows = data.data;
    const shown = data.budgets?.length ? budgets(data.budgets) : null;
    if (!rows.length) return replace(body, shown, h("div", { class: "empty" }, h("h2", {}, "Nothing booked in this time")));
    // Each currency has a scale of its own: nobody knows what one is worth in another.
    const tops = {};
    for (const row of rows) for (const [currency, cost] of Object.entries(row.costs)) tops[currency] = Math.max(tops[currency] ?? 0, Number(cost));
    const columns = [BY.find(([value]) => value === by)[1], "Requests", "Input", "Cache reads", "Cache writes", "Output", "Cost", ""];
    replace(body,
      shown,
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Usage" }, h("table", { class: "usage" },
        h("thead", {}, h("tr", {}, columns.map((name) => h("th", { scope: "col" }, name || h("span", { class: "hidden" }, "Share"))))),
        h("tbody", {}, rows.map((row) => usageRow(row, tops))),
        data.total ? h("tfoot", {}, usageRow({ ...data.total, name: "Total" }, {})) : null)),
      h("p", { class: "hint" }, "Costs come from the price table of Moonshim and your ", h("code", {}, "[prices]"), ". “unknown” means that a model has no price; it is not free."));
  }

  function usageRow(row, tops) {
    const bars = Object.entries(tops).filter(([, top]) => top > 0).map(([currency, top], index) => {
      const bar = h("span", { class: `span s${index % 8}` });
      bar.style.width = `${(100 * Number(row.costs[currency] ?? 0)) / top}%`;
      return h("span", { class: "track", title: `${currency}: ${money(row.costs[currency] ?? 0, currency)}` }, bar);
    });
    const costs = Object.entries(row.costs).map(([currency, cost]) => money(cost, currency)).join(" + ");
    const text = row.cost_unknown ? (costs ? `≥ ${costs}` : "unknown") : costs || "–";
    return h("tr", {}, h("th", { scope: "row", dir: "auto" }, plain(row.name ?? "–")), [row.requests, row.input_tokens, row.cache_read_tokens, row.cache_write_tokens, row.output_tokens].map((value) => h("td", { class: "num" }, integer(value))),
      h("td", { class: "num" }, text), h("td", { class: "bar-cell" }, bars));
  }

  function budgets(list) {
    return h("section", { class: "cards budgets" }, list.map((one) => {
      const ratio = Math.min(1, Number(one.limit) ? Number(one.used) / Number(one.limit) : 1);
      const amountOf = (value) => (one.unit === "tokens" ? `${integer(Number(value))} tokens` : money(value, one.unit));
      const bar = h("span", { class: `span ${ratio >= 1 ? "failed" : ratio > 0.8 ? "warn" : "settled"}` });
      bar.style.width = `${100 * ratio}%`;
      return h("div", { class: "card" }, h("h2", {}, `${plain(one.key)}, ${one.period}${one.soft ? " (soft)" : ""}`), h("span", { class: "track" }, bar),
        h("p", {}, `${amountOf(one.used)} of ${amountOf(one.limit)}`, h("span", { class: "faint" }, one.resets ? `, resets ${new Date(one.resets).toLocaleString()}` : "")));
    }));
  }

  await draw();
  return { leave: () => { left = true; } };
}
