"""A message -> its shape: role, kinds and sizes of its parts. All that privacy mode records of a conversation."""

from __future__ import annotations

from msgspec import Struct

from moonshim.engine.values.conversation import Media, Message, Reasoning, Role, Text, ToolCall, ToolResult

__all__ = ["MessageShape", "shape_of"]


class PartShape(Struct, frozen=True, gc=False):
    """One part of a message, without its text."""

    kind: str
    size: int | None
    """Characters of its text; None for images and other media."""


class MessageShape(Struct, frozen=True):
    """One message, without its text."""

    role: Role
    parts: tuple[PartShape, ...]
    answer: bool = False
    """The response, not a message of the request."""


def shape_of(message: Message, *, is_answer: bool = False) -> MessageShape:
    """
    >>> shape_of(Message("user", (Text("Hello"),)))
    MessageShape(role='user', parts=(PartShape(kind='text', size=5),), answer=False)
    """
    return MessageShape(message.role, tuple(map(_part_shape, message.parts)), is_answer)


def _part_shape(part: object) -> PartShape:
    match part:
        case Text(text=text):
            return PartShape("text", len(text))
        case Reasoning(text=text):
            return PartShape("reasoning", len(text))
        case ToolCall(arguments=arguments):
            return PartShape("call", len(arguments))
        case ToolResult(parts=parts):
            return PartShape("result", sum(len(one.text) for one in parts if isinstance(one, Text)))
        case Media(kind=kind):
            return PartShape(kind, None)
        case _:
            return PartShape(type(part).__name__.lower(), None)
