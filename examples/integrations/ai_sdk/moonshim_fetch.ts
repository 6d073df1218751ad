// The requests of any provider of the AI SDK -> a Moonshim gateway, whatever address the provider has: a `fetch`.

const ASKED = /\/(?:chat\/completions|messages|responses|models)(?:\/[^?]*)?$/;

/** For `createOpenAICompatible({ fetch: throughMoonshim() })`, `createOpenAI`, `createAnthropic` and all the others. */
export function throughMoonshim(gateway = process.env.MOONSHIM_URL ?? "http://127.0.0.1:8484"): typeof fetch {
  return (input, init) => {
    const asked = new URL(input instanceof Request ? input.url : input);
    const path = ASKED.exec(asked.pathname)?.[0];
    if (path === undefined) return fetch(input, init); // files, pictures: nothing that a gateway has to see
    const url = new URL(`/v1${path}${asked.search}`, gateway);
    return fetch(input instanceof Request ? new Request(url, input) : url, init);
  };
}
