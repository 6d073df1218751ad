// Starts opencode's server and asks for an answer that matches a schema: only its HTTP API has this.
// Arguments: the program, the model, the prompt, the schema. Prints the answer as JSON.
import {spawn} from "node:child_process";

const [program, model, prompt, schema] = process.argv.slice(2);
const server = spawn(program, ["serve", "--hostname", "127.0.0.1", "--port", "0"], {stdio: ["ignore", "pipe", "inherit"]});
const base = await new Promise((resolve, reject) => {
  let printed = "";
  server.stdout.on("data", (data) => {
    printed += data;
    const found = printed.match(/http:\/\/127\.0\.0\.1:\d+/);
    if (found) resolve(found[0]);
  });
  server.on("exit", (code) => reject(new Error(`opencode ended with code ${code}: ${printed}`)));
});

async function post(path, body) {
  const headers = {"content-type": "application/json"};
  const response = await fetch(base + path, {method: "POST", headers, body: JSON.stringify(body)});
  if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
  return await response.json();
}

const session = await post("/session", {});
const answer = await post(`/session/${session.id}/message`, {
  model: {providerID: "tested", modelID: model},
  parts: [{type: "text", text: prompt}],
  format: {type: "json_schema", schema: JSON.parse(schema)},
});
if (answer.info.error) throw new Error(JSON.stringify(answer.info.error));
console.log(JSON.stringify(answer.info.structured ?? answer.info));
server.kill();
process.exit(0);
