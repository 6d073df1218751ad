"""Validates Chat messages; errors name the invalid field."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from moonshim.engine.dialects.openai_chat.messages.parse import parse_messages
from moonshim.engine.values.conversation import Message
from moonshim.engine.values.tool_calls import read_call
from moonshim.engine.wire.json_fields import (
    LENIENT_ARGUMENTS,
    OBJECT,
    STRING,
    STRING_OR_OBJECT,
    JsonType,
    check_fields,
    check_value,
    object_with,
    read_required,
    wrong_type,
)
from moonshim.errors import InvalidInput

__all__ = ["check_and_parse", "check_messages"]

_INNER: Final = {"image_url": "url", "video_url": "url", "input_audio": "data"}
"""Required key of the inner object of a part."""
_FUNCTION: Final = object_with(name=STRING, arguments=LENIENT_ARGUMENTS)
# Not the id: one that is no string is replaced, as a missing one is.
_CALL: Final = object_with(
    type=STRING, function=_FUNCTION, custom=object_with(name=STRING, input=STRING), **_FUNCTION.fields
)
_MESSAGE: Final[dict[str, JsonType]] = {
    "name": STRING,
    "tool_call_id": STRING,
    "refusal": STRING,
    "reasoning_content": STRING,
    "tool_calls": JsonType((list,), "a list", _CALL),
    "function_call": _FUNCTION,
}
_PARTS: Final[dict[str, JsonType]] = {
    "image_url": object_with(detail=STRING),
    "video_url": object_with(detail=STRING),
    "input_audio": object_with(format=STRING),
    "file": object_with(file_data=STRING, file_id=STRING, filename=STRING),
}
"""Types inside of the inner object of a part, whose key is the type of the part."""


def check_and_parse(messages: Iterable[Any]) -> list[Message]:
    """Validate and parse messages. Raises `InvalidInput` with the invalid field."""
    if isinstance(messages, (str, bytes, dict)) or not isinstance(messages, Iterable):
        raise wrong_type("messages", "a list", messages)
    listed = list(messages)
    check_messages(listed)
    return parse_messages(listed)


def check_messages(messages: list[Any]) -> None:
    """Raise `InvalidInput` for the first invalid message."""
    for place, message in enumerate(messages):
        if _is_plain(message):
            continue
        where = f"messages[{place}]"
        check_value(message, OBJECT, where)
        read_required(message, "role", STRING, f"{where}.")
        content = message.get("content")
        if content is not None and not isinstance(content, (str, list)):
            raise wrong_type(f"{where}.content", "a string or a list of parts", content)
        if isinstance(content, list):
            for number, part in enumerate(content):
                _check_part(part, f"{where}.content[{number}]")
        check_fields(message, _MESSAGE, f"{where}.")
        if message["role"] == "assistant":
            for number, call in enumerate(message.get("tool_calls") or ()):
                if read_call(call) is None and call.get("function"):
                    # Nothing says which tool was called, nor which result belongs to the call. An entry without
                    # a function is no call at all, and is dropped and reported later.
                    field = f"{where}.tool_calls[{number}].function.name"
                    raise InvalidInput(f"{field} is required", field=field)


def _is_plain(message: Any) -> bool:
    """Whether a message has only a role and a text, so nothing can be invalid. Most do, and there can be very many."""
    return (
        isinstance(message, dict)
        and len(message) == 2
        and isinstance(message.get("role"), str)
        and isinstance(message.get("content"), str)
    )


def _check_part(part: Any, where: str) -> None:
    check_value(part, OBJECT, where)
    kind = part.get("type")
    if kind is None:
        return
    check_value(kind, STRING, f"{where}.type")
    if kind == "text":
        read_required(part, "text", STRING, f"{where}.")
    if isinstance(inner := part.get(kind), dict) and kind in _PARTS:
        check_value(inner, _PARTS[kind], f"{where}.{kind}")
    if kind in _INNER:
        # Some clients write the URL itself where the protocol has an object around it.
        inner = read_required(part, kind, STRING_OR_OBJECT, f"{where}.")
        if isinstance(inner, dict):
            read_required(inner, _INNER[kind], STRING, f"{where}.{kind}.")
