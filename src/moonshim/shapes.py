"""Learns the shape of a host's chunks: where in the bytes the only text stands, so that the rest need not be parsed.

Most chunks of a stream differ in one string alone. If a chunk begins and ends with
the very bytes of one that was parsed before, and what is between is one JSON
string, then it says the same with another text: that is not a guess but follows
from the grammar of JSON. Everything else goes the long way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from moonshim.dialects.openai_chat.delta import read_pieces, read_speech, reasoning_fields
from moonshim.dialects.openai_chat.patch import ChoicePart, patch_chunk
from moonshim.dialects.openai_chat.segments import Segment
from moonshim.events import CallPiece
from moonshim.grammar.events import Channel
from moonshim.json_text import decode_object, encode
from moonshim.mending import Choice

__all__ = ["Shape", "learn_shape"]

_PROBE: Final = "\u2400moonshim\u2400"
_PROBE_TEXT: Final = msgspec.json.encode(_PROBE)
_FIELDS: Final = {
    field: re.compile(rb'"%b"[ \t]*:[ \t]*(?=("(?:[^"\\]|\\.)*"))' % field.encode())
    for field in ("content", "reasoning_content", "reasoning", "arguments")
}


class Shape:
    """One shape: `head`, a JSON string, `tail`. `channel` is None for the arguments of a native call."""

    __slots__ = ("_choice", "_chunk", "_frame", "_grown", "channel", "head", "index", "state", "tail")

    def __init__(
        self, head: bytes, tail: bytes, frame: tuple[int, int], chunk: Mapping[str, Any], state: Choice
    ) -> None:
        self.head = head
        """The bytes up to and with the opening quote."""
        self.tail = tail
        """The bytes from the closing quote on."""
        self.state = state
        self.channel: Channel | None = None
        self.index = -1
        self._frame = frame
        self._chunk = chunk
        self._choice: Mapping[str, Any] = chunk["choices"][0]
        self._grown: dict[int, tuple[bytes, bytes]] = {}

    def payload(self, raw: bytes) -> bytes:
        """The JSON text in a frame of this shape."""
        before, behind = self._frame
        return raw[before : len(raw) - behind]

    def grown(self, number: int) -> tuple[bytes, bytes]:
        """The payload that tells in this chunk's place that a call's arguments grew, around their text."""
        known = self._grown.get(number)
        if known is None:
            segment = Segment(calls=[CallPiece(number, None, None, _PROBE)])
            part = ChoicePart(self._choice, [segment], reasoning=self.state.reasoning)
            (patched,) = patch_chunk(self._chunk, [part], self._chunk.get("usage"))
            before, _, after = encode(patched).partition(_PROBE_TEXT)
            known = self._grown[number] = (before, after)
        return known


def learn_shape(raw: bytes, data: bytes, chunk: Mapping[str, Any], state: Choice) -> Shape | None:
    """The shape of this chunk, if all it tells is one text in one place."""
    choices = chunk.get("choices")
    if not isinstance(choices, list) or len(choices) != 1 or chunk.get("usage") is not None:
        return None
    choice = choices[0]
    delta = choice.get("delta") if isinstance(choice, dict) else None
    if not isinstance(delta, dict) or choice.get("finish_reason") or choice.get("usage") or delta.get("finish_reason"):
        return None
    field, piece = _only_text(delta)
    if field is None:
        return None
    for found in _FIELDS[field].finditer(data):
        start, end = found.span(1)
        if decode_object(data[:start] + _PROBE_TEXT + data[end:]) == _with_probe(chunk, choice, delta, field):
            offset = raw.index(data)
            frame = (offset, len(raw) - offset - len(data))
            shape = Shape(raw[: offset + start + 1], raw[offset + end - 1 :], frame, chunk, state)
            if piece is not None and piece.index is not None:
                shape.index = piece.index
            else:
                shape.channel = "text" if field == "content" else "reasoning"
            return shape
    return None


def _only_text(delta: Mapping[str, Any]) -> tuple[str | None, CallPiece | None]:
    said, entries = read_speech(delta), delta.get("tool_calls")
    if entries:
        pieces = read_pieces(entries)
        if said.reasoning or said.content or len(pieces) != 1 or len(entries) != 1:
            return None, None
        piece = pieces[0]
        plain = piece.arguments and not (piece.odd or piece.id or piece.name or piece.extras)
        return ("arguments", piece) if plain else (None, None)
    if said.content and not said.reasoning:
        return "content", None
    fields = reasoning_fields(delta)
    if said.reasoning and not said.content and len(fields) == 1 and fields[0] in _FIELDS:
        return fields[0], None
    return None, None


def _with_probe(chunk: Mapping[str, Any], choice: Any, delta: dict[str, Any], field: str) -> dict[str, Any]:
    if field == "arguments":
        entry = delta["tool_calls"][0]
        entry = {**entry, "function": {**entry["function"], "arguments": _PROBE}}
        delta = {**delta, "tool_calls": [entry]}
    else:
        delta = {**delta, field: _PROBE}
    return {**chunk, "choices": [{**choice, "delta": delta}]}
