// What the host sent beside what the client got, frame by frame; repaired frames are marked, with the reason.

import { duration, h, integer, longText, plain } from "./dom.js";
import { repairNote } from "./repairs.js";

const FOLD_OVER = 6;
const KEEP = 2;
const PAGE = 400;
let onlyRepaired = false;
let whole = false;
/** Folded groups that were opened, by their first frame: a stream that still grows is drawn again and again. */
let unfolded = { of: null, groups: new Set() };

/** Why there is nothing of a host: the gateway refused the request itself. */
export const notSent = (detail) => (detail.attempts?.length === 0 && !detail.summary.running ? "The request was not sent to a host." : null);

/** `rows`: [{at, raw, out: [text…], repairs: [{rule, detail}], same}] in the order of the host's frames. */
export function streamView(detail) {
  const stream = detail.stream;
  if (unfolded.of !== detail.summary.id) unfolded = { of: detail.summary.id, groups: new Set() };
  const tried = detail.attempts?.[detail.attempt];
  if (!stream && tried?.error_body) return [h("p", { class: "notice" }, `${plain(tried.provider)} answered with status ${tried.status}:`), h("pre", { class: "error-body", tabindex: "0" }, longText(tried.error_body))];
  if (!stream) return h("p", { class: "notice" }, detail.privacy ? "Privacy mode is on: streams are not recorded." : tried?.error ? `There was no response: ${plain(tried.error)}` : notSent(detail) ?? "No response was recorded.");
  const box = h("div", { class: "stream", role: "table", "aria-label": "Frames of the host and of the client" });
  const repaired = stream.rows.filter((row) => row.repairs.length).length;
  const toggle = h("button", { type: "button", class: "toggle", "aria-pressed": String(onlyRepaired), onclick: () => {
    onlyRepaired = !onlyRepaired;
    toggle.setAttribute("aria-pressed", String(onlyRepaired));
    fill();
  } }, "Only repaired");

  const complete = h("button", { type: "button", class: "toggle", "aria-pressed": String(whole), title: "Also show the fields that are the same in every frame", onclick: () => {
    whole = !whole;
    complete.setAttribute("aria-pressed", String(whole));
    fill();
  } }, "Whole frames");

  function fill() {
    box.replaceChildren(h("div", { class: "frame labels", role: "row" },
      h("span", { role: "columnheader" }, "Time"),
      h("span", { role: "columnheader" }, `From ${plain(detail.attempts?.[detail.attempt]?.provider ?? detail.summary.provider ?? "the host")}`),
      h("span", { role: "columnheader" }, `To ${plain(detail.summary.client ?? "the client")}`)));
    const groups = onlyRepaired ? [{ rows: stream.rows.filter((row) => row.repairs.length) }] : folded(stream.rows);
    let drawn = 0;
    const waiting = groups.flatMap((group) => (group.folded ? [group] : group.rows));
    const page = () => {
      for (const one of waiting.slice(drawn, drawn + PAGE)) box.append(one.folded ? foldRow(one) : frame(one));
      drawn += PAGE;
      if (drawn < waiting.length) {
        const more = h("button", { type: "button", class: "fold", onclick: () => { more.remove(); page(); } }, `Show more (${integer(waiting.length - drawn)} left)`);
        box.append(more);
      }
    };
    page();
    if (onlyRepaired && !repaired) box.append(h("p", { class: "hint" }, "No frame was repaired."));
  }
  fill();
  return [
    h("div", { class: "tools" }, h("span", { class: "hint" }, `${integer(stream.rows.length)} frames, ${integer(repaired)} repaired`), h("span", { class: "spring" }), complete, toggle),
    stream.truncated ? h("p", { class: "notice" }, "The beginning is shown; the rest was too large to record.") : null,
    stream.left_out ? h("p", { class: "notice" }, `The first ${integer(stream.rows.length)} frames are shown; ${integer(stream.left_out)} more follow. ${detail.has_log ? "Download the log to see them." : ""}`) : null,
    box,
  ];
}

function folded(rows) {
  const groups = [];
  let start = 0;
  while (start < rows.length) {
    const kind = kindOf(rows[start]);
    let end = start;
    while (end < rows.length && kindOf(rows[end]) === kind) end++;
    if (unfolded.groups.has(start)) groups.push({ rows: rows.slice(start, end) });
    else if (kind === "held" && end - start > KEEP) groups.push({ folded: true, start, rows: rows.slice(start, end) });
    else if (kind === "plain" && end - start > FOLD_OVER) {
      groups.push({ rows: rows.slice(start, start + KEEP) }, { folded: true, start, rows: rows.slice(start + KEEP, end - KEEP) }, { rows: rows.slice(end - KEEP, end) });
    } else groups.push({ rows: rows.slice(start, end) });
    start = end;
  }
  return groups;
}

/** `held`: the client gets nothing for the frame itself, because what it begins is decided later. */
function kindOf(row) {
  if (row.repairs.length) return "repaired";
  return row.same || row.out.length ? "plain" : "held";
}

function foldRow(group) {
  const held = kindOf(group.rows[0]) === "held";
  const what = held ? "frames held back" : group.rows.every((row) => row.same) ? "unchanged frames" : "frames without repairs";
  const text = group.rows.map((row) => row.text ?? "").join("").slice(0, 160);
  const row = h("div", { class: `frame${held ? " held" : ""}`, role: "row" }, h("span", { role: "cell", class: "wide" },
    h("button", { type: "button", class: "fold", onclick: () => { unfolded.groups.add(group.start); row.replaceWith(...group.rows.map(frame)); } }, `${integer(group.rows.length)} ${what}`, text ? h("span", { class: "faint", dir: "auto" }, ` ${plain(text)}`) : null)));
  return row;
}

const ENVELOPE = new Set(["id", "object", "created", "model", "system_fingerprint", "service_tier", "provider"]);

/** A frame without the fields that every frame of a stream repeats. */
function essence(text) {
  if (whole || text.length > 20_000) return text;
  return text.replace(/^(data: ?)?(\{.*\})$/gm, (line, head, json) => {
    try {
      const value = JSON.parse(json);
      const rest = Object.entries(value).filter(([key]) => !ENVELOPE.has(key));
      if (!value.choices || rest.length === Object.keys(value).length) return line;
      return `${head ?? ""}{… ${JSON.stringify(Object.fromEntries(rest)).slice(1)}`;
    } catch {
      return line;
    }
  });
}

function frame(row) {
  const alike = !row.same && row.out.length === 1 && essence(row.out[0]) === essence(row.raw);
  const cell = (text, label) => longText(essence(text), { limit: 1200, tag: "pre", attributes: { "aria-label": label } });
  return h("div", { class: `frame${row.repairs.length ? " repaired" : ""}`, role: "row" },
    h("span", { role: "cell", class: "at" }, row.at === null || row.at === undefined ? "" : duration(row.at)),
    h("span", { role: "cell", class: "raw" }, row.raw ? cell(row.raw, "from the host") : h("span", { class: "faint" }, "(end)")),
    h("span", { role: "cell", class: `out${row.same ? " same" : ""}` }, row.same || alike ? h("span", { class: "faint", title: alike ? "Other values of the fields that every frame has, such as the name of the model" : null }, alike ? "unchanged, but for its id or model" : "unchanged") : row.out.length ? row.out.map((one) => cell(one, "to the client")) : h("span", { class: "faint" }, row.repairs.length ? "removed" : "nothing for the client")),
    row.repairs.length ? h("span", { role: "cell", class: "wide notes" }, row.repairs.map(repairNote)) : null);
}
