// Repairs as coloured marks. The gateway sends the groups (`markers`, `ids`, …), the sentence and the page of each rule.

import { h } from "./dom.js";

const GROUPS = {
  markers: "markers", ids: "ids", names: "names", arguments: "arguments", "invalid arguments": "failed", "cut arguments": "failed",
  deltas: "framing", framing: "framing", unparsed: "framing", characters: "framing", limit: "framing",
  duplicates: "arguments", undeclared: "names", finish: "finish", usage: "finish", reasoning: "reasoning",
  failed: "failed", empty: "failed", dropped: "failed",
};

let rules = {};
export const setRules = (known) => (rules = known ?? {});
export const allRules = () => Object.entries(rules);
export const groupOf = (rule) => rules[rule]?.group ?? rule;
export const colourOf = (group) => GROUPS[group] ?? "framing";

export function marks(repairs) {
  const groups = new Map();
  for (const [rule, count] of Object.entries(repairs ?? {})) {
    const group = groupOf(rule);
    groups.set(group, (groups.get(group) ?? 0) + count);
  }
  return [...groups].map(([group, count]) =>
    h("span", { class: `mark ${colourOf(group)}`, title: `${group}: ${count} ${count === 1 ? "repair" : "repairs"}` }, group, count > 1 ? h("b", {}, `×${count}`) : null));
}

/** One repair: its rule, one sentence, the detail and a link to its documentation. */
export function repairNote(repair) {
  const known = rules[repair.rule] ?? {};
  return h("div", { class: `repair ${colourOf(groupOf(repair.rule))}` },
    known.sentence ? h("a", { href: `#/rules/${repair.rule}` }, repair.rule) : h("code", {}, repair.rule),
    repair.place ? h("code", { class: "place" }, repair.place) : null,
    known.sentence ? h("span", {}, known.sentence) : null,
    repair.detail ? h("code", { class: "detail", dir: "auto" }, repair.detail.slice(0, 500)) : null);
}
