// JSON as a foldable tree, drawn only as far as it is open; text that is no JSON is shown as it is.

import { h, longText, visible } from "./dom.js";

const OPEN_ENTRIES = 40;
const PAGE = 200;

export function jsonText(text) {
  try {
    return jsonView(JSON.parse(text));
  } catch {
    return h("pre", { class: "json", tabindex: "0" }, longText(text));
  }
}

export function jsonView(value, open = true) {
  return h("div", { class: "json" }, node(value, open, 0));
}

function node(value, open, depth) {
  if (value === null || typeof value === "boolean") return h("span", { class: "word" }, String(value));
  if (typeof value === "number") return h("span", { class: "number" }, String(value));
  if (typeof value === "string") return h("span", { class: "string" }, '"', longText(value, { limit: 600 }), '"');
  const entries = Array.isArray(value) ? value.map((one, index) => [index, one]) : Object.entries(value);
  const [left, right] = Array.isArray(value) ? "[]" : "{}";
  if (!entries.length) return h("span", {}, left + right);
  const isOpen = open && depth < 4 && entries.length <= OPEN_ENTRIES;
  const details = h("details", { open: isOpen }, h("summary", {}, left, h("span", { class: "faint" }, ` ${entries.length} ${Array.isArray(value) ? "item" : "field"}${entries.length === 1 ? "" : "s"} `), right));
  const body = h("div", { class: "children" });
  details.append(body);
  let drawn = 0;
  const draw = () => {
    const next = entries.slice(drawn, drawn + PAGE);
    drawn += next.length;
    for (const [key, inner] of next)
      body.append(h("div", {}, typeof key === "string" ? h("span", { class: "key" }, visible(key.slice(0, 300)), ": ") : h("span", { class: "faint" }, `${key}: `), node(inner, open, depth + 1)));
    if (drawn < entries.length) {
      const more = h("button", { type: "button", class: "more", onclick: () => { more.remove(); draw(); } }, `Show more (${entries.length - drawn} left)`);
      body.append(more);
    }
  };
  if (isOpen) draw();
  details.drawNow = () => { if (details.open && !drawn) draw(); };
  details.addEventListener("toggle", details.drawNow);
  return details;
}
