"""A conversation in any form -> the calls and results in it, in order.

Reads plain OpenAI dicts, canonical messages, block histories (`{"speaker": …, "blocks": […]}` with blocks of type
`tool_call` and `tool_response`), and lists that mix them. Anything else is skipped: this module finds calls and does
not validate them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from moonshim.engine.values.conversation import Message, Tool, ToolCall, ToolResult

__all__ = ["FoundCall", "FoundResult", "declared_tools", "read_call", "read_result", "walk_calls"]


class FoundCall(Struct, frozen=True):
    """A tool call. `id` is the id as received, "" when it has none."""

    id: str
    name: str
    canonical: str | None = None
    """Its `hist_tool_*` id, if the history is canonical."""
    position: int = -1
    """Index of its message."""
    place: int = -1
    """Position in the message: the index in `tool_calls`, or among the parts."""
    value: Any = None
    """The original object."""


class FoundResult(Struct, frozen=True):
    """A tool result. `id` is the id of its call as received, "" when it has none."""

    id: str
    name: str | None = None
    canonical: str | None = None
    position: int = -1
    place: int = -1
    value: Any = None


def walk_calls(messages: Iterable[Any] | None) -> Iterator[FoundCall | FoundResult]:
    """Every call and result, in order, in linear time. Never raises on malformed input.

    >>> history = [
    ...     {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "ls", "arguments": "{}"}}]},
    ...     {"role": "tool", "tool_call_id": "a", "content": "x.py"},
    ...     "junk",
    ... ]
    >>> [(type(seen).__name__, seen.id, seen.name, seen.position) for seen in walk_calls(history)]
    [('FoundCall', 'a', 'ls', 0), ('FoundResult', 'a', None, 1)]
    """
    if messages is None or isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
        return
    for position, message in enumerate(messages):
        if not _has_no_calls(message):
            yield from _find_in(message, position)


def _has_no_calls(message: Any) -> bool:
    """Whether a quick check shows that the message has no call and no result."""
    if isinstance(message, dict):
        return message.get("role") != "tool" and "tool_calls" not in message and "blocks" not in message
    return isinstance(message, Message) and message.is_one_text


def _find_in(message: Any, position: int) -> Iterator[FoundCall | FoundResult]:
    found: FoundCall | FoundResult | None
    if isinstance(message, Message):
        for place, part in enumerate(message.parts):
            found = read_call(part, position, place) or read_result(part, position, place)
            if found is not None:
                yield found
    elif isinstance(message, dict) and isinstance(blocks := message.get("blocks"), (list, tuple)):
        for place, block in enumerate(blocks):
            read = _BLOCKS.get(_text(block.get("type"))) if isinstance(block, dict) else None
            found = read(block, position, place) if read is not None else None
            if found is not None:
                yield found
    elif isinstance(message, dict):
        role, calls = message.get("role", "assistant"), message.get("tool_calls")
        if role == "tool":
            found = read_result(message, position, 0)
            if found is not None:
                yield found
        elif role == "assistant" and isinstance(calls, (list, tuple)):
            for place, call in enumerate(calls):
                found = read_call(call, position, place)
                if found is not None:
                    yield found


def read_call(value: Any, position: int = -1, place: int = -1) -> FoundCall | None:
    """A canonical call, an entry of `tool_calls`, or a block; also the short form `{"id": …, "name": …}`."""
    if isinstance(value, ToolCall):
        wire = value.id if value.wire_id is None else value.wire_id
        return FoundCall(wire, value.name, value.id, position, place, value)
    if not isinstance(value, dict) or _is_result(value):
        return None
    name = _body(value).get("name")
    if not isinstance(name, str) and not isinstance(value.get("id"), str):
        return None
    return FoundCall(_text(value.get("id")), _text(name), None, position, place, value)


def read_result(value: Any, position: int = -1, place: int = -1) -> FoundResult | None:
    """A canonical result, a message of role `tool`, or a block; also `{"tool_call_id": …, "name": …}`."""
    if isinstance(value, ToolResult):
        wire = value.call_id if value.wire_id is None else value.wire_id
        return FoundResult(wire, value.name, value.call_id, position, place, value)
    if not isinstance(value, dict) or not _is_result(value):
        return None
    wire, name = ("callId", "toolName") if "callId" in value else ("tool_call_id", "name")
    return FoundResult(_text(value.get(wire)), _text(value.get(name)) or None, None, position, place, value)


_BLOCKS: Final[dict[str, Callable[[Any, int, int], FoundCall | FoundResult | None]]] = {
    "tool_call": read_call,
    "tool_response": read_result,
}


def _is_result(value: dict[str, Any]) -> bool:
    return value.get("role") == "tool" or "tool_call_id" in value or "callId" in value


def _body(value: dict[str, Any]) -> dict[str, Any]:
    """The inner object of a call or a definition: its `function`, its `custom`, or the value itself."""
    return next((inner for key in ("function", "custom") if isinstance(inner := value.get(key), dict)), value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def declared_tools(tools: Iterable[Any] | None) -> list[Tool]:
    """Declared tools for lookups: names, descriptions, schemas. Unreadable entries are skipped.

    Accepts canonical tools, OpenAI definitions, and the flat definitions of other formats. To send definitions on,
    use `format_tools`, which keeps every field and reports errors.

    >>> [tool.name for tool in declared_tools([{"type": "function", "function": {"name": "ls"}}, Tool("cat"), 7])]
    ['ls', 'cat']
    """
    if tools is None or isinstance(tools, (str, bytes, Mapping)) or not isinstance(tools, Iterable):
        return []
    return [tool for tool in map(_read_tool, tools) if tool is not None]


def _read_tool(value: Any) -> Tool | None:
    if isinstance(value, Tool):
        return value
    if not isinstance(value, dict):
        return None
    body = _body(value)
    name, description = body.get("name"), body.get("description")
    if not isinstance(name, str) or not name:
        return None
    schema = body.get("parameters", body.get("input_schema"))
    return Tool(
        name,
        description if isinstance(description, str) else None,
        schema if isinstance(schema, dict) else None,
    )
