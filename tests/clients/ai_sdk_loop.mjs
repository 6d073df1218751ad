// A prompt -> the answer on stdout, with one tool, by the AI SDK: `node ai_sdk_loop.mjs PROVIDER URL MODEL PROMPT`.

import { execFileSync } from "node:child_process";
import { readFile } from "node:fs/promises";

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { jsonSchema, stepCountIs, streamText, tool } from "ai";

const [provider, baseURL, name, prompt] = process.argv.slice(2);
const apiKey = "none";

const models = {
  anthropic: () => createAnthropic({ baseURL, apiKey })(name),
  "openai-chat": () => createOpenAI({ baseURL, apiKey }).chat(name),
  "openai-responses": () => createOpenAI({ baseURL, apiKey }).responses(name),
  "openai-compatible": () => createOpenAICompatible({ name: "tested", baseURL, apiKey })(name),
};

const text = (description) => ({ type: "string", description });
const takes = (name, description) =>
  jsonSchema({ type: "object", properties: { [name]: text(description) }, required: [name], additionalProperties: false });

const bash = tool({
  description: "Run a shell command and return what it printed.",
  inputSchema: takes("command", "The command to run"),
  execute: async ({ command }) => execFileSync("/bin/sh", ["-c", command], { encoding: "utf8" }),
});
const read_file = tool({
  description: "Return what is in a file.",
  inputSchema: takes("path", "The file to read"),
  execute: async ({ path }) => readFile(path, "utf8"),
});

let failed;
const result = streamText({
  model: models[provider](),
  prompt,
  tools: { bash, read_file },
  stopWhen: stepCountIs(6),
  maxRetries: 1,
  onError: ({ error }) => {
    failed = error;
  },
});
for await (const _ of result.textStream) {
  // The last text is printed below; reading it as it comes is what drives the loop.
}
if (failed) {
  console.error(failed);
  process.exit(1);
}
console.log(await result.text);
