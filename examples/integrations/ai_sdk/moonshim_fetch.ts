// A `fetch` that sends the requests of any AI SDK provider to a Moonshim gateway, whatever its base URL.

const ASKED = /\/(?:chat\/completions|messages|responses|models)(?:\/[^?]*)?$/;

/** For `createOpenAICompatible({ fetch: throughMoonshim() })`, `createOpenAI`, `createAnthropic` and others. */
export function throughMoonshim(gateway = process.env.MOONSHIM_URL ?? "http://127.0.0.1:8484"): typeof fetch {
  return (input, init) => {
    const asked = new URL(input instanceof Request ? input.url : input);
    const path = ASKED.exec(asked.pathname)?.[0];
    if (path === undefined) return fetch(input, init); // other requests, such as files and images, go to the original address
    const url = new URL(`/v1${path}${asked.search}`, gateway);
    return fetch(input instanceof Request ? new Request(url, input) : url, init);
  };
}
