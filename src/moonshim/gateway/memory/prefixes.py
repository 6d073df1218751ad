"""A response and the earlier requests of its session -> why the host could not use its prompt cache.

Each conversation of a session is remembered by its last request: digests, token counts, a time. The digests are keyed
with the gateway's secret and the tenant, so what is stored says nothing about the text, even to somebody who tries
texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Final

import msgspec

from moonshim.engine.exchange import Exchange
from moonshim.engine.request.prefix import compare_prompts, digest_prompt
from moonshim.engine.request.prefix_loss import MIN_TOKENS, SentPrompt, explain_loss, find_previous, requested_ttl
from moonshim.engine.wire.json_codec import encode
from moonshim.errors import MoonshimError, Refused
from moonshim.gateway.inbound.call import ClientCall
from moonshim.gateway.inbound.large_json import encode_large_json
from moonshim.store import Store, key_space

__all__ = ["PrefixMemory"]

MAX_CONVERSATIONS: Final = 8
"""Conversations of one session that are remembered: that of the user, and those of subagents."""
_FAILED: Final = "prefixes"
_DECODER: Final = msgspec.msgpack.Decoder(SentPrompt)
_ENCODER: Final = msgspec.msgpack.Encoder()


class PrefixMemory:
    """Remembers the prompts of conversations, and compares. All workers share them through the store.

    Runs when the client has its whole response. A failing store costs the explanation, never the request.
    """

    def __init__(self, store: Store, ttl: float, secret: bytes) -> None:
        self._store, self._ttl = store, ttl
        self._secret = blake2b(secret, digest_size=32, person=b"moonshim prefix").digest()

    async def check(self, call: ClientCall, exchange: Exchange, *, provider: str, key: str) -> None:
        """Remember the prompt of a complete response, and note in its record why a prefix was lost. Never raises."""
        usage, record = exchange.usage, call.record
        if usage is None or usage.cached_tokens is None or (usage.input_tokens or 0) < MIN_TOKENS:
            return  # the host tells nothing about its cache, or has nothing to cache
        body, tenant = exchange.prepared.body, call.tenant.encode("utf-8", "surrogatepass")
        secret = blake2b(tenant, key=self._secret, digest_size=32).digest()
        try:
            prompt = await call.run_work(
                digest_prompt,
                body,
                secret,
                provider=provider,
                key=key,
                encode=encode_large_json if call.is_large else encode,
            )
        except (Refused, RecursionError):  # no thread was free
            return
        session = blake2b((record.session or "").encode(), key=secret, digest_size=16).hexdigest()
        name = f"prefix:{key_space(call.tenant)}:{session}"
        current = SentPrompt(
            prompt=prompt,
            at=int(record.started),
            input_tokens=usage.input_tokens or 0,
            ttl=requested_ttl(body),
            was_cached=bool(usage.cached_tokens or usage.cache_write_tokens),
        )
        try:
            sent = _decode(await self._store.entries(name))
            field = find_previous(prompt, sent)
            if field is not None:
                previous = sent[field]
                record.prefix_lost = explain_loss(
                    previous, current, usage.cached_tokens, body, exchange.prepared.profile
                )
                current = msgspec.structs.replace(current, was_cached=current.was_cached or previous.was_cached)
                change = compare_prompts(previous.prompt, prompt)
                if change is not None and change.is_branch:
                    field = None  # the other branch may go on too
            await self._store.put_entry(name, field or _free_field(sent), _ENCODER.encode(current), self._ttl)
        except MoonshimError:
            record.store_failures.append(_FAILED)


def _free_field(sent: Mapping[str, SentPrompt]) -> str:
    """Where to remember one more conversation: in a free place, or in that of the oldest."""
    free = (str(number) for number in range(MAX_CONVERSATIONS) if str(number) not in sent)
    return next(free, None) or min(sent, key=lambda name: sent[name].at)


def _decode(entries: Mapping[str, bytes]) -> dict[str, SentPrompt]:
    sent: dict[str, SentPrompt] = {}
    for field, value in entries.items():
        try:
            sent[field] = _DECODER.decode(value)
        except msgspec.MsgspecError:
            continue  # of another version
    return sent
