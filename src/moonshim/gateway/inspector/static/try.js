// Paste a broken stream, or drop a log of the gateway, and see it mended.

import { post } from "./api.js";
import { h, replace } from "./dom.js";
import { marks } from "./repairs.js";
import { streamView } from "./stream.js";

const EXAMPLE = [
  { reasoning_content: "I should look at the file." },
  { content: "Let me read it. <|tool_calls_section_begin|><|tool_" },
  { content: "call_begin|>functions.read_file:0<|tool_call_argument_begin|>{\"path\": " },
  { content: "\"main.py\"}<|tool_call_end|><|tool_calls_section_end|>" },
].map((delta) => `data: ${JSON.stringify({ id: "chatcmpl-1", object: "chat.completion.chunk", model: "kimi-k2.6", choices: [{ index: 0, delta, finish_reason: null }] })}\n\n`).join("")
  + 'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","model":"kimi-k2.6","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n';
const MOST = 16 * 1024 * 1024;
let kept = "";

export function show(main) {
  const input = h("textarea", { id: "stream", spellcheck: "false", rows: "12", placeholder: "data: {\"choices\": …}" });
  input.value = kept;
  const result = h("div", { "aria-live": "polite" });
  const file = h("input", { type: "file", id: "file", class: "hidden", onchange: () => file.files[0] && load(file.files[0]) });
  const drop = h("div", { class: "drop",
    ondragover: (event) => { event.preventDefault(); drop.classList.add("over"); },
    ondragleave: () => drop.classList.remove("over"),
    ondrop: (event) => { event.preventDefault(); drop.classList.remove("over"); if (event.dataTransfer.files[0]) load(event.dataTransfer.files[0]); },
  }, input);
  replace(main,
    h("h1", {}, "Try it"),
    h("p", {}, "Paste the body of a response (a stream or JSON, Chat or Messages), or drop a log file of ", h("code", {}, "moonshim serve --log-dir"), " here. It stays on this gateway."),
    h("label", { for: "stream" }, "Response of a host"), drop,
    h("div", { class: "tools" },
      h("button", { type: "button", class: "primary", onclick: mend }, "Mend"),
      h("button", { type: "button", onclick: () => { input.value = EXAMPLE; mend(); } }, "Load an example"),
      h("label", { class: "button", for: "file" }, "Open a file"), file),
    result);

  async function load(chosen) {
    if (chosen.size > MOST) return replace(result, h("p", { class: "problem", role: "alert" }, "This file is larger than 16 MiB. Use `moonshim mend` on the command line."));
    input.value = await chosen.text();
    await mend();
  }

  async function mend() {
    kept = input.value;
    if (!kept.trim()) return replace(result, h("p", { class: "problem", role: "alert" }, "Paste a response first."));
    try {
      replace(result, h("p", { class: "hint" }, "Mending…"));
      const detail = await post("api/mend", { text: kept });
      detail.summary.id = Symbol("pasted");
      const counts = Object.entries(detail.summary.repairs ?? {});
      replace(result, h("div", { class: "tools" }, h("h2", {}, counts.length ? "Mended" : "Nothing to mend"), marks(detail.summary.repairs)), streamView(detail));
    } catch (error) {
      replace(result, h("p", { class: "problem", role: "alert" }, error.message));
    }
  }
  return { onKey: () => false };
}
