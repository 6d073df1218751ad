// An agent with tools, using the AI SDK: `node agent.ts "How many files are here?"` (Node 22.18 or later).
//
//     moonshim serve                                  the gateway: http://127.0.0.1:8484, or MOONSHIM_URL
//     npm install && node agent.ts "…"                KIMI_MODEL: a model it serves; KIMI_API_KEY: a gateway key

import { execFileSync } from "node:child_process";
import { readFile } from "node:fs/promises";

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { jsonSchema, stepCountIs, streamText, tool } from "ai";

import { throughMoonshim } from "./moonshim_fetch.ts";

const kimi = createOpenAICompatible({
  name: "kimi",
  baseURL: "https://api.moonshot.ai/v1",
  apiKey: process.env.KIMI_API_KEY ?? "none",
  fetch: throughMoonshim(),
});

function takes<Name extends string>(name: Name, description: string) {
  const properties = { [name]: { type: "string" as const, description } };
  return jsonSchema<Record<Name, string>>({ type: "object", properties, required: [name], additionalProperties: false });
}

const tools = {
  bash: tool({
    description: "Run a shell command and return its output.",
    inputSchema: takes("command", "The command to run"),
    execute: async ({ command }) => execFileSync("/bin/sh", ["-c", command], { encoding: "utf8" }),
  }),
  read_file: tool({
    description: "Return the content of a file.",
    inputSchema: takes("path", "The file to read"),
    execute: async ({ path }) => readFile(path, "utf8"),
  }),
};

const answer = streamText({
  model: kimi(process.env.KIMI_MODEL ?? "kimi-k3"),
  prompt: process.argv[2] ?? "How many files are here?",
  tools,
  stopWhen: stepCountIs(50),
  onError: ({ error }) => {
    console.error(error);
    process.exitCode = 1;
  },
});
for await (const text of answer.textStream) process.stdout.write(text);
process.stdout.write("\n");
