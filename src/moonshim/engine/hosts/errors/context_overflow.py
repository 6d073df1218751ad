"""A host's message about a prompt that does not fit -> its token count and the limit."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

__all__ = ["Overflow", "read_overflow"]


class Overflow(Struct, frozen=True):
    """A prompt that is too long, with the numbers that the host gave."""

    tokens: int | None = None
    limit: int | None = None


_NUMBER: Final = r"([0-9][0-9,]{0,14})"


def _pattern(text: str) -> re.Pattern[str]:
    """`#t` is the number of tokens, `#m` the requested output tokens, `#l` the limit."""
    for mark in "tml":
        text = text.replace(f"#{mark}", f"(?P<{mark}>{_NUMBER[1:]}")
    # A few words may separate two numbers, but never half a page.
    return re.compile(text.replace("~", r"[^\n]{0,120}?"), re.IGNORECASE)


# The first match wins: messages with more information come first.
_PHRASES: Final = tuple(
    _pattern(text)
    for text in (
        # Moonshot: "Your request exceeded model token limit: 262144 (requested: 300000)"
        r"exceeded model token limit: ?#l ?\(requested: ?#t\)",
        r"exceeded model token limit(?:: ?#l)?",
        # Anthropic: "prompt is too long: 210000 tokens > 200000 maximum"
        r"prompt is too long:? ?#t tokens ?> ?#l",
        r"exceed context limit: ?#t ?\+ ?#m ?> ?#l",
        # Fireworks: "The prompt is too long: 131080, model maximum context length: 131071"
        r"prompt is too long: ?#t, model maximum context length: ?#l",
        # vLLM: "'max_tokens' is too large: 4096. This model's maximum context length is 8192 tokens and your
        # request has 5000 input tokens"
        r"is too large: ?#m\.~maximum context length is #l tokens and your request has #t input tokens",
        r"passed #t input tokens and requested #m output tokens~context length is only #l tokens",
        r"passed #t input tokens~context length is only #l",
        r"prompt \(length #t\) is longer than the maximum model length of #l",
        # SGLang
        r"input \(#t tokens\) is longer than the model's context length \(#l tokens\)",
        r"input length \(#t tokens\) exceeds the maximum allowed length \(#l tokens\)",
        # OpenAI, and hosts with the same message: OpenRouter, Together, SGLang, Groq
        r"maximum context length is #l tokens~[^\n]{0,80}for a total of at least #t",
        r"maximum context length (?:is|of) #l tokens~(?:requested|resulted in|has|contains|of|about|at least) #t",
        r"maximum context length (?:is|of) #l",
        # Together: "`inputs` tokens + `max_new_tokens` must be <= 32769. Given: 40000 `inputs` tokens and 512 …"
        r"`inputs` tokens \+ `max_new_tokens` must be <= #l\. Given: #t `inputs` tokens and #m",
        # SiliconFlow
        r"length of prompt_tokens \(#t\) must be less than max_seq_len \(#l\)",
        # llama.cpp: "the request exceeds the available context size"; and messages without numbers
        r"exceeds? the available context size",
        r"(?:input|prompt|request|messages)~exceeds? (?:the|this model's) (?:maximum )?context (?:window|length)",
        r"prompt is too long",
        r"context[_ ](?:length|window|size)[_ ](?:is )?exceeded",
        r"reduce the length of the (?:messages|prompt|input)",
    )
)


def read_overflow(message: str) -> Overflow | None:
    """The numbers in a host's message; None when it is about something else.

    >>> read_overflow("Your request exceeded model token limit: 262144 (requested: 300000)")
    Overflow(tokens=300000, limit=262144)
    >>> read_overflow("invalid temperature") is None
    True
    """
    for phrase in _PHRASES:
        if found := phrase.search(message):
            numbers = {name: int(text.replace(",", "")) for name, text in found.groupdict().items() if text}
            # A prompt that would fit without its output is reported including it: the sum exceeds the limit.
            tokens = numbers["t"] + numbers.get("m", 0) if "t" in numbers else None
            return Overflow(tokens, numbers.get("l"))
    return None
