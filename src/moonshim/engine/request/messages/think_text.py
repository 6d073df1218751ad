"""Reasoning that a client returns as `<think>` text -> reasoning."""

from __future__ import annotations

import re
from typing import Final

from msgspec.structs import replace

from moonshim.engine.values.conversation import Change, Message, Part, Reasoning, Request, Text

__all__ = ["read_think_text"]

_THINK_TEXT: Final = re.compile(r"\s*<think>(.*?)</think>\s*(.*)", re.DOTALL)


def read_think_text(request: Request) -> tuple[Request, list[Change]]:
    """Convert a leading, complete `<think>…</think>` of an assistant message without reasoning into reasoning.

    Clients without a reasoning field (pydantic-ai over Responses) return it that way. A model that sees its reasoning
    as content starts to write its reasoning into the content.
    """
    messages, changes = list[Message](), list[Change]()
    for number, message in enumerate(request.messages):
        converted = _split_reasoning(message) if message.role == "assistant" else None
        messages.append(message if converted is None else converted)
        if converted is not None:
            place = request.locations[number] if number < len(request.locations) else None
            changes.append(Change("think_text", "a thought that was told as text is sent as reasoning", place))
    return (replace(request, messages=tuple(messages)), changes) if changes else (request, [])


def _split_reasoning(message: Message) -> Message | None:
    parts = message.parts
    if not parts or not isinstance(parts[0], Text) or "<think>" not in parts[0].text:
        return None
    match = _THINK_TEXT.fullmatch(parts[0].text)
    if match is None or any(isinstance(part, Reasoning) for part in parts):
        return None
    rest: tuple[Part, ...] = (Text(match[2]),) if match[2] else ()
    return replace(message, parts=(Reasoning(match[1].strip("\n")), *rest, *parts[1:]))
