"""Message content or tool output <-> canonical parts.

Content is a string, a list of entries, null, or missing. The content itself is kept, and parsed again for rendering:
what still equals its part is written as received.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias, TypeVar

from moonshim.engine.dialects.openai_responses.extras import DIALECT, Json, ResponsesMediaExtras, media_fields
from moonshim.engine.values.conversation import Media, Part, Reasoning, Role, Text, ToolCall, ToolResult
from moonshim.engine.wire.json_fields import (
    OBJECT,
    STRING,
    JsonType,
    check_fields,
    check_value,
    read_required,
    wrong_type,
)
from moonshim.errors import InvalidInput

__all__ = ["TEXT_TYPES", "Content", "align", "parse_content", "parse_entries", "render_content", "render_entry"]

Content: TypeAlias = Text | Media
TextType: TypeAlias = Literal["input_text", "output_text"]

TEXT_TYPES: Final[dict[Role, TextType]] = {
    "user": "input_text",
    "system": "input_text",
    "tool": "input_text",
    "assistant": "output_text",
}
_TEXTS: Final = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
_DATA_URL: Final = re.compile(r"data:([^;,]+);base64,")
_MEDIA: Final[dict[str, Literal["image", "file", "audio"]]] = {
    "input_image": "image",
    "input_file": "file",
    "input_audio": "audio",
}
_MEDIA_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "image": ("type", "image_url", "detail"),
    "file": ("type", "file_data", "file_url", "filename", "detail"),
    "audio": ("type", "input_audio"),
}
"""The fields of an entry that its part determines; all others are kept in the part's extras."""
_MEDIA_TYPES: Final[dict[str, JsonType]] = dict.fromkeys(("detail", "file_id", "file_url", "filename"), STRING)


# --- entries -> parts -------------------------------------------------------------------------------------------


def parse_content(content: Any, where: str) -> list[Content]:
    """The parts of content; entries without a canonical form (an unknown type) are skipped.

    >>> parse_content("hi", "input[0].content")
    [Text(text='hi')]
    """
    return [part for part in parse_entries(content, where) if part is not None]


def parse_entries(content: Any, where: str) -> list[Content | None]:
    """A part for every entry, None for one without a canonical form. A string is one entry."""
    if isinstance(content, str):
        return [Text(content)]
    if content is None:
        return []
    if not isinstance(content, list):
        raise wrong_type(where, "a string or a list of parts", content)
    return [_parse_entry(entry, where, number) for number, entry in enumerate(content)]


def _parse_entry(entry: Any, where: str, number: int) -> Content | None:
    within = f"{where}[{number}]"
    check_value(entry, OBJECT, within)
    within += "."
    kind = read_required(entry, "type", STRING, within)
    key = _TEXTS.get(kind)
    if key is not None:
        return Text(read_required(entry, key, STRING, within))
    media = _MEDIA.get(kind)
    return None if media is None else _parse_media(entry, media, within)


def _parse_media(entry: Json, kind: Literal["image", "file", "audio"], within: str) -> Media | None:
    if kind == "audio":
        return _parse_audio(entry, within)
    check_fields(entry, _MEDIA_TYPES, within)
    key = "image_url" if kind == "image" else "file_data"
    # As in Chat, some clients write an object around the URL.
    address = entry.get(key)
    if isinstance(address, dict):
        address = read_required(address, "url", STRING, f"{within}{key}.")
    elif address is not None:
        check_value(address, STRING, f"{within}{key}")
    data, media_type, url = None, None, None
    if isinstance(address, str):
        matches = _DATA_URL.match(address)
        if matches is not None:
            media_type, data = matches[1], address[matches.end() :]
        elif kind == "image":
            url = address
        else:
            data = address
    elif kind == "file" and entry.get("file_url") is not None:
        url = entry["file_url"]
    elif entry.get("file_id") is None:
        raise InvalidInput(f"{within}{key} is required", field=f"{within}{key}")
    return Media(kind, url, data, media_type, _other_fields(entry, kind), entry.get("filename"), entry.get("detail"))


def _parse_audio(entry: Json, within: str) -> Media:
    audio = read_required(entry, "input_audio", OBJECT, within)
    within += "input_audio."
    data, format = (read_required(audio, key, STRING, within) for key in ("data", "format"))
    return Media("audio", None, data, f"audio/{format}", _other_fields(entry, "audio"))


def _other_fields(entry: Json, kind: str) -> Json:
    known = _MEDIA_FIELDS[kind]
    others = {key: value for key, value in entry.items() if key not in known}
    return {DIALECT: ResponsesMediaExtras(others)} if others else {}


# --- parts -> entries -------------------------------------------------------------------------------------------


