"""The name of a dialect -> the dialect, imported on first use."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, Final

from msgspec.structs import replace

from moonshim.engine.dialects.extras import load_extras
from moonshim.engine.dialects.protocol import Dialect
from moonshim.engine.values.conversation import Media, Message, Part, ToolResult
from moonshim.errors import InvalidInput

__all__ = ["CLIENT_DIALECTS", "UPSTREAM_DIALECTS", "dialect_named", "with_typed_extras"]

_HOMES: Final = {
    "openai_chat": "OPENAI_CHAT",
    "anthropic": "ANTHROPIC",
    "openai_responses": "OPENAI_RESPONSES",
}
CLIENT_DIALECTS: Final = tuple(_HOMES)
UPSTREAM_DIALECTS: Final = ("openai_chat", "anthropic")


def dialect_named(name: str, *, field: str = "dialect", among: tuple[str, ...] = CLIENT_DIALECTS) -> Dialect:
    """The dialect of this name. Raises `InvalidInput`, which lists the existing ones.

    >>> dialect_named("openai_chat").name
    'openai_chat'
    """
    if not isinstance(name, str) or name not in among:
        shown = repr(name) if isinstance(name, str) else type(name).__name__
        raise InvalidInput(f"unknown {field} {shown}; expected one of: {', '.join(among)}", field=field)
    return _load(name)


def with_typed_extras(message: Message) -> Message:
    """Restore the typed extras of a message that was loaded from a file, where they are plain objects."""
    parts = tuple(map(_typed_part, message.parts))
    if not message.extras and all(new is old for new, old in zip(parts, message.parts, strict=True)):
        return message
    return replace(message, parts=parts, extras=_typed_extras(message.extras, "message_extras"))


def _typed_part(part: Part) -> Part:
    if isinstance(part, Media) and part.extras:
        return _typed_media(part)
    if isinstance(part, ToolResult) and any(isinstance(inner, Media) and inner.extras for inner in part.parts):
        inner = tuple(_typed_media(inner) if isinstance(inner, Media) else inner for inner in part.parts)
        return replace(part, parts=inner)
    return part


def _typed_media(media: Media) -> Media:
    return replace(media, extras=_typed_extras(media.extras, "media_extras"))


def _typed_extras(extras: dict[str, Any], kind: str) -> dict[str, Any]:
    return {
        name: load_extras(value, getattr(_load(name), kind)) if name in _HOMES else value
        for name, value in extras.items()
    }


@cache
def _load(name: str) -> Dialect:
    found: Dialect = getattr(import_module(f"moonshim.engine.dialects.{name}.dialect"), _HOMES[name])
    return found
