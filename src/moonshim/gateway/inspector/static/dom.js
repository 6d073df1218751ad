// Elements without markup strings: text from hosts and clients is only ever set as text.

const SVG = "http://www.w3.org/2000/svg";

/** Create an element: `h("p", {class: "note", onclick: f}, "text", otherElement)`. Null and false children are skipped. */
export function h(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  return fill(element, attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

export function append(element, children) {
  for (const child of children) {
    if (Array.isArray(child)) append(element, child);
    else if (child !== null && child !== undefined && child !== false) element.append(child);
  }
}

export function replace(element, ...children) {
  element.replaceChildren();
  append(element, children);
}

/** Long text, cut; a button shows the rest in steps, so that ten megabytes never enter the page at once. */
export function longText(text, { limit = 2000, step = 200_000, tag = "span", attributes = {} } = {}) {
  const element = h(tag, { ...attributes, dir: "auto" });
  const cut = (at) => (at < text.length && /[\ud800-\udbff]/.test(text[at - 1]) ? at + 1 : Math.min(at, text.length));
  let shown = cut(limit);
  element.append(visible(text.slice(0, shown)));
  if (shown === text.length) return element;
  const more = h("button", { type: "button", class: "more" });
  const label = () => {
    more.textContent = `Show ${shown + step >= text.length ? "the rest" : "more"} (${characters(text.length - shown)} left)`;
  };
  label();
  more.addEventListener("click", (event) => {
    event.stopPropagation();
    const next = cut(shown + step);
    more.before(visible(text.slice(shown, next)));
    shown = next;
    if (shown >= text.length) more.remove();
    else label();
  });
  element.append(more);
  return element;
}

// Controls, direction marks, invisible characters, tags, and halves of surrogate pairs.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}\p{Surrogate}]/u;
const HIDDEN_RUNS = new RegExp(`${HIDDEN.source}|[^${HIDDEN.source.slice(1, -1)}]+`, "gu");

/** Text in which invisible and direction-changing characters are shown as their code points. */
export function visible(text) {
  if (!HIDDEN.test(text)) return document.createTextNode(text);
  const parts = document.createDocumentFragment();
  for (const [run] of text.matchAll(HIDDEN_RUNS)) {
    if (HIDDEN.test(run)) {
      const code = run.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
      parts.append(h("span", { class: "codepoint", title: `Character U+${code}` }, `U+${code}`));
    } else parts.append(run);
  }
  return parts;
}

/** Visible text for attributes and options, where no element can be used. */
export const plain = (text) => String(text).replace(new RegExp(HIDDEN.source, "gu"), "\ufffd");

// -- formats -----------------------------------------------------------------------------------

const numbers = new Intl.NumberFormat("en");

export const integer = (value) => (value === null || value === undefined ? "–" : numbers.format(value));

export function characters(count) {
  return count < 10_000 ? `${numbers.format(count)} characters` : `${short(count)} characters`;
}

export function short(value) {
  if (value === null || value === undefined) return "–";
  for (const [unit, name] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (value >= unit * 0.9995) return `${(value / unit).toFixed(value < unit * 9.95 ? 1 : 0)}${name}`;
  }
  return String(Math.round(value));
}

export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1000) return `${ms > 0 && ms < 9.5 ? ms.toFixed(1) : Math.round(ms)} ms`;
  if (ms < 59_950) return `${(ms / 1000).toFixed(ms < 9_950 ? 2 : 1)} s`;
  return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1000)} s`;
}

/** `cost` is a decimal string, so that nothing is rounded on the way. */
export function money(cost, unit = null) {
  if (cost === null || cost === undefined) return "–";
  const value = Number(cost);
  if (value === 0 && unit === null) return "–"; // nothing was used
  const currency = /[a-z]$/i.test(unit ?? "$") ? `${unit} ` : unit ?? "$";
  if (value === 0) return `${currency}0`;
  if (value < 0.00005) return `<${currency}0.0001`;
  return `${currency}${value < 1 ? value.toFixed(4) : value.toFixed(2)}`;
}

export function clock(ms) {
  const date = new Date(ms);
  const two = (value) => String(value).padStart(2, "0");
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

export async function copy(text, button) {
  const label = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = copyOldWay(text) ? "Copied" : "Cannot copy here";
  }
  setTimeout(() => (button.textContent = label), 1600);
}

/** Pages without TLS on another machine have no clipboard. */
function copyOldWay(text) {
  const area = h("textarea", { class: "hidden", "aria-hidden": "true" });
  area.value = text;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}

/** Draw again without closing what a person has opened: `details` keep their state, by their order. */
export function redraw(element, ...children) {
  const open = [...element.querySelectorAll("details")].map((one) => one.open);
  const focus = element.contains(document.activeElement) ? [...element.querySelectorAll(FOCUSABLE)].indexOf(document.activeElement) : -1;
  replace(element, ...children);
  // One after the other: opening one may draw others inside it.
  for (let index = 0; index < open.length; index++) {
    const one = element.querySelectorAll("details")[index];
    if (one && one.open !== open[index]) {
      one.open = open[index];
      one.drawNow?.();
    }
  }
  if (focus >= 0) element.querySelectorAll(FOCUSABLE)[focus]?.focus({ preventScroll: true });
}

const FOCUSABLE = "button, a[href], summary, [tabindex], input, select, textarea";