def render_content(parts: Sequence[Part], received: Any, text_type: TextType) -> tuple[Any, list[Media]]:
    """The content for these parts, as received where it still equals them; and the media that cannot be represented.

    >>> render_content([Text("hi")], "ho", "input_text")
    ('hi', [])
    >>> render_content([Text("hi")], None, "input_text")
    ([{'type': 'input_text', 'text': 'hi'}], [])
    """
    if isinstance(received, str) and len(parts) == 1 and isinstance(parts[0], Text):
        return parts[0].text, []
    if not isinstance(received, list):
        return _render_pairs([(None, part) for part in parts], text_type)
    old_parts = parse_entries(received, "")
    if [part for part in old_parts if part is not None] == list(parts):
        return received, []
    pairs = [(None if place is None else received[place], part) for place, part in align(old_parts, parts)]
    return _render_pairs(pairs, text_type)


def _render_pairs(pairs: list[tuple[Any, Part | None]], text_type: TextType) -> tuple[list[Any], list[Media]]:
    entries, unsupported = list[Any](), list[Media]()
    for received, part in pairs:
        entry = received if part is None else render_entry(part, received, text_type)
        if entry is None and isinstance(part, Media):
            unsupported.append(part)
        elif entry is not None:
            entries.append(entry)
    return entries, unsupported


def render_entry(part: Part, received: Any, text_type: TextType) -> Json | None:
    """The entry for a part; None if Responses has none. Other fields of a received entry stay."""
    if isinstance(part, Text):
        if not isinstance(received, dict):
            return {"type": text_type, "text": part.text}
        key = _TEXTS[received["type"]]
        return received if received[key] == part.text else {**received, key: part.text}
    if not isinstance(part, Media) or text_type == "output_text":
        return None
    if isinstance(received, dict) and _parse_entry(received, "", 0) == part:
        return received
    entry = _render_media(part)
    return None if entry is None else {**entry, **media_fields(part)}


def _render_media(part: Media) -> Json | None:
    address = part.url
    if part.data is not None:
        address = f"data:{part.media_type or 'application/octet-stream'};base64,{part.data}"
    match part.kind:
        case "image" if address is not None:
            out: Json = {"type": "input_image", "image_url": address}
            return out | ({"detail": part.detail} if part.detail is not None else {})
        case "file" if address is not None:
            out = {"type": "input_file", "file_data" if part.data is not None else "file_url": address}
            out |= {"filename": part.name} if part.name is not None else {}
            return out | ({"detail": part.detail} if part.detail is not None else {})
        case "audio" if part.data is not None:
            format = (part.media_type or "").removeprefix("audio/")
            return {"type": "input_audio", "input_audio": {"data": part.data, "format": format}}
    return None


# --- alignment --------------------------------------------------------------------------------------------------------


P = TypeVar("P", bound=Part)
Key: TypeAlias = tuple[str | None, ...]


def align(old_parts: Sequence[Part | None], parts: Sequence[P]) -> list[tuple[int | None, P | None]]:
    """Match each original place with one of the current parts.

    If the same kinds of parts are in the same order, each keeps its place, changed or not. Otherwise parts were added
    or removed: a part gets the place that equals it, or none. Places that are not parts (None) stay; places of
    removed parts are dropped. Linear.

    >>> align([Text("a"), None, Text("b")], [Text("b"), Text("c"), Text("d")])
    [(1, None), (2, Text(text='b')), (None, Text(text='c')), (None, Text(text='d'))]
    """
    places = [place for place, part in enumerate(old_parts) if part is not None]
    if [type(old_parts[place]) for place in places] == [type(part) for part in parts]:
        matches: list[int | None] = list(places)
    else:
        waiting: dict[Key, deque[int]] = {}
        for place in places:
            part = old_parts[place]
            assert part is not None
            waiting.setdefault(_key(part), deque()).append(place)
        matches = [queue.popleft() if (queue := waiting.get(_key(part))) else None for part in parts]
    out, bare = list[tuple[int | None, P | None]](), deque(p for p, part in enumerate(old_parts) if part is None)
    for at, now in zip(matches, parts, strict=True):
        while bare and at is not None and bare[0] < at:
            out.append((bare.popleft(), None))
        out.append((at, now))
    return out + [(place, None) for place in bare]


def _key(part: Part) -> Key:
    match part:
        case Text(text=text):
            return ("text", text)
        case Reasoning(text=text, signature=signature):
            return ("reasoning", text, signature)
        case ToolCall(wire_id=wire_id, name=name):
            return ("call", wire_id, name)
        case ToolResult(wire_id=wire_id):
            return ("result", wire_id)
        case Media(kind=kind, url=url, data=data):
            return ("media", kind, url, data)
