"""A request, what its host read from the prompt cache, and the request before it -> why the cached prefix was lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from moonshim.engine.hosts.profile import HostProfile
from moonshim.engine.request.prefix import (
    MAX_PIECES,
    PromptDigest,
    added_messages,
    common_length,
    compare_prompts,
    continues,
    is_same_conversation,
    is_user_message,
)

__all__ = ["MIN_TOKENS", "SentPrompt", "describe_pause", "explain_loss", "find_previous", "requested_ttl"]

MIN_TOKENS: Final = 1024
"""Hosts do not cache shorter prompts."""
_CHUNK_TOKENS: Final = 256
"""Hosts cache whole chunks, and the end of a prompt is not the beginning of the next one: this much, twice, or an
eighth of the prompt may be missing."""
_USUAL_TTL: Final = 300
_TTLS: Final = {"5m": 300, "30m": 1800, "1h": 3600}


class SentPrompt(Struct, frozen=True, array_like=True):
    """A request that was answered, as it is remembered for the next one of its conversation. No text, no names."""

    prompt: PromptDigest
    at: int
    """When it was sent, in seconds since 1970."""
    input_tokens: int
    ttl: int | None = None
    """How long its host should keep the prefix, in seconds; None: the request does not say."""
    was_cached: bool = False
    """The host has read this conversation from its cache, or written it there, at least once."""


def find_previous(prompt: PromptDigest, sent: Mapping[str, SentPrompt]) -> str | None:
    """The name of the request that this one continues, among those of the same session; None if it continues none.

    One that it continues without a change, or else one with much in common: the longest history counts, and of equal
    ones the last.
    """
    continued = [name for name, one in sent.items() if continues(one.prompt, prompt)]
    same = continued or [name for name, one in sent.items() if is_same_conversation(one.prompt, prompt)]
    return max(same, key=lambda name: (common_length(sent[name].prompt, prompt), sent[name].at), default=None)


def explain_loss(
    previous: SentPrompt, current: SentPrompt, cached_tokens: int, body: Mapping[str, Any], profile: HostProfile
) -> str | None:
    """Why the host did not read the previous request from its cache, in one sentence; None if it did, or if it is not
    expected to.

    A conversation that was taken back to an earlier message is not a loss. A host that was never seen to cache this
    conversation is not blamed for doing nothing.
    """
    expected = min(previous.input_tokens, current.input_tokens)
    allowed = max(2 * _CHUNK_TOKENS, expected // 8)
    if expected < MIN_TOKENS or expected - cached_tokens <= allowed:
        return None
    change = compare_prompts(previous.prompt, current.prompt)
    if change is not None and change.is_branch:
        return None
    reasons = [] if change is None else [change.describe(body)]
    pause = describe_pause(current.at - previous.at, previous.ttl)
    if pause is not None and previous.was_cached and (change is None or not cached_tokens):
        reasons.append(pause)
    if reasons:
        return "; ".join(reasons)
    if not previous.was_cached or 2 * cached_tokens > expected:
        return None
    if cached_tokens and _may_drop_reasoning(previous, current, body, profile):
        return None
    messages = body.get("messages")
    if isinstance(messages, list) and len(messages) > MAX_PIECES:
        return f"no change in the first {MAX_PIECES:,} messages; later ones are not compared"
    return "no change found: the host dropped it"


def describe_pause(seconds: float, ttl: int | None) -> str | None:
    """The sentence for a pause that is longer than the host keeps a prefix; None for a shorter one.

    >>> describe_pause(720, 300)
    'TTL: 12 min since the previous request, longer than 5m'
    >>> describe_pause(330, 300)
    'TTL: 5.5 min since the previous request, longer than 5m'
    >>> describe_pause(720, 3600), describe_pause(7300, None)
    (None, 'TTL: 2 h since the previous request; hosts usually keep a prefix for 5m')
    """
    if seconds <= (ttl or _USUAL_TTL):
        return None
    if seconds < 600:
        passed = f"{seconds / 60:.1f} min"  # "5 min, longer than 5m" would look wrong
    else:
        passed = f"{int(seconds // 60)} min" if seconds < 7200 else f"{int(seconds // 3600)} h"
    if ttl is None:
        return f"TTL: {passed} since the previous request; hosts usually keep a prefix for 5m"
    return f"TTL: {passed} since the previous request, longer than {_ttl_name(ttl)}"


def requested_ttl(body: Mapping[str, Any]) -> int | None:
    """How long the host is asked to keep the prefix, in seconds: the longest time that the request names.

    >>> requested_ttl({"prompt_cache_options": {"ttl": "1h"}}), requested_ttl({"messages": []})
    (3600, None)
    """
    options = body.get("prompt_cache_options")
    named = [options.get("ttl")] if isinstance(options, dict) else []
    named += [marker.get("ttl", "5m") for marker in _markers(body)]
    known = [_TTLS[ttl] for ttl in named if isinstance(ttl, str) and ttl in _TTLS]
    return max(known, default=None)


def _markers(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The cache markers of a Messages request."""
    listed = [value for name in ("tools", "system") if isinstance(value := body.get(name), list)]
    messages = body.get("messages")
    contents = [message.get("content") for message in messages or () if isinstance(message, dict)]
    listed += [content for content in contents if isinstance(content, list)]
    blocks = [body, *(block for blocks in listed for block in blocks if isinstance(block, dict))]
    return [marker for block in blocks if isinstance(marker := block.get("cache_control"), dict)]


def _ttl_name(seconds: int) -> str:
    return next((name for name, value in _TTLS.items() if value == seconds), f"{seconds} s")


def _may_drop_reasoning(
    previous: SentPrompt, current: SentPrompt, body: Mapping[str, Any], profile: HostProfile
) -> bool:
    """Whether the model leaves out the reasoning of earlier turns, because the user has written something since.

    Its prompt then differs from the turn before on, although the request only continues.
    """
    if profile.reasoning_in is None or profile.always_keeps or _keeps_all(body):
        return False
    return any(map(is_user_message, added_messages(previous.prompt, current.prompt, body)))


def _keeps_all(body: Mapping[str, Any]) -> bool:
    thinking, template = body.get("thinking"), body.get("chat_template_kwargs")
    if isinstance(thinking, dict) and thinking.get("keep") == "all":
        return True
    return isinstance(template, dict) and template.get("preserve_thinking") is True
