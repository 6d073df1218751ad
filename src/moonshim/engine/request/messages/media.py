"""Images, audio, video and documents -> media that the host accepts; others become text, or are refused."""

from __future__ import annotations

from operator import is_
from typing import Final

from msgspec.structs import replace

from moonshim.engine.hosts.profile import HostProfile
from moonshim.engine.request.located import LocatedMessage
from moonshim.engine.request.messages.documents import Documents, adapt_document, is_document
from moonshim.engine.values.conversation import Change, Media, Message, Part, Text, ToolResult
from moonshim.errors import CannotExpress

__all__ = ["adapt_media", "move_media"]


def adapt_media(
    messages: list[LocatedMessage], profile: HostProfile, changes: list[Change], documents: Documents
) -> list[LocatedMessage]:
    """Replace documents where the host accepts no files: see `documents`.

    Raises `CannotExpress` for other current media that the model cannot read. Such media from earlier turns, shown to
    another model, are replaced by a note: a conversation must be able to continue after a change of model.
    """
    adapter = _MediaAdapter(profile, changes, documents)
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
    def __init__(self, profile: HostProfile, changes: list[Change], documents: Documents) -> None:
        self._profile, self._changes, self._documents = profile, changes, documents
        self._old = False

    def adapt_message(self, located: LocatedMessage, *, old: bool) -> Message:
        self._old = old
        parts = list[Part]()
        for part in located.message.parts:
            if isinstance(part, Media):
                parts += self._adapt_media(part, located.place)
            elif isinstance(part, ToolResult):
                parts.append(self._adapt_result(part, located.place))
            else:
                parts.append(part)
        if len(parts) == len(located.message.parts) and all(map(is_, parts, located.message.parts)):
            return located.message
        return replace(located.message, parts=tuple(parts))

    def _adapt_result(self, result: ToolResult, place: str | None) -> ToolResult:
        if not any(isinstance(part, Media) for part in result.parts):
            return result
        parts = list[Text | Media]()
        for part in result.parts:
            parts += self._adapt_media(part, place) if isinstance(part, Media) else (part,)
        return result if tuple(parts) == result.parts else replace(result, parts=tuple(parts))

    def _adapt_media(self, media: Media, place: str | None) -> tuple[Text | Media, ...]:
        accepted = self._profile.media
        # A file that is stored at another host can be named only in the words of that host.
        is_stored = media.url is None and media.data is None
        if is_stored and media.kind in accepted and self._profile.dialect in media.extras:
            return (media,)
        if is_document(media) and (is_stored or "file" not in accepted):
            shown = adapt_document(media, self._documents, sees_images="image" in accepted)
            self._changes += [replace(change, place=place) for change in shown.changes]
            return shown.parts
        if media.kind in accepted:
            return (media,)
        what = f"{_ARTICLES[media.kind]} {media.kind}"
        if self._old:
            self._changes.append(
                Change("media_left_out", f"{what} replaced with a note: this model does not accept it", place)
            )
            return (Text(f"[{what[0].upper()}{what[1:]} was here, which you cannot see]"),)
        raise CannotExpress(
            f"this model does not accept {what} (host {self._profile.host}, generation {self._profile.generation})",
            field=place,
        )


_ARTICLES: Final = {"image": "an", "audio": "an", "video": "a", "file": "a"}


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
                Change(
                    "media_moved",
                    "media moved to the next message: the host accepts them only in user messages",
                    located.place,
                )
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
