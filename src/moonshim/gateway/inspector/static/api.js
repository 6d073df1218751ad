// Requests to the gateway that served this page.

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export async function get(path, { signal } = {}) {
  return read(await fetch(`/inspector/api/${path}`, { signal, headers: { accept: "application/json" } }));
}

export async function post(path, body) {
  const headers = { "content-type": "application/json", accept: "application/json" };
  return read(await fetch(`/inspector/${path}`, { method: "POST", headers, body: JSON.stringify(body) }));
}

async function read(response) {
  const text = await response.text();
  let body = null;
  try {
    body = text ? JSON.parse(text) : null;
  } catch {
    // An error page of a proxy: its status says enough.
  }
  if (!response.ok) throw new ApiError(response.status, body?.error?.message ?? `The gateway answered ${response.status}.`);
  return body;
}

/** Listen to the exchanges, live. `EventSource` reconnects by itself; the gateway then sends what was missed. */
export function listen({ onExchanges, onState }) {
  const source = new EventSource("/inspector/api/events");
  source.addEventListener("exchanges", (event) => onExchanges(JSON.parse(event.data)));
  source.addEventListener("open", () => onState("live"));
  source.addEventListener("error", () => onState(source.readyState === EventSource.CLOSED ? "lost" : "reconnecting"));
  return source;
}
