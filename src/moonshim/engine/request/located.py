"""Messages of a request, each with its location in the client's body and its turn, and back again."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from moonshim.engine.values.conversation import Change, Message, Part, Request

__all__ = ["ChangeCounter", "LocatedMessage", "locate_messages", "replace_messages"]


class LocatedMessage(Struct, frozen=True):
    """A message on its way to the host."""

    message: Message
    turn: int
    """The turn it belongs to. A turn starts with an assistant message that follows another role. Everything before it
    has already been sent to the host and must not be changed by what comes later."""
    place: str | None = None
    """Path in the client's body."""

    def with_parts(self, *parts: Part) -> LocatedMessage:
        """Copy with other parts."""
        return replace(self, message=replace(self.message, parts=parts))

    def with_message(self, message: Message) -> LocatedMessage:
        """Copy with another message; `self` when the message is the same object."""
        return self if message is self.message else replace(self, message=message)


class ChangeCounter:
    """Collects equal changes to many messages and reports them once per rule."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], list[str | None]] = {}

    def add(self, rule: str, detail: str, place: str | None) -> None:
        self._seen.setdefault((rule, detail), []).append(place)

    def changes(self) -> Iterable[Change]:
        """One change per rule, at the first place where it occurred."""
        for (rule, detail), places in self._seen.items():
            count = f" ({len(places)} messages)" if len(places) > 1 else ""
            yield Change(rule, detail + count, places[0])


def locate_messages(request: Request) -> list[LocatedMessage]:
    """The messages of a request in order, with their locations and turns."""
    out, turn, before = list[LocatedMessage](), 0, ""
    places = request.locations
    for position, message in enumerate(request.messages):
        turn += message.role == "assistant" and before != "assistant"
        before = message.role
        out.append(LocatedMessage(message, turn, places[position] if position < len(places) else None))
    return out


def replace_messages(request: Request, messages: list[LocatedMessage]) -> Request:
    """Return the request with these messages; the same object when nothing changed."""
    received = request.messages
    if len(received) == len(messages) and all(
        old is located.message for old, located in zip(received, messages, strict=True)
    ):
        return request
    places = tuple(located.place or "messages" for located in messages) if request.locations else ()
    return replace(request, messages=tuple(located.message for located in messages), locations=places)
