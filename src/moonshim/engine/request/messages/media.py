"""Images, audio, video and documents -> media that the host accepts; others become text or are refused."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

from msgspec.structs import replace

from moonshim.engine.hosts.profile import HostProfile
from moonshim.engine.request.located import LocatedMessage
from moonshim.engine.values.conversation import Change, Media, Message, Part, Text, ToolResult
from moonshim.errors import CannotExpress

__all__ = ["adapt_media", "move_media"]

_TEXTUAL: Final = re.compile(
    r"(?:text/[^;]*|application/(?:json|xml|yaml|x-yaml|toml|javascript|x-ndjson|[^;]*\+(?:json|xml)))(?:;.*)?",
    re.IGNORECASE,
)


def adapt_media(messages: list[LocatedMessage], profile: HostProfile, changes: list[Change]) -> list[LocatedMessage]:
    """Send text documents as text where the host accepts no files.

    Raises `CannotExpress` for current media that the model cannot read. Media from earlier turns, shown to another
    model, are replaced by a note: a conversation must be able to continue after a change of model.
    """
    adapter = _MediaAdapter(profile, changes)
    answered = max(
        (number for number, located in enumerate(messages) if located.message.role == "assistant"), default=-1
    )
    return [
        located.with_message(adapter.adapt_message(located, old=number < answered))
        if any(isinstance(part, (Media, ToolResult)) for part in located.message.parts)
        else located
        for number, located in enumerate(messages)
    ]


class _MediaAdapter:
    def __init__(self, profile: HostProfile, changes: list[Change]) -> None:
        self._profile, self._changes = profile, changes
        self._old = False

    def adapt_message(self, located: LocatedMessage, *, old: bool) -> Message:
        self._old = old
        parts = tuple(self._adapt_part(part, located.place) for part in located.message.parts)
        if all(new is old for new, old in zip(parts, located.message.parts, strict=True)):
            return located.message
        return replace(located.message, parts=parts)

    def _adapt_part(self, part: Part, place: str | None) -> Part:
        if isinstance(part, Media):
            return self._adapt_media(part, place)
        if isinstance(part, ToolResult) and any(isinstance(inner, Media) for inner in part.parts):
            inner = tuple(self._adapt_media(p, place) if isinstance(p, Media) else p for p in part.parts)
            return part if inner == part.parts else replace(part, parts=inner)
        return part

    def _adapt_media(self, media: Media, place: str | None) -> Text | Media:
        if media.kind in self._profile.media:
            return media
        text = _document_text(media)
        if text is None:
            what = "a document that is not text" if media.kind == "file" else f"{_ARTICLES[media.kind]} {media.kind}"
            if self._old:
                self._changes.append(
                    Change("media_left_out", f"this model cannot be shown {what}: a note says so", place)
                )
                return Text(f"[{what[0].upper()}{what[1:]} was here, which you cannot see]")
            raise CannotExpress(
                f"this model cannot be shown {what} ({self._profile.host}, {self._profile.generation})", field=place
            )
        self._changes.append(Change("document_text", "a document is sent as its text: the host takes no files", place))
        return Text(f"# {media.name}\n\n{text}" if media.name else text)


_ARTICLES: Final = {"image": "an", "audio": "an", "video": "a", "file": "a"}


def _document_text(media: Media) -> str | None:
    """The content of a text document, None for anything else."""
    if media.kind != "file" or media.data is None or _TEXTUAL.fullmatch(media.media_type or "") is None:
        return None
    try:
        return base64.b64decode(media.data, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


def move_media(messages: list[LocatedMessage], changes: list[Change], *, results: bool) -> list[LocatedMessage]:
    """Move media that are not allowed in their message into a user message, leaving a pointer in their place.

    Only user messages may hold media. Media in assistant and system messages always move; those in tool results move
    with `results`, since Chat results are text only. The user message follows the original message, or the results
    after it.
    """
    out, waiting = list[LocatedMessage](), list[Part]()
    for number, located in enumerate(messages):
        if not waiting and located.message.is_one_text:
            out.append(located)
            continue
        parts = list[Part]()
        for part in located.message.parts:
            if isinstance(part, ToolResult):
                part = _extract_media(part, waiting) if results else part
            elif isinstance(part, Media) and located.message.role in _MEDIA_OWNERS:
                part = _add_pointer(part, _MEDIA_OWNERS[located.message.role], waiting)
            elif waiting and located.message.role not in _MEDIA_OWNERS:
                # Results and other content in one message: media of the results go between them.
                parts += waiting
                waiting = []
            parts.append(part)
        if not all(new is old for new, old in zip(parts, located.message.parts, strict=False)):
            changes.append(
                Change("media_moved", "media may not stand here: they are in the next message", located.place)
            )
            located = located.with_parts(*parts)
        out.append(located)
        next_parts = messages[number + 1].message.parts if number + 1 < len(messages) else ()
        if waiting and not any(isinstance(part, ToolResult) for part in next_parts):
            out.append(LocatedMessage(Message("user", tuple(waiting)), located.turn, located.place))
            waiting = []
    return out


_MEDIA_OWNERS: Final = {"assistant": "the assistant", "system": "the system prompt"}


def _extract_media(result: ToolResult, waiting: list[Part]) -> ToolResult:
    """Replace media in the result with pointers and append the media to `waiting`."""
    if not any(isinstance(part, Media) for part in result.parts):
        return result
    whose = f"the result of tool {result.name}" if result.name else "the result"
    parts = (_add_pointer(part, whose, waiting) if isinstance(part, Media) else part for part in result.parts)
    return replace(result, parts=tuple(parts))


def _add_pointer(media: Media, whose: str, waiting: list[Part]) -> Text:
    number = len(waiting) // 2 + 1
    waiting += (Text(f"[{media.kind} {number}: from {whose}]"), media)
    return Text(f"[{media.kind} {number}: see the next message]")
