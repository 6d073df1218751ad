"""One content block -> one canonical part: text, thinking, media, calls and results.

| block | part |
|---|---|
| `text` | `Text` |
| `thinking`, `redacted_thinking` | `Reasoning`; redacted data is one of its `details` |
| `image`, `document` | `Media`; a text document is a file of type `text/plain` |
| `tool_use`, `tool_result` | `ToolCall`, `ToolResult`, with their wire ids: `messages` pairs them |
| anything else (`tool_reference`, `search_result`, `server_tool_use`, …) | `Media`: a text file that describes it, \
for other dialects |

Nothing is copied: a part refers to values of its block, which are never modified.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, Final, Literal, NoReturn

from moonshim.engine.dialects.anthropic.extras import DIALECT, Json, MessagesMediaExtras
from moonshim.engine.values.conversation import Media, Part, Reasoning, Text, ToolCall, ToolResult
from moonshim.engine.wire.json_codec import encode
from moonshim.engine.wire.json_fields import (
    BOOLEAN,
    LENIENT_ARGUMENTS,
    OBJECT,
    STRING,
    JsonType,
    object_with,
    read_field,
    read_required,
    wrong_type,
)
from moonshim.errors import InvalidInput

__all__ = ["Json", "encode_json", "parse_block"]


class _Place:
    """The path of a block; formatted only when an error needs it."""

    __slots__ = ("index", "where")

    def __init__(self, where: str, index: int) -> None:
        self.where = where
        self.index = index

    def __str__(self) -> str:
        return f"{self.where}[{self.index}]"

    def refuse(self, message: str, field: str = "") -> NoReturn:
        raise InvalidInput(message, field=f"{self}.{field}" if field else str(self))


def encode_json(value: Any) -> str:
    """Compact JSON. Raises `ValueError` for what cannot be encoded (excessive nesting)."""
    try:
        return encode(value).decode()
    except (TypeError, OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from None


def parse_block(block: Any, where: str = "content", index: int = 0) -> Part:
    """Parse a content block.

    >>> parse_block({"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}})
    Text(text='hi')
    """
    place = _Place(where, index)
    if not isinstance(block, dict):
        raise wrong_type(str(place), "an object", block)
    kind = block.get("type")
    if not isinstance(kind, str):
        kind = read_required(block, "type", STRING, f"{place}.")
    if block.get("cache_control") is not None:
        read_field(block, "cache_control", OBJECT, f"{place}.")
    parse = _PARSERS.get(kind)
    return _describe(block, place) if parse is None else parse(block, place)


def _string(block: Json, key: str, place: _Place, default: str | None = None) -> str:
    value = block.get(key, default)
    if isinstance(value, str):
        return value
    required: str = read_required(block, key, STRING, f"{place}.")
    return required


def _optional(block: Json, key: str, type: JsonType, place: _Place) -> Any:
    """The value of a field, or None; its path is formatted only for an error."""
    return None if block.get(key) is None else read_field(block, key, type, f"{place}.")


def _text(block: Json, place: _Place) -> Text:
    return Text(_string(block, "text", place))


def _thinking(block: Json, place: _Place) -> Reasoning:
    signature = _optional(block, "signature", STRING, place)
    return Reasoning(_string(block, "thinking", place, ""), signature or None)


def _redacted(block: Json, place: _Place) -> Reasoning:
    return Reasoning("", details=({"type": "redacted_thinking", "data": _string(block, "data", place)},))


def _tool_use(block: Json, place: _Place) -> ToolCall:
    wire_id = _optional(block, "id", STRING, place)
    value = _optional(block, "input", LENIENT_ARGUMENTS, place)
    try:
        arguments = value if isinstance(value, str) else "" if value is None else encode_json(value)
    except ValueError:
        place.refuse("input cannot be encoded as JSON", "input")
    return ToolCall(wire_id or "", _string(block, "name", place), arguments, wire_id)


def _tool_result(block: Json, place: _Place) -> ToolResult:
    wire_id, is_error = _optional(block, "tool_use_id", STRING, place), _optional(block, "is_error", BOOLEAN, place)
    content = block.get("content")
    parts: list[Text | Media] = []
    if isinstance(content, str):
        parts.append(Text(content))
    elif isinstance(content, list):
        where = f"{place}.content"
        for index, entry in enumerate(content):
            part = parse_block(entry, where, index)
            if isinstance(part, (Text, Media)):
                parts.append(part)
            else:
                raise InvalidInput("a tool_result cannot contain this type of block", field=f"{where}[{index}]")
    elif content is not None:
        raise wrong_type(f"{place}.content", "a string or a list of blocks", content)
    return ToolResult(wire_id or "", None, tuple(parts), is_error is True, wire_id)


def _image(block: Json, place: _Place) -> Media:
    return _media("image", block, place)


def _document(block: Json, place: _Place) -> Media:
    match _source(block, place):
        case {"type": "text"} as source:
            return _file(block, read_required(source, "data", STRING, f"{place}.source."), _TEXT)
        case {"type": "content"} as source:
            content = read_required(source, "content", _CONTENT, f"{place}.source.")
            return _file(block, _nested_text(content), _TEXT)
    return _media("file", block, place)


def _source(block: Json, place: _Place) -> Json:
    source: Json = read_required(block, "source", _SOURCE, f"{place}.")
    _optional(block, "title", STRING, place)
    return source


def _file(block: Json, text: str, media_type: str) -> Media:
    """The block as a file, for other dialects; a lone surrogate becomes a question mark."""
    data = base64.b64encode(text.encode(errors="replace")).decode()
    return Media(
        "file",
        data=data,
        media_type=media_type,
        extras={DIALECT: MessagesMediaExtras(block)},
        name=_title(block),
        context=_context(block),
    )


def _media(kind: Literal["image", "file"], block: Json, place: _Place) -> Media:
    source, name, context = _source(block, place), _title(block), _context(block)
    held = ("type", "source") if name is None else ("type", "source", "title")
    fields = {key: value for key, value in block.items() if key not in held}
    extras: Json = {DIALECT: MessagesMediaExtras(fields=fields)} if fields else {}
    match source:
        case {"type": "base64"}:
            data = read_required(source, "data", STRING, f"{place}.source.")
            return Media(
                kind, data=data, media_type=source.get("media_type"), extras=extras, name=name, context=context
            )
        case {"type": "url"}:
            url = read_required(source, "url", STRING, f"{place}.source.")
            return Media(kind, url=url, extras=extras, name=name, context=context)
    # By file_id: only its host knows the content and its kind.
    return Media("file", extras={DIALECT: MessagesMediaExtras(block)}, name=name, context=context)


def _title(block: Json) -> str | None:
    title = block.get("title")
    return title if isinstance(title, str) and block["type"] in ("document", "search_result") else None


def _context(block: Json) -> str | None:
    context = block.get("context")
    return context if isinstance(context, str) and context.strip() and block["type"] == "document" else None


# --- blocks that only this dialect knows, in words ----------------------------------------------------------------


def _describe(block: Json, place: _Place) -> Media:
    tell = _WORDS.get(block["type"])
    try:
        return (
            _file(block, encode_json(block), "application/json") if tell is None else _file(block, tell(block), _TEXT)
        )
    except ValueError:
        place.refuse("the block cannot be encoded as JSON")


def _tool_reference(block: Json) -> str:
    return f"The tool {block.get('tool_name')} can be called now."


def _search_result(block: Json) -> str:
    source = block.get("source")
    return "\n".join([*([source] if isinstance(source, str) else ()), _nested_text(block.get("content"))])


def _server_call(block: Json) -> str:
    return f"[{block.get('name')} was run by the host: {encode_json(block.get('input'))}]"


def _server_results(block: Json) -> str:
    content = block.get("content")
    entries = content if isinstance(content, list) else [content]
    lines = []
    for entry in entries:
        known = [entry[key] for key in ("title", "url") if isinstance(entry, dict) and isinstance(entry.get(key), str)]
        lines.append(" ".join(known) if known else encode_json(entry))
    return "\n".join(lines) or "No results."


def _nested_text(content: Any) -> str:
    """The text of nested content: a string, or the text blocks of a list, and a note for each other block."""
    if isinstance(content, str):
        return content
    entries = content if isinstance(content, list) else []
    texts = (_text_or_note(entry) for entry in entries if isinstance(entry, dict))
    return "\n".join(text for text in texts if isinstance(text, str))


def _text_or_note(entry: Json) -> Any:
    return "[An image, which is not shown.]" if entry.get("type") == "image" else entry.get("text")


_TEXT: Final = "text/plain"
_SOURCE: Final = object_with(type=STRING, media_type=STRING)
_CONTENT: Final = JsonType((str, list), "a string or a list of blocks")
_WORDS: Final[dict[str, Callable[[Json], str]]] = {
    "tool_reference": _tool_reference,
    "search_result": _search_result,
    "server_tool_use": _server_call,
    "web_search_tool_result": _server_results,
}
_PARSERS: Final[dict[str, Callable[[Json, _Place], Part]]] = {
    "text": _text,
    "thinking": _thinking,
    "redacted_thinking": _redacted,
    "tool_use": _tool_use,
    "tool_result": _tool_result,
    "image": _image,
    "document": _document,
}
