"""A request and an intended response -> their number of tokens, and how many of the prompt's are read from a cache.

Hosts cache prompts, and charge less for a prompt that starts like an earlier one. A client whose history stays
unchanged pays for what is new, and one whose ids or system prompt change on every request pays for everything: `cached`
shows which of the two it is.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator
from hashlib import blake2b
from math import inf
from typing import Any, Final

from moonshim.engine.tokens import estimate_text
from moonshim.simulator.host.markers import k2_section, k3_tools
from moonshim.simulator.host.tokenizer import Tokenizer, media_tokens
from moonshim.simulator.render import render_prompt
from moonshim.simulator.request import Json, SimCall, SimRequest
from moonshim.simulator.response import IntendedResponse, TokenTotals

__all__ = ["BLOCK", "LIFETIMES", "MEASURED_BLOCK", "Counter", "tokens_of"]

BLOCK: Final = 64
"""Tokens are cached in whole blocks. Moonshot's block size is not known; engines use 16 to 128."""
MEASURED_BLOCK: Final = 256
"""What pi-provider-kimi-code measured for Kimi Code (its docs/caching.md)."""
LIFETIMES: Final = {"5m": 300.0, "1h": 3600.0}
"""In seconds, from the last request that read or wrote a block. The first is the default."""
_CHARACTERS: Final = 4
"""About as many characters as a token has: what is known of a prompt is compared before it is counted."""
_ANSWER_START: Final = 3
"""The tokens of `<|open|>think<|sep|>`, with which the answer of K3 begins (Kimi-Vendor-Verifier,
testdata/prompt_token_cases)."""
_CAPACITY: Final = 1 << 17
_MARKER: Final = re.compile(r"<\|[a-z0-9_]+\|>|</?think>")


def tokens_of(text: str) -> int:
    """Approximate number of tokens of a prompt, or of a response before any parser: a marker is one.

    >>> tokens_of("<|im_user|>user<|im_middle|>Hi<|im_end|>")
    7
    """
    plain, markers = _MARKER.subn("", text)
    return estimate_text(plain) + markers + media_tokens(text)


class Counter:
    """Counts tokens, and remembers how the last prompts begin.

    With a `tokenizer`, counts are exact for the models that it knows; otherwise they are estimates.
    Only a digest of each prefix of a prompt is stored, at most `capacity` of them over all prompts (128 Ki, which stand
    for 32 Mi characters). The work for a prompt grows with its own length, not with the number of stored digests.
    Without a `clock`, nothing expires.
    """

    def __init__(
        self,
        *,
        capacity: int = _CAPACITY,
        block: int = BLOCK,
        clock: Callable[[], float] | None = None,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        self._most, self._block, self._clock, self._tokenizer = capacity, block, clock, tokenizer
        self._known: OrderedDict[bytes, tuple[float, float]] = OrderedDict()
        """Lifetime and end of each prefix."""

    @property
    def stored(self) -> int:
        """Number of digests that are stored now."""
        return len(self._known)

    def tally(
        self,
        request: SimRequest,
        intended: IntendedResponse,
        *,
        renamed: bool = False,
        classes: tuple[str, ...] = (),
    ) -> TokenTotals:
        """`renamed`: whether the host renames the ids of the history, as for `render_prompt`. `classes`: the lifetimes
        that the request can choose from, if the host has any; it then reports what is written."""
        prompt, reports = render_prompt(request, renamed=renamed), bool(classes and self._clock)
        total = self.count_prompt(request, renamed=renamed)
        reasoning = self._count(intended.reasoning, request)
        chosen = _lifetime(request) if reports else "5m"
        known = self._known_part(prompt, request.model, LIFETIMES[chosen])
        cached = min(total, self._count(known, request)) // self._block * self._block
        written = max(0, total // self._block * self._block - cached) if reports else None
        return TokenTotals(
            prompt=total,
            cached=cached,
            completion=reasoning
            + self._count(intended.text, request)
            + self._count(_calls(request, intended), request),
            reasoning=reasoning,
            written=written,
            hourly=written or 0 if chosen == "1h" else 0,
        )

    def count_prompt(self, request: SimRequest, *, renamed: bool = False) -> int:
        """The tokens of the prompt alone; nothing is remembered."""
        if self._tokenizer is None or not self._tokenizer.knows(request.generation):
            total = tokens_of(render_prompt(request, renamed=renamed))
        else:
            total = self._tokenizer.count_prompt(request, renamed=renamed)
        # Moonshot's own API, which renames ids, counts what comes before the answer of K3 begins.
        is_begun = bool(request.turns) and request.turns[-1].partial
        return total - _ANSWER_START if renamed and request.family == "k3" and not is_begun else total

    def _count(self, text: str, request: SimRequest) -> int:
        if self._tokenizer is None or not self._tokenizer.knows(request.generation):
            return tokens_of(text)
        return self._tokenizer.count(text, request.generation)

    def _known_part(self, prompt: str, model: str, lifetime: float) -> str:
        """The part of the prompt that an earlier one for the same model also started with; stores the prompt
        as well. A block that is read lives on for as long as it was written for."""
        now = -inf if self._clock is None else self._clock()
        length = self._block * _CHARACTERS
        beginnings = list(_beginnings(prompt, model, length))[: self._most]
        known = next((at for at, key in enumerate(beginnings) if not self._lives(key, now)), len(beginnings))
        # The longest first: when the oldest are dropped, what is left of a prompt is still a prefix.
        for at, key in reversed(list(enumerate(beginnings))):
            for_long = self._known[key][0] if at < known else lifetime
            self._known[key] = for_long, now + for_long
            self._known.move_to_end(key)
        while len(self._known) > self._most:
            self._known.popitem(last=False)
        return prompt[: known * length]

    def _lives(self, key: bytes, now: float) -> bool:
        return key in self._known and self._known[key][1] >= now


def _lifetime(request: SimRequest) -> str:
    """What the request asks for: in Chat's own field, or in any `cache_control` of Messages."""
    if request.wire == "openai_chat":
        options = request.body.get("prompt_cache_options")
        asked = [options.get("ttl")] if isinstance(options, dict) else []
    else:
        asked = list(_marked(request.body))
    return "1h" if "1h" in asked else "5m"


def _marked(body: Json) -> Iterator[Any]:
    messages = body.get("messages")
    contents = [one.get("content") for one in messages if isinstance(one, dict)] if isinstance(messages, list) else []
    for holders in ([body], body.get("system"), body.get("tools"), *contents):
        for holder in holders if isinstance(holders, list) else ():
            control = holder.get("cache_control") if isinstance(holder, dict) else None
            if isinstance(control, dict):
                yield control.get("ttl")


def _beginnings(prompt: str, model: str, length: int) -> Iterator[bytes]:
    """A digest of the first block, of the first two, of the first three, …"""
    digest = blake2b(model.encode("utf-8", "surrogatepass") + b"\0", digest_size=12)
    for start in range(0, len(prompt) - length + 1, length):
        digest.update(prompt[start : start + length].encode("utf-8", "surrogatepass"))
        yield digest.digest()


def _calls(request: SimRequest, intended: IntendedResponse) -> str:
    """The calls as the model writes them."""
    if not intended.calls:
        return ""
    before = len(request.history)
    calls = [
        SimCall(f"functions.{one.name}:{at}", one.name, one.arguments) for at, one in enumerate(intended.calls, before)
    ]
    return k3_tools(calls) if request.family == "k3" else k2_section(calls)
