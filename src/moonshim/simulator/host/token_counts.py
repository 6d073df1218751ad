"""A request and an intended response -> their number of tokens, and how many of the prompt's a cache would know.

Hosts cache prompts, and charge less for a prompt that starts like an earlier one. A client whose history stays
unchanged pays for what is new, and one whose ids or system prompt change on every request pays for everything: `cached`
shows which of the two it is.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator
from hashlib import blake2b
from typing import Final

from moonshim.engine.tokens import MEDIA_TOKENS, estimate_text
from moonshim.simulator.host.markers import k2_section, k3_tools
from moonshim.simulator.render import render_prompt
from moonshim.simulator.request import SimCall, SimRequest
from moonshim.simulator.response import IntendedResponse, TokenTotals

__all__ = ["BLOCK", "Counter", "tokens_of"]

BLOCK: Final = 64
"""Tokens are cached in whole blocks. Moonshot's block size is not known; engines use 16 to 128."""
_CHARACTERS: Final = 4 * BLOCK
"""About as many characters as a block has: there is no tokenizer here."""
_CAPACITY: Final = 1 << 17
_MARKER: Final = re.compile(r"<\|[a-z0-9_]+\|>|</?think>")
_MEDIA: Final = ("<|media_pad|>", "<|kimi_k25_video_placeholder|>")


def tokens_of(text: str) -> int:
    """Approximate number of tokens of a prompt, or of a response before any parser: a marker is one.

    >>> tokens_of("<|im_user|>user<|im_middle|>Hi<|im_end|>")
    7
    """
    plain, markers = _MARKER.subn("", text)
    return estimate_text(plain) + markers + MEDIA_TOKENS * sum(map(text.count, _MEDIA))


class Counter:
    """Counts tokens, and remembers how the last prompts begin.

    Only a digest of each prefix of a prompt is stored, at most `capacity` of them over all prompts (128 Ki, which stand
    for 32 Mi characters). The work for a prompt grows with its own length, not with the number of stored digests.
    """

    def __init__(self, *, capacity: int = _CAPACITY) -> None:
        self._most = capacity
        self._known: OrderedDict[bytes, None] = OrderedDict()

    @property
    def stored(self) -> int:
        """Number of digests that are stored now."""
        return len(self._known)

    def tally(self, request: SimRequest, intended: IntendedResponse, *, renamed: bool = False) -> TokenTotals:
        """`renamed`: whether the host renames the ids of the history, as for `render_prompt`."""
        prompt = render_prompt(request, renamed=renamed)
        total, reasoning = tokens_of(prompt), tokens_of(intended.reasoning)
        return TokenTotals(
            prompt=total,
            cached=min(total, self._known_tokens(prompt, request.model)) // BLOCK * BLOCK,
            completion=reasoning + tokens_of(intended.text) + tokens_of(_calls(request, intended)),
            reasoning=reasoning,
        )

    def _known_tokens(self, prompt: str, model: str) -> int:
        """How many tokens of the prompt an earlier one for the same model also started with; stores the prompt
        as well."""
        beginnings = list(_beginnings(prompt, model))[: self._most]
        known = next((at for at, key in enumerate(beginnings) if key not in self._known), len(beginnings))
        # The longest first: when the oldest are dropped, what is left of a prompt is still a prefix.
        for key in reversed(beginnings):
            self._known[key] = None
            self._known.move_to_end(key)
        while len(self._known) > self._most:
            self._known.popitem(last=False)
        return tokens_of(prompt[: known * _CHARACTERS])


def _beginnings(prompt: str, model: str) -> Iterator[bytes]:
    """A digest of the first block, of the first two, of the first three, …"""
    digest = blake2b(model.encode("utf-8", "surrogatepass") + b"\0", digest_size=12)
    for start in range(0, len(prompt) - _CHARACTERS + 1, _CHARACTERS):
        digest.update(prompt[start : start + _CHARACTERS].encode("utf-8", "surrogatepass"))
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
