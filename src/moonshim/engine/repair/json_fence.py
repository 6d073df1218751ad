"""Events of a response that should be JSON -> the same, without a code fence around all of its text.

Models write JSON into a code block although they are asked for raw JSON, and SDKs parse the text as it is. Nothing
else is done about the form: whether the JSON is what the client asked for, the client checks.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from moonshim.engine.values.events import BlockClosed, BlockDelta, BlockOpened, Event, Failed, Finished, Repaired
from moonshim.engine.values.text_pieces import TextPieces

__all__ = ["JsonFence"]

_FENCE: Final = "```"
_LABEL: Final = re.compile(r"[A-Za-z0-9_+-]{0,20}[ \t]*\r?\n")
_is_json: Final = msgspec.json.Decoder(msgspec.Raw).decode


class JsonFence:
    """Serves one choice. Text that does not begin with a fence passes at once.

    The rest is held, at most `limit` characters, until the response ends: then its text is one fence with JSON in it,
    or leaves as it came.
    """

    __slots__ = ("_block", "_held", "_is_fenced", "_limit", "_size", "_text", "is_undecided")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: list[Event] = []
        self._block = -1
        """The block of text that is held."""
        self._text = TextPieces()
        self._size = 0
        self._is_fenced = False
        """Whether the text begins with a fence."""
        self.is_undecided: bool = True
        """Whether the next text may be held."""

    def feed(self, events: list[Event]) -> list[Event]:
        """The events that leave now."""
        return [one for event in events for one in self._feed(event)] if self.is_undecided else events

    def _feed(self, event: Event) -> list[Event]:
        if not self.is_undecided:
            return [event]
        match event:
            case BlockDelta(index=index, text=text) if index == self._block:
                self._held.append(event)
                self._text.append(text)
                self._size += len(text)
                return [] if self._may_be_fenced() and self._size <= self._limit else self._release()
            case BlockClosed(index=index) if index == self._block:
                self._held.append(event)
                return []
            case BlockOpened(kind="text") if self._block < 0:
                self._block = event.index
                self._held.append(event)
                return []
            case BlockOpened() if self._block >= 0 or event.kind == "call":
                return [*self._release(), event]
            case Finished():
                return [*self._unwrap(), event]
            case Failed():
                return [*self._release(), event]
        return [event]

    def _may_be_fenced(self) -> bool:
        if not self._is_fenced:
            head = "".join(self._text).lstrip()
            self._text = TextPieces()
            self._text.append(head)
            self._is_fenced = head.startswith(_FENCE)
            return self._is_fenced or _FENCE.startswith(head)
        return True

    def _unwrap(self) -> list[Event]:
        """The response is complete: the JSON in the fence, if that is all there is."""
        held, text = self._release(), "".join(self._text).strip()
        if not self._is_fenced or not text.endswith(_FENCE) or len(text) < 2 * len(_FENCE):
            return held
        label = _LABEL.match(text, len(_FENCE))
        inside = text[label.end() if label is not None else len(_FENCE) : -len(_FENCE)].strip()
        try:
            _is_json(inside)
        except (msgspec.DecodeError, ValueError, RecursionError):
            return held
        block = self._block
        closed = [event for event in held if isinstance(event, BlockClosed)]
        return [
            Repaired("json_fence", "the code fence around the JSON was removed"),
            BlockOpened(block, "text"),
            BlockDelta(block, inside),
            *closed,
        ]

    def _release(self) -> list[Event]:
        held, self._held, self.is_undecided = self._held, [], False
        return held
