"""The position of a call -> the id that a host gives it, and ids of responses; deterministic and without repetition."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from typing import Final

from msgspec import Struct

__all__ = ["ID_PROFILES", "IdPlace", "answer_id", "fingerprint", "signature"]


class IdPlace(Struct, frozen=True, kw_only=True):
    """Everything that an id is made from, at any host."""

    name: str
    number: int
    """Index of the call in the whole conversation, from 0."""
    position: int
    """Index of the call in its response, from 0."""
    answer_id: str


def fingerprint(*parts: str | bytes | int) -> str:
    """64 hexadecimal digits that look random, and are the same for the same parts.

    >>> fingerprint("a", 1)[:8], fingerprint("a", 1) == fingerprint("a1")
    ('4e05abd6', False)
    """
    made = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode("utf-8", "surrogatepass")
        made.update(b"%d:" % len(data) + data)
    return made.hexdigest()


def answer_id(wire: str, *parts: str | bytes | int) -> str:
    """
    >>> answer_id("openai_chat", 0, 1, b"{}")
    'chatcmpl-6d0892d9eea5a0fa8a30f7a4'
    """
    digits = fingerprint(*parts)[:24]
    return f"chatcmpl-{digits}" if wire == "openai_chat" else f"msg_{digits}"


def signature(answer: str) -> str:
    """The signature of a response's reasoning: base64url, which Kimi accepts back.

    >>> signature("msg_1")[:16]
    'Gg7OQ31ENHCeRBtC'
    """
    return base64.urlsafe_b64encode(bytes.fromhex(fingerprint("signature", answer) * 2)).decode().rstrip("=")


def _digits(place: IdPlace, count: int) -> str:
    return fingerprint(place.answer_id, place.position)[:count]


ID_PROFILES: Final[dict[str, Callable[[IdPlace], str]]] = {
    # What K2 was trained on.
    "k2": lambda place: f"functions.{place.name}:{place.number}",
    "moonshot-k2": lambda place: f"{place.name}:{place.number}",
    "moonshot-k3": lambda place: f"{place.name}_{place.number}",
    # Restarts in each response, so ids repeat.
    "fireworks-k3": lambda place: f"{place.name}:{place.position}",
    "openai": lambda place: f"call_{_digits(place, 24)}",
    "vllm": lambda place: f"chatcmpl-tool-{_digits(place, 32)}",
    "anthropic": lambda place: f"toolu_{_digits(place, 24)}",
    "kimi-anthropic": lambda place: f"tool_{_digits(place, 24)}",
}
