// The exchanges known to this page: newest first, bounded, with filters.

const MOST = 5000;
export const SLOW_MS = 10_000;

export class ExchangeList {
  constructor() {
    this.byId = new Map();
    this.order = [];
    this.listeners = new Set();
    this.paused = false;
    this.waiting = new Map();
    this.revision = 0;
  }

  /** Take new and changed exchanges. While the list is paused they wait. */
  merge(batch) {
    if (this.paused) {
      for (const one of batch) this.waiting.set(one.id, one);
      for (const id of this.waiting.keys()) {
        if (this.waiting.size <= MOST) break;
        this.waiting.delete(id);
      }
    } else this.#take(batch);
    this.#notify();
  }

  #take(batch) {
    let added = false;
    for (const one of batch) {
      one.revision = ++this.revision;
      const known = this.byId.get(one.id);
      if (known) Object.assign(known, one);
      else {
        this.byId.set(one.id, one);
        this.order.push(one);
        added = true;
      }
    }
    if (added) {
      this.order.sort((a, b) => b.time - a.time || (a.id < b.id ? 1 : -1));
      for (const old of this.order.splice(MOST)) this.byId.delete(old.id);
    }
  }

  pause(paused) {
    this.paused = paused;
    if (!paused) {
      this.#take([...this.waiting.values()]);
      this.waiting.clear();
    }
    this.#notify();
  }

  forgetRunning() {
    this.order = this.order.filter((one) => !one.running);
    for (const one of [...this.byId.values()]) if (one.running) this.byId.delete(one.id);
    for (const one of [...this.waiting.values()]) if (one.running) this.waiting.delete(one.id);
    this.#notify();
  }

  clear() {
    this.byId.clear();
    this.order = [];
    this.waiting.clear();
    this.#notify();
  }

  subscribe(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  #notify() {
    for (const listener of this.listeners) listener();
  }

  values(field) {
    const seen = new Set();
    for (const one of this.order) if (one[field]) seen.add(one[field]);
    return [...seen].sort();
  }

  matching(filter) {
    const text = filter.text.trim().toLowerCase();
    return this.order.filter(
      (one) =>
        (!filter.model || one.model === filter.model) &&
        (!filter.provider || one.provider === filter.provider) &&
        (!filter.key || one.key === filter.key) &&
        (!filter.repaired || hasEntries(one.repairs)) &&
        (!filter.failed || isFailed(one)) &&
        (!filter.slow || isSlow(one)) &&
        (!text || searchText(one).includes(text)),
    );
  }
}

const hasEntries = (object) => object && Object.keys(object).length > 0;
/** A client that hangs up is no failure of anybody: people press Escape. */
export const isFailed = (one) => !one.running && one.outcome !== "client_gone" && (one.outcome !== "ok" || one.status >= 400);

/** What the list and the exchange show as its status: [kind, words]. */
export function statusOf(one) {
  if (one.running) return ["running", "streaming"];
  if (one.outcome === "client_gone") return ["gone", "client left"];
  if (!isFailed(one)) return ["ok", String(one.status)];
  return ["failed", one.status >= 400 ? String(one.status) : `${one.status || ""} ${one.outcome === "broken" ? "broken" : "failed"}`.trim()];
}
export const isSlow = (one) => (one.duration_ms ?? Date.now() - one.time) >= SLOW_MS || (one.first_token_ms ?? 0) >= SLOW_MS;

function searchText(one) {
  const rules = Object.keys(one.repairs ?? {}).join(" ");
  return `${one.request_id} ${one.client} ${one.key ?? ""} ${one.session ?? ""} ${one.requested_model} ${one.model ?? ""} ${one.provider ?? ""} ${one.status} ${one.error ?? ""} ${one.route ?? ""} ${one.preview ?? ""} ${rules}`.toLowerCase();
}
