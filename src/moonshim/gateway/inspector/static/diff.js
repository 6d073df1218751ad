// Two JSON values -> a line diff: equal lines are folded, changed ones are side by side on wide screens.

import { h, longText } from "./dom.js";

const CONTEXT = 3;
const MOST_LINES = 20_000;
const CUT = 4_000;

export function jsonDiff(before, after, { labels = ["before", "after"] } = {}) {
  const left = lines(before);
  const right = lines(after);
  const rows = compare(left, right);
  const box = h("div", { class: "diff", role: "table", "aria-label": `Differences between ${labels[0]} and ${labels[1]}` });
  box.append(h("div", { class: "line labels", role: "row" }, h("span", { role: "columnheader" }, labels[0]), h("span", { role: "columnheader" }, labels[1])));
  for (const group of fold(rows)) {
    if (group.folded) {
      const button = h("button", { type: "button", class: "fold", onclick: () => row.replaceWith(...group.rows.map(line)) }, `${group.rows.length} unchanged lines`);
      const row = h("div", { class: "line", role: "row" }, h("span", { role: "cell", class: "wide" }, button));
      box.append(row);
    } else box.append(...group.rows.map(line));
  }
  if (left.length > MOST_LINES || right.length > MOST_LINES) box.append(h("p", { class: "hint" }, `Only the first ${MOST_LINES.toLocaleString("en")} lines are compared.`));
  return box;
}

function lines(value) {
  return JSON.stringify(value, null, 2).split("\n").slice(0, MOST_LINES + 1);
}

function line({ kind, left, right }) {
  const cell = (text, mark) => h("span", { role: "cell", class: text === null ? "none" : kind }, text === null ? "" : [h("i", { "aria-hidden": "true" }, mark), longText(text, { limit: CUT })]);
  return h("div", { class: "line", role: "row" }, cell(left, kind === "same" ? " " : "−"), cell(right, kind === "same" ? " " : "+"));
}

function fold(rows) {
  const groups = [];
  let start = 0;
  while (start < rows.length) {
    const same = rows[start].kind === "same";
    let end = start;
    while (end < rows.length && (rows[end].kind === "same") === same) end++;
    const part = rows.slice(start, end);
    const head = start === 0 ? 0 : CONTEXT;
    const tail = end === rows.length ? 0 : CONTEXT;
    if (same && part.length > head + tail + 1) {
      groups.push({ rows: part.slice(0, head) }, { folded: true, rows: part.slice(head, part.length - tail) }, { rows: part.slice(part.length - tail) });
    } else groups.push({ rows: part });
    start = end;
  }
  return groups.filter((group) => group.rows.length);
}

/** Patience first (unique lines that both sides have anchor the rest), then pairs of what is left. Linear in practice. */
function compare(left, right) {
  const rows = [];
  walk(0, left.length, 0, right.length);
  return rows;

  function walk(l0, l1, r0, r1) {
    while (l0 < l1 && r0 < r1 && left[l0] === right[r0]) rows.push({ kind: "same", left: left[l0++], right: right[r0++] });
    let tail = 0;
    while (l1 - tail > l0 && r1 - tail > r0 && left[l1 - tail - 1] === right[r1 - tail - 1]) tail++;
    l1 -= tail;
    r1 -= tail;
    const anchors = uniqueAnchors(l0, l1, r0, r1);
    if (anchors.length) {
      let [l, r] = [l0, r0];
      for (const [al, ar] of anchors) {
        walk(l, al, r, ar);
        rows.push({ kind: "same", left: left[al], right: right[ar] });
        [l, r] = [al + 1, ar + 1];
      }
      walk(l, l1, r, r1);
    } else {
      for (let step = 0; step < Math.max(l1 - l0, r1 - r0); step++)
        rows.push({ kind: "changed", left: l0 + step < l1 ? left[l0 + step] : null, right: r0 + step < r1 ? right[r0 + step] : null });
    }
    for (let step = 0; step < tail; step++) rows.push({ kind: "same", left: left[l1 + step], right: right[r1 + step] });
  }

  function uniqueAnchors(l0, l1, r0, r1) {
    const seen = new Map();
    for (let l = l0; l < l1; l++) seen.set(left[l], seen.has(left[l]) ? [-1, -1] : [l, -1]);
    for (let r = r0; r < r1; r++) {
      const entry = seen.get(right[r]);
      if (entry && entry[0] >= 0) seen.set(right[r], entry[1] === -1 ? [entry[0], r] : [-1, -1]);
    }
    const pairs = [...seen.values()].filter(([l, r]) => l >= 0 && r >= 0).sort((a, b) => a[0] - b[0]);
    // The longest increasing run of right-hand lines.
    const piles = [];
    const back = new Map();
    for (const pair of pairs) {
      let [low, high] = [0, piles.length];
      while (low < high) {
        const middle = (low + high) >> 1;
        if (piles[middle][1] < pair[1]) low = middle + 1;
        else high = middle;
      }
      if (low) back.set(pair, piles[low - 1]);
      piles[low] = pair;
    }
    const chain = [];
    for (let pair = piles.at(-1); pair; pair = back.get(pair)) chain.push(pair);
    return chain.reverse();
  }
}
