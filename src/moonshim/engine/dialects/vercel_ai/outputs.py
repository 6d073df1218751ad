"""Tool output and media of the AI SDK <-> canonical parts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from moonshim.engine.values.conversation import Media, Text

__all__ = ["NO_RESULT", "parse_output", "render_media", "render_output"]

NO_RESULT: Final = "[no tool result]"
"""The content of an empty result: the SDK cannot represent an empty one."""


def parse_output(output: dict[str, Any]) -> tuple[tuple[Text | Media, ...], bool]:
    """The content of the result, and whether it is an error.

    >>> parse_output({"type": "error-text", "value": "no such file"})
    ((Text(text='no such file'),), True)
    """
    match output:
        case {"type": "text", "value": str(text)}:
            return (Text(text),), False
        case {"type": "error-text", "value": str(text)}:
            return (Text(text),), True
        case {"type": "json", "value": value}:
            return (Text(_encode(value)),), False
        case {"type": "error-json", "value": value}:
            return (Text(_encode(value)),), True
        case {"type": "content", "value": list(entries)}:
            return tuple(part for part in map(_parse_entry, entries) if part is not None), False
        case {"type": "execution-denied"}:
            reason = output.get("reason")
            return (Text(reason if isinstance(reason, str) else "execution denied"),), True
    return (Text(_encode(output)),), False


def render_output(parts: Sequence[Text | Media], is_error: bool) -> dict[str, Any]:
    """Text if the result is text only, otherwise a list of contents.

    >>> render_output([Text("12 degrees")], False)
    {'type': 'text', 'value': '12 degrees'}
    """
    if not parts:
        return {"type": "error-text" if is_error else "text", "value": NO_RESULT}
    texts = [part.text for part in parts if isinstance(part, Text)]
    if len(texts) == len(parts):
        return {"type": "error-text" if is_error else "text", "value": "\n".join(texts)}
    return {"type": "content", "value": [_render_entry(part) for part in parts]}


def render_media(media: Media) -> dict[str, Any]:
    """A message part: `image`, or `file` for anything else."""
    key, where = ("image", "image") if media.kind == "image" else ("file", "data")
    part = {"type": key, where: media.url if media.data is None else media.data}
    return part if media.media_type is None else part | {"mediaType": media.media_type}


def _parse_entry(entry: Any) -> Text | Media | None:
    match entry:
        case {"type": "text", "text": str(text)}:
            return Text(text)
        case {"type": "media" | "image-data" | "file-data", "data": str(data), "mediaType": str(media_type)}:
            return Media("image" if media_type.startswith("image/") else "file", data=data, media_type=media_type)
        case {"type": "image-url", "url": str(url)}:
            return Media("image", url=url)
        case {"type": "file-url", "url": str(url)}:
            return Media("file", url=url)
    return None


def _render_entry(part: Text | Media) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    kind = "image" if part.kind == "image" else "file"
    if part.data is None:
        return {"type": f"{kind}-url", "url": part.url}
    return {"type": f"{kind}-data", "data": part.data, "mediaType": part.media_type or "application/octet-stream"}


def _encode(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
