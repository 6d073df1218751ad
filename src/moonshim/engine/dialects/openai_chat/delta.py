"""The content and the tool entries of a Chat delta, or message, read and written."""

from __future__ import annotations

from typing import Any

from moonshim.engine.values.events import CallPiece
from moonshim.engine.wire.json_codec import encode

__all__ = ["read_content", "read_index", "read_pieces", "read_thinking", "write_piece"]


def read_content(content: Any) -> str:
    """The text of `content`: a string, or the text parts of a list.

    >>> read_content([{"type": "text", "text": "Hel"}, "lo"])
    'Hello'
    """
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = (one.get("text") if isinstance(one, dict) else one for one in content)
    return "".join(text for text in texts if isinstance(text, str))


def read_thinking(content: Any) -> str:
    """The reasoning in `content` that is a list of parts, as Mistral's API sends it.

    >>> read_thinking([{"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}, "Hi"])
    'Hm'
    """
    if not isinstance(content, list):
        return ""
    return "".join(read_content(one.get("thinking")) for one in content if isinstance(one, dict))


def read_pieces(entries: Any) -> list[CallPiece]:
    """The entries of `tool_calls` that are objects."""
    if not isinstance(entries, list):
        return []
    return [_piece(entry) for entry in entries if isinstance(entry, dict)]


def _piece(entry: dict[str, Any]) -> CallPiece:
    function = entry.get("function")
    function = function if isinstance(function, dict) else {}
    arguments = function.get("arguments")
    odd = ""
    if arguments is not None and not isinstance(arguments, str):
        # The arguments as an object instead of a string.
        arguments, odd = encode(arguments).decode(), "arguments as an object"
    extras = {key: value for key, value in entry.items() if key not in ("index", "id", "type", "function")}
    inner = {key: value for key, value in function.items() if key not in ("name", "arguments")}
    if inner:
        extras["function"] = inner
    custom = entry.get("custom")
    if isinstance(custom, dict) and not function:
        # A custom tool takes one free-form string, which need not be JSON.
        function, arguments = custom, _text(custom.get("input"))
    return CallPiece(
        read_index(entry.get("index")),
        _text(entry.get("id")),
        _text(function.get("name")),
        arguments or "",
        extras,
        odd or _oddity(entry),
    )


def write_piece(piece: CallPiece) -> dict[str, Any]:
    """The entry of this piece: of a delta when it has an index, of a whole message when it has none."""
    extras = dict(piece.extras)
    function = {"arguments": piece.arguments, **extras.pop("function", {})}
    entry: dict[str, Any] = {"index": piece.index} if piece.index is not None else {}
    if piece.id is not None:
        entry["id"] = piece.id
    if piece.name is not None or piece.index is None:
        # In a whole message an entry is a whole call: it has a type and a name, even if that is null.
        entry["type"] = "function"
        function = {"name": piece.name, **function}
    return {**entry, "function": function, **extras}


def _oddity(entry: dict[str, Any]) -> str:
    if not isinstance(entry.get("index"), int):
        return "no index" if entry.get("index") is None else "an index that is not a number"
    if _text(entry.get("id")) and not entry.get("type"):
        return "no type"
    function = entry.get("function")
    nulls = any(entry.get(key, "") is None for key in ("id", "type"))
    # SDKs that add deltas up fail on a string that becomes null.
    return "null fields" if nulls or (isinstance(function, dict) and function.get("name", "") is None) else ""


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def read_index(value: Any) -> int | None:
    """An index that came as a number, or as a string of digits."""
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        return int(value)
    return None
