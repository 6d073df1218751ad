// The shell of the page: sign-in, navigation, theme, shortcuts. Each view is a module with `show(main, context)`.

import { ApiError, get, listen, post } from "./api.js";
import { h, replace } from "./dom.js";
import { ExchangeList } from "./list.js";
import * as cost from "./cost.js";
import * as exchange from "./exchange.js";
import * as live from "./live.js";
import * as overview from "./overview.js";
import { setRules } from "./repairs.js";
import * as rules from "./rules.js";
import * as tryIt from "./try.js";

const VIEWS = { live, exchange, overview, cost, try: tryIt, rules };
const main = document.getElementById("main");
const context = { state: null, list: new ExchangeList(), go, fail };
let view = null;
let source = null;
let visits = 0;

// -- navigation ----------------------------------------------------------------------------------

function go(hash) {
  location.hash = hash;
}

async function route() {
  const [name, ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  const module = VIEWS[name] ?? live;
  const visit = ++visits;
  view?.leave?.();
  view = null;
  // A place of its own: a view that loads slowly must not draw over the one that was opened after it.
  const place = h("div", { class: "view" });
  replace(main, place);
  for (const link of document.querySelectorAll("#views a")) {
    const current = link.hash === `#/${name in VIEWS ? name : "live"}` || (name === "exchange" && link.hash === "#/live");
    if (current) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  try {
    const shown = (await module.show(place, context, rest.map(decodeURIComponent))) ?? null;
    if (visit === visits) view = shown;
    else shown?.leave?.();
  } catch (error) {
    if (visit === visits) fail(error);
  }
}

/** Show what went wrong, in the place of the view; without a session, ask for the key. */
function fail(error) {
  if (error instanceof ApiError && error.status === 401) return signIn(context.state ? "Your session is over. Sign in again." : "");
  const message = error instanceof ApiError ? error.message : "The gateway cannot be reached.";
  replace(main, h("div", { class: "empty", role: "alert" }, h("h1", {}, "Nothing to show"), h("p", {}, message), h("p", {}, h("a", { href: "#/live" }, "All exchanges"))));
}

// -- sign-in -------------------------------------------------------------------------------------

function signIn(problem = "") {
  source?.close();
  source = null;
  visits++;
  view?.leave?.();
  view = null;
  document.body.classList.add("signed-out");
  document.getElementById("signout").hidden = true;
  const input = h("input", { id: "key", type: "password", autocomplete: "off", required: true, spellcheck: "false" });
  const note = h("p", { class: "problem", role: "alert" }, problem);
  const form = h(
    "form",
    { class: "sign-in", onsubmit: submit },
    h("h1", {}, "Inspector"),
    h("p", {}, "This gateway has keys. Enter one with the right ", h("code", {}, "inspect"), "."),
    h("label", { for: "key" }, "Gateway key"),
    input,
    note,
    h("button", { class: "primary" }, "Sign in"),
    h("p", { class: "hint" }, "Create one with ", h("code", {}, "moonshim keys new NAME --right inspect"), "."),
  );
  async function submit(event) {
    event.preventDefault();
    try {
      await post("login", { key: input.value });
      input.value = "";
      await start();
    } catch (error) {
      note.textContent = error.message;
      input.select();
    }
  }
  replace(main, form);
  input.focus();
}

document.getElementById("signout").addEventListener("click", async () => {
  await post("logout", {}).catch(() => {}); // the session may be over already
  context.list.clear();
  context.state = null;
  signIn();
});

// -- theme and shortcuts -------------------------------------------------------------------------

function applyTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

function switchTheme() {
  const dark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  const theme = dark ? "light" : "dark";
  applyTheme(theme);
  try {
    localStorage.setItem("moonshim-theme", theme);
  } catch {
    // Storage is off: the choice lasts as long as the page.
  }
}

try {
  applyTheme(localStorage.getItem("moonshim-theme"));
} catch {
  // As above.
}

const shortcuts = document.getElementById("shortcuts");
document.getElementById("theme").addEventListener("click", switchTheme);
document.getElementById("help").addEventListener("click", () => shortcuts.showModal());
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || shortcuts.open) return;
  const typing = event.target.closest("input, textarea, select");
  if (typing && event.key !== "Escape") return;
  const tabs = ["#/live", "#/overview", "#/cost", "#/try"];
  if (/^[1-4]$/.test(event.key)) go(tabs[event.key - 1]);
  else if (event.key === "?") shortcuts.showModal();
  else if (event.key === "t") switchTheme();
  else if (!view?.onKey?.(event, typing)) return;
  event.preventDefault();
});

// -- start ---------------------------------------------------------------------------------------

const connection = document.getElementById("connection");
const RETRY_MS = 3000;
const WORDS = { live: "Live", reconnecting: "Reconnecting…", lost: "Disconnected" };

async function start() {
  try {
    context.state = await get("state");
    setRules(await (await fetch("/inspector/static/rules.json")).json());
  } catch (error) {
    if (!(error instanceof ApiError)) setTimeout(start, RETRY_MS);
    return fail(error);
  }
  document.body.classList.remove("signed-out");
  document.getElementById("signout").hidden = !context.state.needs_key;
  connect();
  await route();
}

function connect() {
  source?.close();
  const own = (source = listen({
    onExchanges: (batch) => context.list.merge(batch),
    onState: (word) => {
      if (own !== source) return;
      connection.textContent = WORDS[word];
      connection.dataset.state = word;
      // What ran at a gateway that was restarted will never end; the others are sent again.
      if (word === "live") return context.list.forgetRunning();
      // The session may be over: EventSource does not tell the status. And it gives up on an error, which may pass.
      get("state").catch((error) => error.status === 401 && own === source && fail(error));
      if (word === "lost") setTimeout(() => own === source && connect(), RETRY_MS);
    },
  }));
}

addEventListener("hashchange", route);
start();
