"""Special tokens of Kimi's prompt format in a conversation -> the same texts with a joiner in each of them.

The texts of the system are its own. All others are looked at, those of the model as well: it quotes what it reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from msgspec.structs import replace

from moonshim.engine.grammar.kimi.special_tokens import join_texts, join_tokens
from moonshim.engine.request.located import ChangeCounter
from moonshim.engine.values.conversation import (
    Change,
    Media,
    Message,
    Part,
    Reasoning,
    Request,
    Text,
    ToolCall,
    ToolResult,
)

__all__ = ["defuse_tokens"]

PartT = TypeVar("PartT", Part, Text | Media)


def defuse_tokens(request: Request) -> tuple[Request, list[Change]]:
    """The request with no special token in its texts; the same object if there is none."""
    counter, messages = ChangeCounter(), list[Message]()
    for place, message in enumerate(request.messages):
        defused = message if message.role == "system" else _defuse(message)
        if defused is not message:
            where = request.locations[place] if place < len(request.locations) else f"messages[{place}]"
            counter.add("special_token", "an invisible joiner was added to tokens of the prompt format", where)
        messages.append(defused)
    changes = list(counter.changes())
    return (replace(request, messages=tuple(messages)) if changes else request), changes


def _defuse(message: Message) -> Message:
    if message.is_one_text:
        (part,) = message.parts
        assert isinstance(part, Text)
        text, count = join_tokens(part.text)
        return replace(message, parts=(replace(part, text=text),)) if count else message
    parts = [_defuse_part(part) for part in _defuse_texts(message.parts)]
    if all(one is other for one, other in zip(parts, message.parts, strict=True)):
        return message
    return replace(message, parts=tuple(parts))


def _defuse_part(part: Part) -> Part:
    match part:
        case Reasoning(text=str(text)) if (joined := join_tokens(text))[1]:
            return replace(part, text=joined[0])
        case ToolCall(arguments=arguments) if (joined := join_tokens(arguments))[1]:
            return replace(part, arguments=joined[0])
        case ToolResult(parts=inner) if (texts := _defuse_texts(inner)) is not inner:
            return replace(part, parts=tuple(texts))
    return part


def _defuse_texts(parts: Sequence[PartT]) -> Sequence[PartT]:
    """Adjacent texts are one text for a template, so a token may go on over the end of one."""
    out = list(parts)
    start = 0
    while start < len(out):
        end = start
        while end < len(out) and isinstance(out[end], Text):
            end += 1
        texts = [part.text for part in out[start:end] if isinstance(part, Text)]
        for place, text in enumerate(join_texts(texts), start):
            if text != texts[place - start]:
                out[place] = replace(out[place], text=text)
        start = end + 1
    return parts if all(one is other for one, other in zip(out, parts, strict=True)) else out
