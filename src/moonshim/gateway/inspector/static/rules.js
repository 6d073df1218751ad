// Every rule in one sentence: repairs of responses, and changes of requests.

import { h, replace } from "./dom.js";
import { allRules, colourOf } from "./repairs.js";

const PAGES = [["repairs", "Repairs of responses"], ["requests", "Changes of requests"]];

export function show(main, context, [wanted]) {
  const rows = (page) => allRules().filter(([, one]) => one.page === page).map(([rule, one]) =>
    h("tr", { id: `rule-${rule}`, class: rule === wanted ? "wanted" : "" }, h("th", { scope: "row" }, h("code", { class: `repair ${colourOf(one.group)}` }, rule)), h("td", {}, one.sentence)));
  replace(main, h("h1", {}, "Rules"), PAGES.map(([page, title]) => [h("h2", {}, title), h("table", { class: "rules" }, h("tbody", {}, rows(page)))]));
  document.getElementById(`rule-${wanted}`)?.scrollIntoView({ block: "center" });
  return { onKey: (event) => event.key === "Escape" && (history.back(), true) };
}
