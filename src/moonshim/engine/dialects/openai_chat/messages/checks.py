"""Validates Chat messages; errors name the invalid field."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from moonshim.engine.dialects.openai_chat.messages.parse import parse_messages
from moonshim.engine.values.conversation import Message
from moonshim.errors import InvalidInput

__all__ = ["check_and_parse", "check_messages"]

_INNER: Final = {"image_url": "url", "video_url": "url", "input_audio": "data"}
"""Required key of the inner object of a part."""


def check_and_parse(messages: Iterable[Any]) -> list[Message]:
    """Validate and parse messages. Raises `InvalidInput` with the invalid field."""
    if isinstance(messages, (str, bytes, dict)) or not isinstance(messages, Iterable):
        raise InvalidInput(f"messages must be a list, not {type(messages).__name__}", field="messages")
    listed = list(messages)
    check_messages(listed)
    return parse_messages(listed)


def check_messages(messages: list[Any]) -> None:
    """Raise `InvalidInput` for the first invalid message."""
    for place, message in enumerate(messages):
        if _is_plain(message):
            continue
        where = f"messages[{place}]"
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise InvalidInput("a message must be an object with a role", field=where)
        content, calls = message.get("content"), message.get("tool_calls")
        if content is not None and not isinstance(content, (str, list)):
            detail = f"content must be a string or a list of parts, not {type(content).__name__}"
            raise InvalidInput(detail, field=f"{where}.content")
        if isinstance(content, list):
            for number, part in enumerate(content):
                _check_part(part, f"{where}.content[{number}]")
        if calls is not None and not isinstance(calls, list):
            raise InvalidInput("tool_calls must be a list", field=f"{where}.tool_calls")
        for number, call in enumerate(calls or ()):
            if not isinstance(call, dict):
                raise InvalidInput("a call must be an object", field=f"{where}.tool_calls[{number}]")


def _is_plain(message: Any) -> bool:
    """Whether a message has only a role and a text, so nothing can be invalid. Most do, and there can be very many."""
    return (
        isinstance(message, dict)
        and len(message) == 2
        and isinstance(message.get("role"), str)
        and isinstance(message.get("content"), str)
    )


def _check_part(part: Any, where: str) -> None:
    if not isinstance(part, dict):
        raise InvalidInput("a part of content must be an object", field=where)
    kind = part.get("type")
    if kind == "text" and not isinstance(part.get("text"), str):
        raise InvalidInput("a text must be a string", field=f"{where}.text")
    if isinstance(kind, str) and kind in _INNER:
        inner, key = part.get(kind), _INNER[kind]
        # Some clients write the URL itself where the protocol has an object around it.
        if not isinstance(inner, str) and not (isinstance(inner, dict) and isinstance(inner.get(key), str)):
            raise InvalidInput(f"{kind} must be an object with {key}", field=f"{where}.{kind}.{key}")
