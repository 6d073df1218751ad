// One exchange: the conversation, both streams side by side, the request as a diff, the timeline, ids and cache.

import { get } from "./api.js";
import { clock, copy, duration, h, integer, longText, money, plain, redraw, replace } from "./dom.js";
import { jsonDiff } from "./diff.js";
import { jsonText, jsonView } from "./json_view.js";
import { statusOf } from "./list.js";
import { marks, repairNote } from "./repairs.js";
import { notSent, streamView } from "./stream.js";
import { timelineView } from "./timeline.js";

const TABS = [["conversation", "Conversation"], ["stream", "Stream"], ["request", "Request"], ["timeline", "Timeline"], ["details", "Details"]];
const POLL_MS = 700;
let lastTab = "conversation";

export async function show(main, context, [id, tab]) {
  const path = `exchanges/${encodeURIComponent(id)}`;
  let detail = await get(path);
  let attempt = null;
  let current = TABS.some(([name]) => name === tab) ? tab : lastTab;
  let timer = 0;
  let left = false;
  const head = h("div", { class: "exchange-head" });
  const tablist = h("div", { class: "tabs", role: "tablist", "aria-label": "Views of this exchange" });
  const panel = h("section", { class: "panel", role: "tabpanel", id: "panel", tabindex: "0" });
  for (const [name, label] of TABS)
    tablist.append(h("button", { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": "panel", onclick: () => select(name) }, label));
  replace(main, h("a", { class: "back", href: "#/live" }, "← All exchanges"), head, tablist, panel);

  function select(name, focus = true) {
    current = lastTab = name;
    for (const button of tablist.children) {
      const isCurrent = button.id === `tab-${name}`;
      button.setAttribute("aria-selected", String(isCurrent));
      button.tabIndex = isCurrent ? 0 : -1;
      if (isCurrent && focus) button.focus();
    }
    panel.setAttribute("aria-labelledby", `tab-${name}`);
    draw();
  }

  function draw({ again = false } = {}) {
    const view = { conversation, stream: streamView, request: requestView, timeline: timelineView, details }[current];
    if (again) {
      redraw(head, headView());
      redraw(panel, view(detail));
    } else {
      replace(head, headView());
      replace(panel, view(detail));
    }
  }

  async function pick(number) {
    attempt = number;
    try {
      detail = await get(`${path}?attempt=${number}`);
    } catch (error) {
      return left || context.fail(error);
    }
    if (!left) draw({ again: true });
  }

  function headView() {
    const one = detail.summary;
    const [kind, words] = statusOf(one);
    const attempts = detail.attempts ?? [];
    const command = () => `curl ${location.origin}${detail.curl}`;
    const fact = (name, value, title) => h("div", { title }, h("dt", {}, name), h("dd", {}, value));
    const cached = one.input_tokens && one.cache_read_tokens ? `${Math.round((100 * one.cache_read_tokens) / one.input_tokens)}% cached` : null;
    return [
      h("div", { class: "title" },
        h("h1", {}, plain(one.model ?? one.requested_model ?? one.path), one.provider ? h("span", { class: "faint" }, ` at ${plain(one.provider)}`) : null),
        h("span", { class: `status ${kind}`, title: one.outcome }, words),
        marks(one.repairs), h("span", { class: "spring" }),
        detail.curl ? h("button", { type: "button", onclick: (event) => copy(command(), event.currentTarget) }, "Copy as curl") : null,
        detail.has_log ? h("a", { class: "button", href: `/inspector/api/${path}/log${attempt === null ? "" : `?attempt=${attempt}`}`, download: "" }, "Download log") : null),
      one.error ? h("p", { class: "problem" }, longText(plain(one.error), { limit: 600 })) : null,
      one.prefix_lost ? h("p", { class: "notice" }, h("b", {}, "The host's prompt cache was lost: "), plain(one.prefix_lost)) : null,
      h("dl", { class: "facts" },
        fact("Time", clock(one.time), new Date(one.time).toString()),
        fact("Client", plain(one.client)),
        one.key ? fact("Key", plain(one.key)) : null,
        fact("First token", duration(one.first_token_ms)),
        fact("Duration", one.running ? "…" : duration(one.duration_ms)),
        fact("Input", tokenCount(one.input_tokens, cached)),
        fact("Output", tokenCount(one.output_tokens, one.estimated ? "estimated" : null)),
        fact("Cost", one.cost === null || one.cost === undefined ? (one.running || !attempts.length ? "–" : "unknown price") : money(one.cost, one.currency))),
      attempts.length > 1 ? h("div", { class: "pick" }, h("span", { class: "hint" }, "Attempt"), h("div", { class: "segmented", role: "group", "aria-label": "Attempt" }, attempts.map((tried, index) =>
        h("button", { type: "button", "aria-pressed": String(index === detail.attempt), title: tried.error ? plain(tried.error) : null, onclick: () => pick(index) },
          `${index + 1} ${plain(tried.provider)}`, tried.error ? h("span", { class: "status failed" }, "failed") : tried.continues ? h("span", { class: "tag" }, "continued") : null)))) : null,
    ];
  }

  async function poll() {
    const asked = performance.now();
    try {
      const fresh = await get(`${path}?have=${detail.version}${attempt === null ? "" : `&attempt=${attempt}`}`);
      if (left) return;
      if (fresh) {
        const bottom = innerHeight + scrollY >= document.body.scrollHeight - 80;
        detail = fresh;
        draw({ again: true });
        if (bottom) scrollTo(0, document.body.scrollHeight);
      }
    } catch (error) {
      if (!left && error.status) return context.fail(error);
    }
    // Long streams take longer to read: the gateway should not be busy with us.
    if (!left && detail.summary.running) timer = setTimeout(poll, Math.max(POLL_MS, 5 * (performance.now() - asked)));
  }

  select(current, false);
  if (detail.summary.running) timer = setTimeout(poll, POLL_MS);
  return {
    leave: () => { left = true; clearTimeout(timer); },
    onKey: (event) => {
      if (event.key === "Escape") return context.go("#/live"), true;
      if (event.target.closest("input, select, textarea")) return false;
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step || event.target.closest("pre, .scroll")) return false;
      const index = TABS.findIndex(([name]) => name === current);
      return select(TABS[(index + step + TABS.length) % TABS.length][0]), true;
    },
  };
}

function verdicts(listed) {
  if (!listed.length) return [];
  const why = (one) => (one.reason === "judged" ? one.explanation : [one.reason.replaceAll("_", " "), one.explanation].filter(Boolean).join(": "));
  return [
    h("h2", {}, "Verdicts of the judge"),
    h("table", { class: "ids" }, h("thead", {}, h("tr", {}, ["Tool", "Arguments", "Verdict", "Why"].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, listed.map((one) => h("tr", { class: one.outcome === "flagged" ? "changed" : "" }, h("td", {}, plain(one.name)),
        h("td", {}, h("code", {}, longText(plain(one.arguments), { limit: 300 }))), h("td", {}, plain(one.outcome.replaceAll("_", " "))), h("td", {}, plain(why(one))))))),
  ];
}

function tokenCount(count, note) {
  return count === null || count === undefined ? "–" : `${integer(count)} tokens${note ? ` (${note})` : ""}`;
}

// -- the conversation ------------------------------------------------------------------------------

const ROLES = { system: "System", user: "User", assistant: "Assistant", tool: "Tool" };

function conversation(detail) {
  if (detail.privacy) return [h("p", { class: "notice" }, "Privacy mode is on: roles, kinds, sizes and times are recorded, but no text."), ...shapes(detail)];
  const messages = detail.conversation ?? [];
  if (!messages.length) return [h("p", { class: "notice" }, WHY_MISSING[detail.request.missing] ?? "This request is not a conversation that can be read. It was sent as shown here:"), rawRequest(detail)];
  const box = h("ol", { class: "conversation" });
  const first = Math.max(0, messages.length - 60);
  const draw = (from, to) => messages.slice(from, to).map((message, index) => messageView(message, detail, from + index));
  if (first) {
    const more = h("li", {}, h("button", { type: "button", class: "fold", onclick: () => more.replaceWith(...draw(0, first)) }, `${first} earlier messages`));
    box.append(more);
  }
  box.append(...draw(first, messages.length));
  return box;
}

function shapes(detail) {
  return [h("ol", { class: "conversation" }, (detail.conversation ?? []).map((message) =>
    h("li", { class: `message ${message.role}${message.answer ? " answer" : ""}` }, h("h2", { class: "role" }, ROLES[message.role] ?? plain(message.role), message.answer ? h("span", { class: "tag" }, "response") : null),
      message.parts.map((part) => h("span", { class: "shape" }, h("b", {}, plain(part.kind)), part.size === null ? null : h("span", { class: "faint" }, `${integer(part.size)} characters`))))))];
}

function messageView(message, detail, index) {
  const isAnswer = message.answer === true;
  return h("li", { class: `message ${message.role}${isAnswer ? " answer" : ""}` },
    h("h2", { class: "role" }, ROLES[message.role] ?? plain(message.role), isAnswer ? h("span", { class: "tag" }, detail.summary.running ? "streaming" : "response") : null, h("span", { class: "faint" }, ` ${message.place ?? `messages[${index}]`}`)),
    message.parts.map(partView));
}

function partView(part) {
  switch (part.kind) {
    case "text": return h("div", { class: "text" }, longText(part.text, { limit: 6000, tag: "div" }));
    case "reasoning": return h("details", { class: "reasoning" }, h("summary", {}, `Reasoning (${integer(part.text.length)} characters)`), longText(part.text, { limit: 20_000, tag: "div" }));
    case "call": return h("div", { class: "call" }, h("div", { class: "call-head" }, h("b", {}, plain(part.name)), h("code", {}, plain(part.id))), jsonText(part.arguments));
    case "result": return h("div", { class: `result${part.is_error ? " failed" : ""}` },
      h("div", { class: "call-head" }, part.name ? [h("span", {}, "Result of "), h("b", {}, plain(part.name))] : "Result", h("code", {}, plain(part.call_id ?? "")), part.is_error ? h("span", { class: "tag" }, "error") : null),
      longText(part.text ?? "", { limit: 1500, tag: "pre", attributes: { tabindex: "0" } }));
    default: return h("div", { class: "other" }, h("span", { class: "tag" }, plain(part.kind)), plain(part.text ?? ""));
  }
}

// -- request and details ---------------------------------------------------------------------------

const WHY_MISSING = {
  private: "Privacy mode is on: requests are not recorded.",
  too_large: "The request was too large to record.",
  dropped: "The recording of this exchange was dropped to make room for newer ones.",
  not_read: "The request was refused before its body was read.",
};

function rawRequest({ request }) {
  if (request.client) return jsonView(request.client);
  return request.text === null || request.text === undefined ? null : h("pre", { tabindex: "0" }, longText(request.text));
}

function requestView(detail) {
  const { client, host, changes, missing } = detail.request;
  const reasons = changes?.length
    ? h("ul", { class: "changes" }, changes.map((change) => h("li", {}, repairNote(change))))
    : h("p", { class: "hint" }, notSent(detail) ?? "The request needed no changes.");
  return [
    h("h2", {}, "Changes"), reasons,
    missing ? h("p", { class: "notice" }, WHY_MISSING[missing]) : h("h2", {}, "Request"),
    missing ? null : !client ? [h("p", { class: "notice" }, "The body is not a JSON object."), rawRequest(detail)] : host ? jsonDiff(client, host, { labels: [`from ${plain(detail.summary.client)}`, `to ${plain(detail.summary.provider ?? "the host")}`] }) : jsonView(client),
  ];
}

function details(detail) {
  const one = detail.summary;
  const ids = detail.ids ?? [];
  const row = (name, value) => (value === null || value === undefined || value === "" ? null : h("tr", {}, h("th", { scope: "row" }, name), h("td", { dir: "auto" }, plain(value))));
  const tokens = (name, value) => (value === null || value === undefined ? null : row(name, `${integer(value)} tokens`));
  return [
    attemptsView(detail),
    h("h2", {}, "Cache"),
    h("table", { class: "pairs" }, h("tbody", {},
      tokens("Read from the cache", one.cache_read_tokens), tokens("Written to the cache", one.cache_write_tokens),
      tokens("Of these for one hour", one.cache_write_1h_tokens), tokens("Input in all", one.input_tokens),
      row("Prefix", one.prefix_lost ?? (one.cache_read_tokens ? "kept" : "no cache reads reported")))),
    ...verdicts(detail.verdicts ?? []),
    h("h2", {}, "Tool call ids"),
    ids.length
      ? h("table", { class: "ids" }, h("thead", {}, h("tr", {}, ["Tool", "At the client", "At the host"].map((name) => h("th", { scope: "col" }, name)))),
          h("tbody", {}, ids.map((pair) => h("tr", { class: pair.client === pair.host ? "" : "changed" }, h("td", {}, plain(pair.name)), h("td", {}, h("code", {}, plain(pair.client))), h("td", {}, h("code", {}, plain(pair.host)))))))
      : h("p", { class: "hint" }, "No tool calls."),
    h("h2", {}, "Exchange"),
    h("table", { class: "pairs" }, h("tbody", {},
      row("Request id", one.request_id), row("Session", one.session), row("Path", one.path), row("Client dialect", one.dialect), row("Host dialect", detail.host_dialect),
      row("Requested model", one.requested_model), row("Route", one.route), row("Attempts", one.attempts), row("Worker", one.worker))),
  ];
}

function attemptsView(detail) {
  const attempts = detail.attempts ?? [];
  if (!attempts.length) return null;
  const number = (value) => h("td", { class: "num" }, integer(value));
  return [
    h("h2", {}, attempts.length > 1 ? "Attempts" : "Attempt"),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Attempts" }, h("table", { class: "attempts" },
      h("thead", {}, h("tr", {}, ["Attempt", "Model", "Result", "Started", "Duration", "Input", "Cached", "Output", "Cost"].map((name, index) => h("th", { scope: "col", class: index > 2 ? "num" : null }, name)))),
      h("tbody", {}, attempts.map((one, index) => h("tr", { class: one.error ? "failed" : "", "aria-current": index === detail.attempt && attempts.length > 1 ? "true" : null },
        h("th", { scope: "row" }, `${index + 1} ${plain(one.provider)}`), h("td", {}, plain(one.model)),
        h("td", {}, one.error ? [h("span", { class: "status failed" }, "failed"), " ", h("span", { class: "detail" }, plain(one.error))] : one.duration_ms === null ? "running" : one.continues ? "continued the stream" : detail.attempts[index + 1]?.continues ? "empty, continued" : index === attempts.length - 1 ? h("span", { class: `status ${statusOf(detail.summary)[0]}` }, statusOf(detail.summary)[1]) : "–"),
        h("td", { class: "num" }, duration(one.start_ms)), h("td", { class: "num" }, duration(one.duration_ms)),
        number(one.input_tokens), number(one.cache_read_tokens), h("td", { class: "num" }, integer(one.output_tokens), one.estimated ? h("span", { class: "faint" }, " est.") : null),
        h("td", { class: "num" }, one.cost === null ? (one.input_tokens === null ? "–" : "unknown") : money(one.cost, one.currency))))))),
  ];
}
