"""A conversation -> JSON in the form of OpenTelemetry's GenAI conventions, of a bounded size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, TypeVar, assert_never

from moonshim.engine.values.conversation import Media, Message, Part, Reasoning, Text, Tool, ToolCall, ToolResult
from moonshim.engine.wire.json_codec import decode_object, encode

__all__ = ["TEXT_BYTES", "input_messages", "output_messages", "tool_definitions"]

Json: TypeAlias = dict[str, Any]
_Value = TypeVar("_Value")

TEXT_BYTES: Final = 64 * 1024
"""Maximum size of an attribute with text: collectors refuse batches of many megabytes."""
_CUT: Final = "…[cut]"
_MODALITIES: Final = {"file": "document"}


def input_messages(messages: Sequence[Message]) -> str:
    """The end of a conversation: the newest messages that fit."""
    return _joined(messages, _message)


def output_messages(message: Message, finish_reason: str) -> str:
    """The response."""
    return _joined([message], lambda one, limit: _message(one, limit) | {"finish_reason": finish_reason})


def tool_definitions(tools: Sequence[Tool]) -> str:
    """The declared tools without their schemas, which may be large."""
    return _joined(tools, _tool)


def _joined(values: Sequence[_Value], render: Callable[[_Value, int], Json]) -> str:
    """A JSON list of at most `TEXT_BYTES`: the last values, each of which may take half of the room that is left."""
    kept: list[bytes] = []
    left = TEXT_BYTES
    for value in reversed(values):
        data = encode(render(value, left // 2))
        if len(data) >= left:  # escapes and other characters of several bytes
            data = encode(render(value, left // 16))
        if len(data) >= left:
            break
        left -= len(data) + 1
        kept.append(data)
    return f"[{b','.join(reversed(kept)).decode()}]"


def _message(message: Message, limit: int) -> Json:
    each = limit // max(1, len(message.parts))
    return {"role": message.role, "parts": [_part(part, each) for part in message.parts]}


def _part(part: Part, limit: int) -> Json:
    match part:
        case Text(text=text):
            return {"type": "text", "content": _cut(text, limit)}
        case Reasoning(text=text):
            return {"type": "reasoning", "content": _cut(text, limit)}
        case ToolCall(id=id, wire_id=wire_id, name=name, arguments=arguments):
            # Arguments that are cut, or are not JSON, stay a string.
            given = None if len(arguments) > limit else decode_object(arguments.encode("utf-8", "replace"))
            shown: Any = _cut(arguments, limit) if given is None else given
            return {"type": "tool_call", "id": wire_id or id, "name": name, "arguments": shown}
        case ToolResult(call_id=call_id, wire_id=wire_id, parts=parts):
            text = "\n".join(one.text for one in parts if isinstance(one, Text))
            return {"type": "tool_call_response", "id": wire_id or call_id, "response": _cut(text, limit)}
        case Media(kind=kind, url=url, media_type=media_type):
            # Not the data: an image would fill the attribute.
            modality = _MODALITIES.get(kind, kind)
            if url is None or len(url) > limit or url.startswith("data:"):
                return {"type": "blob", "modality": modality, "mime_type": media_type, "content": ""}
            return {"type": "uri", "modality": modality, "mime_type": media_type, "uri": url}
        case _:
            assert_never(part)


def _tool(tool: Tool, limit: int) -> Json:
    described = {} if tool.description is None else {"description": _cut(tool.description, limit)}
    return {"type": "function", "name": tool.name} | described


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[:limit] + _CUT
