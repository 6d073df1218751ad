"""One output item, told in pieces, whole, or both, becomes what the host says with it: each character once."""

from __future__ import annotations

from typing import Any

from moonshim.engine.dialects.openai_responses.extras import Json
from moonshim.engine.dialects.openai_responses.messages.items import CALLS, call_payload
from moonshim.engine.dialects.openai_responses.tools import flat_name
from moonshim.engine.grammar.protocol import Channel
from moonshim.engine.upstream_events import SignatureReported, TextDelta, ToolCallEnded, UpstreamEvent
from moonshim.engine.values.events import CallPiece
from moonshim.engine.wire.json_codec import encode
from moonshim.errors import InvalidInput

__all__ = ["ItemDecoder"]

_PARAGRAPH = "\n\n"


class ItemDecoder:
    """Follows one item. Whatever comes twice (a piece, then the whole) is told once.

    It counts characters instead of keeping them: of a whole text, what is longer than
    what was told before is new.
    """

    def __init__(self, type: str, call_index: int | None) -> None:
        self.type = type
        self.id: str | None = None
        self.call_id: str | None = None
        self.call_index = call_index
        self.is_done = False
        self._told: dict[tuple[str, int], int] = {}
        self._shows: str | None = None
        """Whether a piece of reasoning shows its `content` or its `summary`: never both."""
        self._last: int | None = None
        self._named = False
        self._signed = False

    # --- text and reasoning ------------------------------------------------------------------------------------

    def grow(self, field: str, place: int, piece: str) -> list[UpstreamEvent]:
        """A piece of one text of the item."""
        if not self._is_shown(field) or not piece:
            return []
        self._told[field, place] = self._told.get((field, place), 0) + len(piece)
        return [TextDelta(self._channel(field), self._between(field, place) + piece)]

    def say(self, field: str, place: int, whole: str) -> list[UpstreamEvent]:
        """One text of the item, whole."""
        if not self._is_shown(field):
            return []
        return self.grow(field, place, whole[self._told.get((field, place), 0) :])

    def _is_shown(self, field: str) -> bool:
        if field in ("content", "summary") and self._shows is None:
            self._shows = field
        return field == "text" or field == self._shows

    def _channel(self, field: str) -> Channel:
        return "text" if field == "text" else "reasoning"

    def _between(self, field: str, place: int) -> str:
        """The parts of a summary are paragraphs."""
        last, self._last = self._last, place
        return _PARAGRAPH if field == "summary" and last not in (None, place) else ""

    # --- calls -------------------------------------------------------------------------------------------------

    def ask(self, piece: str) -> list[UpstreamEvent]:
        """A piece of what a call is asked."""
        told = self._told.get(("asked", 0), 0)
        self._told["asked", 0] = told + len(piece)
        if self.type == "custom_tool_call":
            start = "" if told else '{"input":"'
            piece = start + _escaped(piece)
        return [CallPiece(self.call_index, arguments=piece)] if piece else []

    def ask_whole(self, whole: str) -> list[UpstreamEvent]:
        told = self._told.get(("asked", 0), 0)
        return self.ask(whole[told:]) if len(whole) > told else []

    def _name(self, item: Json) -> list[UpstreamEvent]:
        how = CALLS[self.type]
        name, namespace, call_id = how.name or item.get("name"), item.get("namespace"), item.get("call_id")
        if self._named or not isinstance(name, str) or not name:
            return []
        self._named = True
        self.call_id = call_id if isinstance(call_id, str) else None
        flat = flat_name(namespace if isinstance(namespace, str) else None, name)
        return [CallPiece(self.call_index, self.call_id, flat)]

    # --- items -------------------------------------------------------------------------------------------------

    def read(self, item: Json, *, done: bool) -> list[UpstreamEvent]:
        """The item as it stands; `done` when it will not change any more."""
        if self.is_done:
            return []
        self.is_done = done
        if self.type in CALLS:
            return self._read_call(item, done=done)
        if self.type == "message":
            return _each(self, "text", item.get("content"))
        out = [*_each(self, "content", item.get("content")), *_each(self, "summary", item.get("summary"))]
        token = item.get("encrypted_content")
        if done and isinstance(token, str) and token and not self._signed:
            self._signed = True
            out.append(SignatureReported(token))
        return out

    def _read_call(self, item: Json, *, done: bool) -> list[UpstreamEvent]:
        how, out = CALLS[self.type], self._name(item)
        asked = item.get(how.payload)
        if isinstance(asked, str):
            out += self.ask_whole(asked)
        elif done and asked is not None:
            out += self.ask_whole(_written(asked))
        # One that broke off is not whole, however often its host says that it is done with it.
        if done and self.call_index is not None and item.get("status") != "incomplete":
            if self.type == "custom_tool_call":
                told = self._told.get(("asked", 0), 0)
                out.append(CallPiece(self.call_index, arguments='"}' if told else '{"input":""}'))
            out.append(ToolCallEnded(self.call_index))
        return out


def _each(item: ItemDecoder, field: str, entries: Any) -> list[UpstreamEvent]:
    out: list[UpstreamEvent] = []
    for place, entry in enumerate(entries if isinstance(entries, list) else ()):
        text = entry.get("text", entry.get("refusal")) if isinstance(entry, dict) else None
        if isinstance(text, str) and text:
            out += item.say(field, place, text)
    return out


def _written(asked: Any) -> str:
    try:
        return call_payload(asked)
    except InvalidInput:
        return ""


def _escaped(text: str) -> str:
    return encode(text)[1:-1].decode()
