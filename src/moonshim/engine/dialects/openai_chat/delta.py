"""Reads and writes the parts of a Chat delta that tell something: reasoning, content, tool calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from moonshim.engine.upstream_events import OnlyText
from moonshim.engine.values.events import CallPiece
from moonshim.engine.wire.json_codec import encode

__all__ = [
    "REASONING_FIELDS",
    "TEXT_KEYS",
    "DeltaText",
    "only_text",
    "read_index",
    "read_pieces",
    "read_speech",
    "reasoning_fields",
    "text_of",
    "write_piece",
    "write_reasoning",
]

REASONING_FIELDS: Final = ("reasoning_content", "reasoning", "reasoning_details")
"""Where hosts put reasoning; of unequal copies the first one wins."""


TEXT_KEYS: Final = {"reasoning.text": "text", "reasoning.summary": "summary", "summary": "summary", "text": "text"}
"""Under which name the entries of `reasoning_details` have their text, by type."""


class DeltaText(Struct, frozen=True):
    """The text of one delta, each channel once, and the copies that did not agree."""

    reasoning: str = ""
    content: str = ""
    conflicts: tuple[tuple[str, str], ...] = ()


def read_speech(delta: Mapping[str, Any]) -> DeltaText:
    content = delta.get("content")
    copies = [(field, text) for field in REASONING_FIELDS if (text := text_of(field, delta.get(field)))]
    reasoning = copies[0][1] if copies else ""
    conflicts = tuple((field, text) for field, text in copies if text != reasoning)
    return DeltaText(reasoning, content if isinstance(content, str) else "", conflicts)


def text_of(field: str, value: Any) -> str:
    """The text that this field of a delta carries; "" when it carries none."""
    if field != "reasoning_details":
        return value if isinstance(value, str) else ""
    if not isinstance(value, list):
        return ""
    return "".join(one[key] for one in value if (key := _text_key(one)))


def _text_key(entry: Any) -> str:
    """Where an entry of `reasoning_details` has its text: Kimi's coding endpoint only sums up what was thought."""
    if not isinstance(entry, dict):
        return ""
    return next((key for key in ("text", "summary") if isinstance(entry.get(key), str)), "")


def reasoning_fields(delta: Mapping[str, Any]) -> tuple[str, ...]:
    """The fields in which this delta tells its reasoning."""
    return tuple(field for field in REASONING_FIELDS if text_of(field, delta.get(field)))


def only_text(chunk: Mapping[str, Any]) -> OnlyText | None:
    """Where the text of a chunk stands, if one text in one choice is all that it tells."""
    choices = chunk.get("choices")
    if not isinstance(choices, list) or len(choices) != 1 or chunk.get("usage") is not None:
        return None
    choice = choices[0]
    delta = choice.get("delta") if isinstance(choice, dict) else None
    if not isinstance(delta, dict) or choice.get("finish_reason") or choice.get("usage") or delta.get("finish_reason"):
        return None
    if delta.get("reasoning_details"):
        return None  # entries are put together over all chunks: a text is not all
    said, entries = read_speech(delta), delta.get("tool_calls")
    if entries:
        pieces = read_pieces(entries)
        if said.reasoning or said.content or len(pieces) != 1 or len(entries) != 1:
            return None
        piece = pieces[0]
        if not piece.arguments or piece.index is None or piece.odd or piece.id or piece.name or piece.extras:
            return None
        return OnlyText(("choices", 0, "delta", "tool_calls", 0, "function", "arguments"), index=piece.index)
    if said.content and not said.reasoning:
        return OnlyText(("choices", 0, "delta", "content"), "text")
    fields = reasoning_fields(delta)
    if said.reasoning and not said.content and len(fields) == 1:
        return OnlyText(("choices", 0, "delta", fields[0]), "reasoning")
    return None


def write_reasoning(delta: Mapping[str, Any], text: str, usual: tuple[str, ...], *, first: bool) -> dict[str, Any]:
    """The reasoning fields of this delta, every copy with this text; the usual fields when it has none."""
    present = reasoning_fields(delta)
    written: dict[str, Any] = {}
    for field in present or (usual if text else ()):
        if field == "reasoning_details":
            details = _details(delta.get(field), text, whole=first)
            if details:
                written[field] = details
        elif text:
            written[field] = text
    return written


def _details(value: Any, text: str, *, whole: bool) -> list[Any]:
    """The first entry that has text gets all of it: together they say it once."""
    entries = value if isinstance(value, list) and value else [{"type": "reasoning.text", "text": ""}]
    written: list[Any] = []
    told = False
    for one in entries:
        key = _text_key(one)
        if not key:
            written += [one] if whole else []
        elif whole or (text and not told):
            written.append({**one, key: "" if told else text})
            told = True
    return written


def read_pieces(entries: Any) -> list[CallPiece]:
    if not isinstance(entries, list):
        return []
    return [_piece(entry) for entry in entries if isinstance(entry, dict)]


def _piece(entry: dict[str, Any]) -> CallPiece:
    function = entry.get("function")
    function = function if isinstance(function, dict) else {}
    arguments = function.get("arguments")
    odd = ""
    if arguments is not None and not isinstance(arguments, str):
        # The arguments as an object instead of its text.
        arguments, odd = encode(arguments).decode(), "arguments as an object"
    extras = {key: value for key, value in entry.items() if key not in ("index", "id", "type", "function")}
    inner = {key: value for key, value in function.items() if key not in ("name", "arguments")}
    if inner:
        extras["function"] = inner
    custom = entry.get("custom")
    if isinstance(custom, dict) and not function:
        # A tool that takes one free text, which need not be JSON.
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
    """The entry that tells this piece: of a delta when it has an index, of a whole message when it has none."""
    extras = dict(piece.extras)
    function = {"arguments": piece.arguments, **extras.pop("function", {})}
    entry: dict[str, Any] = {"index": piece.index} if piece.index is not None else {}
    if piece.id is not None:
        entry["id"] = piece.id
    if piece.name is not None or piece.index is None:
        # In a whole message an entry is a whole call: its type and name have their place, even if there is no name.
        entry["type"] = "function"
        function = {"name": piece.name, **function}
    return {**entry, "function": function, **extras}


def _oddity(entry: dict[str, Any]) -> str:
    if not isinstance(entry.get("index"), int):
        return "no index" if entry.get("index") is None else "an index that is no number"
    if _text(entry.get("id")) and not entry.get("type"):
        return "no type"
    function = entry.get("function")
    nulls = any(entry.get(key, "") is None for key in ("id", "type"))
    # Packages that add deltas up stumble over a text that becomes nothing.
    return "null fields" if nulls or (isinstance(function, dict) and function.get("name", "") is None) else ""


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def has_index(choice: Mapping[str, Any]) -> bool:
    """Whether a choice has its index as a number."""
    return type(choice.get("index")) is int


def read_index(value: Any) -> int | None:
    """An index that came as a number or as its text."""
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        return int(value)
    return None
