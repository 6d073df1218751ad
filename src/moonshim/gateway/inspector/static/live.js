// The live list: a grid of which only the visible rows exist.

import { clock, duration, h, integer, money, plain, replace, short } from "./dom.js";
import { statusOf } from "./list.js";
import { marks } from "./repairs.js";

const filter = { text: "", model: "", provider: "", key: "", repaired: false, failed: false, slow: false };
let selected = null;
let scrollTop = 0;

export function show(main, { list, state, go }) {
  const count = h("span", { class: "count", role: "status" });
  const text = h("input", {
    type: "search", id: "filter-text", placeholder: "Filter", "aria-label": "Filter by text (id, client, session, error, rule)", value: filter.text,
    oninput: () => { filter.text = text.value; refresh(); },
  });
  const selects = ["model", "provider", "key"].map((field) => choice(field));
  const toggles = [["repaired", "Repaired"], ["failed", "Failed"], ["slow", "Slow"]].map(([field, label]) =>
    h("button", { type: "button", class: "toggle", "aria-pressed": String(filter[field]), onclick: (event) => {
      filter[field] = !filter[field];
      event.currentTarget.setAttribute("aria-pressed", String(filter[field]));
      refresh();
    } }, label));
  const pause = h("button", { type: "button", class: "toggle pause", "aria-pressed": String(list.paused), onclick: () => togglePause() }, "Pause");
  const rows = h("div", { class: "rows", role: "rowgroup" });
  const spacer = h("div", { class: "spacer", role: "presentation" }, rows);
  const scroller = h("div", { class: "scroller", role: "presentation" }, spacer);
  const grid = h(
    "div",
    { class: "grid", role: "grid", "aria-label": "Exchanges, newest first", tabindex: "0" },
    h("div", { class: "head", role: "rowgroup" }, h("div", { class: "row", role: "row" },
      ["Time", "Client", "Model", "Provider", "Status", "First token", "Duration", "Tokens", "Cost", "Repairs"].map((name, index) =>
        h("span", { role: "columnheader", class: `c${index}` }, name)))),
    scroller,
  );
  const empty = h("div", { class: "empty" });
  replace(main,
    h("h1", { class: "hidden" }, "Live"),
    h("div", { class: "tools", role: "search" }, text, ...selects, ...toggles, pause, h("span", { class: "spring" }), count),
    grid, empty);

  function choice(field) {
    const select = h("select", { "aria-label": `Filter by ${field}`, onchange: () => { filter[field] = select.value; refresh(); } });
    select.field = field;
    return select;
  }

  function updateChoices() {
    for (const select of selects) {
      const values = list.values(select.field);
      if (filter[select.field] && !values.includes(filter[select.field])) values.push(filter[select.field]);
      select.hidden = values.length === 0;
      const wanted = ["", ...values].join("\n");
      if (select.wanted === wanted) continue;
      select.wanted = wanted;
      replace(select, h("option", { value: "" }, `Any ${select.field}`), values.map((value) => h("option", { value }, plain(value))));
      select.value = filter[select.field];
    }
  }

  let shown = [];
  let frame = 0;
  const rowHeight = () => parseFloat(getComputedStyle(grid).getPropertyValue("--row")) || 36;

  function refresh() {
    if (!frame) frame = requestAnimationFrame(draw);
  }

  function draw() {
    frame = 0;
    shown = list.matching(filter);
    updateChoices();
    const waiting = list.paused && list.waiting.size ? ` · ${short(list.waiting.size)} waiting` : "";
    count.textContent = `${integer(shown.length)} of ${integer(list.order.length)}${waiting}`;
    grid.hidden = shown.length === 0;
    empty.hidden = shown.length > 0;
    if (!shown.length) replace(empty, ...nothing());
    drawRows();
  }

  function nothing() {
    if (list.order.length) return [h("h2", {}, "No exchange matches these filters")];
    return [
      h("h2", {}, "No exchanges yet"),
      h("p", {}, "Send a request through the gateway and it appears here at once:"),
      h("pre", { tabindex: "0" }, `curl ${location.origin}/v1/chat/completions \\\n  -H 'content-type: application/json' \\\n  -d '{"model": "${state.example_model ?? "kimi-k3"}", "stream": true,\n       "messages": [{"role": "user", "content": "Hello"}]}'`),
    ];
  }

  function drawRows() {
    const height = rowHeight();
    spacer.style.height = `${shown.length * height}px`;
    grid.setAttribute("aria-rowcount", String(shown.length + 1));
    const first = Math.max(0, Math.floor(scroller.scrollTop / height) - 6);
    const last = Math.min(shown.length, Math.ceil((scroller.scrollTop + scroller.clientHeight) / height) + 6);
    rows.style.transform = `translateY(${first * height}px)`;
    // Rows keep their element, so that a selection or a tooltip survives an update.
    const before = new Map([...rows.children].map((row) => [row.dataset.id, row]));
    const wanted = [];
    for (let index = first; index < last; index++) {
      const one = shown[index];
      let row = before.get(one.id);
      if (!row || row.revision !== one.revision) {
        row = rowOf(one);
        row.revision = one.revision;
      }
      row.setAttribute("aria-rowindex", String(index + 2));
      row.setAttribute("aria-selected", String(one.id === selected));
      wanted.push(row);
    }
    rows.replaceChildren(...wanted);
    const active = wanted.find((row) => row.dataset.id === selected);
    if (active) grid.setAttribute("aria-activedescendant", active.id);
    else grid.removeAttribute("aria-activedescendant");
  }

  function rowOf(one) {
    const renamed = one.requested_model && one.model && one.requested_model !== one.model;
    const tokens = one.input_tokens === null || one.input_tokens === undefined ? "–" : `${short(one.input_tokens)} → ${short(one.output_tokens)}`;
    const cached = one.input_tokens ? Math.round((100 * (one.cache_read_tokens ?? 0)) / one.input_tokens) : null;
    const [status, words] = statusOf(one);
    const cell = (index, ...content) => h("span", { role: "gridcell", class: `c${index}` }, ...content);
    return h("div", { class: `row ${status}`, role: "row", id: `row-${one.id}`, "data-id": one.id, onclick: () => open(one.id) },
      cell(0, h("time", { datetime: new Date(one.time).toISOString(), title: new Date(one.time).toLocaleString() }, clock(one.time))),
      cell(1, plain(one.client)),
      cell(2, h("span", { title: renamed ? `requested as ${plain(one.requested_model)}` : null }, plain(one.model || one.requested_model || one.path)),
        one.route && one.route !== "default" ? h("span", { class: "tag" }, plain(one.route)) : null),
      cell(3, plain(one.provider ?? "–")),
      cell(4, h("span", { class: `status ${status}` }, words),
        one.attempts > 1 ? h("span", { class: "tag", title: `${one.attempts} attempts` }, `×${one.attempts}`) : null),
      cell(5, duration(one.first_token_ms)),
      cell(6, one.running ? "…" : duration(one.duration_ms)),
      cell(7, tokens, cached ? h("span", { class: "faint", title: "read from the host's cache" }, ` ${cached}%`) : null),
      cell(8, money(one.cost, one.currency)),
      cell(9, one.error ? h("span", { class: "error", title: plain(one.error) }, plain(one.error)) : marks(one.repairs), one.prefix_lost ? h("span", { class: "mark cache", title: plain(one.prefix_lost) }, "cache lost") : null),
    );
  }

  function open(id) {
    selected = id;
    scrollTop = scroller.scrollTop;
    go(`#/exchange/${encodeURIComponent(id)}`);
  }

  function select(step) {
    let index = shown.findIndex((one) => one.id === selected);
    index = index < 0 ? 0 : Math.min(shown.length - 1, Math.max(0, index + step));
    if (!shown[index]) return;
    selected = shown[index].id;
    const height = rowHeight();
    const top = index * height;
    if (top < scroller.scrollTop) scroller.scrollTop = top;
    else if (top + height > scroller.scrollTop + scroller.clientHeight) scroller.scrollTop = top + height - scroller.clientHeight;
    drawRows();
  }

  function togglePause() {
    list.pause(!list.paused);
    pause.setAttribute("aria-pressed", String(list.paused));
    pause.textContent = list.paused ? "Resume" : "Pause";
  }

  scroller.addEventListener("scroll", refresh, { passive: true });
  const resized = new ResizeObserver(refresh);
  resized.observe(scroller);
  const unsubscribe = list.subscribe(refresh);
  if (list.paused) pause.textContent = "Resume";
  draw();
  scroller.scrollTop = scrollTop;
  drawRows();

  return {
    leave: () => { unsubscribe(); resized.disconnect(); cancelAnimationFrame(frame); },
    onKey: (event, typing) => {
      if (typing) return event.key === "Escape" && (grid.focus(), true);
      switch (event.key) {
        case "ArrowDown": case "j": return select(1), true;
        case "ArrowUp": case "k": return select(-1), true;
        case "PageDown": return select(15), true;
        case "PageUp": return select(-15), true;
        case "Home": return select(-Infinity), true;
        case "End": return select(Infinity), true;
        case "Enter":
          if (event.target.closest("button, a") || !selected) return false;
          return open(selected), true;
        case "/": return text.focus(), true;
        case "p": return togglePause(), true;
      }
      return false;
    },
  };
}
