"""Chat message content <-> canonical parts.

Content is a string, a list of entries, null, or missing. A list has a slot for each entry: None where the part
describes it fully, otherwise the rest of the entry, so that unknown fields (`cache_control`) are returned in place.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias

from msgspec import UNSET

from moonshim.engine.dialects.openai_chat.extras import DIALECT, ChatMediaExtras, ContentSlot, media_extras
from moonshim.engine.values.conversation import Media, Text
from moonshim.engine.values.copies import deep_copy

__all__ = ["Content", "parse_content", "render_content"]

Content: TypeAlias = Text | Media

_BY_URL: Final[dict[str, Literal["image", "video"]]] = {"image_url": "image", "video_url": "video"}
_DATA_URL: Final = re.compile(r"data:([^;,]+);base64,(.*)", re.DOTALL)


def parse_content(entries: list[Any]) -> tuple[list[Content], list[ContentSlot | None]]:
    """The parts of a content list, and a slot for every entry."""
    parts, slots = list[Content](), list[ContentSlot | None]()
    for entry in entries:
        part = _parse_entry(entry)
        if part is None:
            slots.append(ContentSlot(raw=deep_copy(entry)))
            continue
        parts.append(part)
        others = {k: deep_copy(v) for k, v in entry.items() if k not in ("type", "text")}
        slots.append(ContentSlot(others) if isinstance(part, Text) and others else None)
    return parts, slots


def render_content(parts: Sequence[Content], slots: Sequence[ContentSlot | None] = ()) -> list[Any]:
    """The content list for these parts, in the order of the slots; parts without a slot come last."""
    left, out = list(reversed(parts)), list[Any]()
    for slot in slots:
        if slot is not None and slot.raw is not UNSET:
            out.append(deep_copy(slot.raw))
        elif left:
            part = left.pop()
            others = deep_copy(slot.text) if slot is not None and isinstance(part, Text) else {}
            out.append(_render_part(part) | others)
    return out + [_render_part(part) for part in reversed(left)]


def _parse_entry(entry: Any) -> Content | None:
    if not isinstance(entry, dict):
        return None
    match entry.get("type"):
        case "text" if isinstance(entry.get("text"), str):
            return Text(entry["text"])
        case ("image_url" | "video_url") as key:
            return _parse_url(entry, key)
        case "input_audio":
            return _parse_audio(entry)
        case "file":
            return _parse_file(entry)
    return None


def _parse_url(entry: dict[str, Any], key: str) -> Media | None:
    inner = entry.get(key)
    # Some clients write the URL itself where the protocol has an object around it.
    address = inner.get("url") if isinstance(inner, dict) else inner
    if not isinstance(address, str):
        return None
    media_type, data = _split_data_url(address)
    return Media(
        _BY_URL[key],
        url=None if data is not None else address,
        data=data,
        media_type=media_type,
        extras=_extras(entry, key, "url", "detail"),
        detail=_text(inner, "detail"),
    )


def _parse_audio(entry: dict[str, Any]) -> Media | None:
    inner = entry.get("input_audio")
    if (
        not isinstance(inner, dict)
        or not isinstance(inner.get("data"), str)
        or not isinstance(inner.get("format"), str)
    ):
        return None
    return Media(
        "audio",
        data=inner["data"],
        media_type=f"audio/{inner['format']}",
        extras=_extras(entry, "input_audio", "data", "format"),
    )


def _parse_file(entry: dict[str, Any]) -> Media | None:
    inner = entry.get("file")
    if not isinstance(inner, dict):
        return None
    name, address = _text(inner, "filename"), _text(inner, "file_data")
    if address is None:
        # Its host knows the content, and nobody else.
        is_stored = isinstance(inner.get("file_id"), str)
        return Media("file", extras=_extras(entry, "file", "filename"), name=name) if is_stored else None
    media_type, data = _split_data_url(address)
    if data is not None:
        return Media("file", None, data, media_type, _extras(entry, "file", "file_data", "filename"), name=name)
    # OpenRouter accepts a URL in place of the data; some clients send the data without a URL around it.
    is_url = address.startswith(("https://", "http://", "data:"))
    url, data = (address, None) if is_url else (None, address)
    return Media("file", url, data, None, _extras(entry, "file", "filename"), name=name)


def _text(inner: Any, key: str) -> str | None:
    value = inner.get(key) if isinstance(inner, dict) else None
    return value if isinstance(value, str) else None


def _split_data_url(address: str) -> tuple[str | None, str | None]:
    found = _DATA_URL.fullmatch(address)
    return (found[1], found[2]) if found else (None, None)


def _extras(entry: dict[str, Any], key: str, *held: str) -> dict[str, Any]:
    """The other fields of an entry: outside of the inner object, inside it, or a flag that it is missing."""
    inner = entry[key]
    outer = {k: deep_copy(v) for k, v in entry.items() if k not in ("type", key)}
    if not isinstance(inner, dict):
        return {DIALECT: ChatMediaExtras(outer, bare=True)}
    others = {k: deep_copy(v) for k, v in inner.items() if k not in held or not isinstance(v, str)}
    return {DIALECT: ChatMediaExtras(outer, others)} if outer or others else {}


def _render_part(part: Content) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    extras = media_extras(part)
    if part.data is not None and part.kind != "audio":
        address = f"data:{part.media_type or 'application/octet-stream'};base64,{part.data}"
    elif part.url is None and part.data is None and not extras.inner:
        return {
            "type": "text",
            "text": f"[{part.name or part.kind}: stored at another service, which only it can read]",
        }
    else:
        address = part.url or ""
    inner: Any
    match part.kind:
        case "audio" if part.data is not None:
            key, inner = "input_audio", {"data": part.data, "format": (part.media_type or "").removeprefix("audio/")}
        case "image" | "video":
            key, inner = f"{part.kind}_url", address if extras.bare else {"url": address}
        case "file" | "audio":
            key, inner = "file", {"file_data": address} if address else {}
    if isinstance(inner, dict):
        if part.detail is not None and part.kind in ("image", "video"):
            inner["detail"] = part.detail
        if part.name is not None and key == "file":
            inner["filename"] = part.name
        inner |= deep_copy(extras.inner)
    return {"type": key, key: inner, **deep_copy(extras.outer)}
