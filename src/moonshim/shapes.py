"""Learns the shape of a host's chunks: where in the bytes the only text stands, so that the rest need not be parsed.

Most chunks of a stream differ in one string alone. If a chunk begins and ends with
the very bytes of one that was parsed before, and what is between is one JSON
string, then it says the same with another text: that is not a guess but follows
from the grammar of JSON. Everything else goes the long way. The same holds for the
name of the model, where the client's is written over the host's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from moonshim.dialects.openai_chat.delta import read_pieces, read_speech, reasoning_fields
from moonshim.dialects.openai_chat.patch import ChoicePart, patch_chunk
from moonshim.dialects.openai_chat.segments import Segment
from moonshim.events import CallPiece
from moonshim.grammar.events import Channel
from moonshim.json_text import decode_object, encode
from moonshim.mending import Choice
from moonshim.sse import Frame

__all__ = ["Renamer", "Shape", "learn_shape"]

_PROBE: Final = "\u2400moonshim\u2400"
_PROBE_TEXT: Final = msgspec.json.encode(_PROBE)
_FIELDS: Final = {
    field: re.compile(rb'"%b"[ \t]*:[ \t]*(?=("(?:[^"\\]|\\.)*"))' % field.encode())
    for field in ("content", "reasoning_content", "reasoning", "arguments")
}
_NAME: Final = b'"model"'
_NAMED: Final = re.compile(rb'"model"[ \t\r\n]*:[ \t\r\n]*(?=("(?:[^"\\]|\\.)*"))')


class Shape:
    """One shape: `head`, a JSON string, `tail`. `channel` is None for the arguments of a native call."""

    __slots__ = (
        "_choice",
        "_chunk",
        "_frame",
        "_grown",
        "_sent",
        "channel",
        "head",
        "index",
        "renames",
        "state",
        "tail",
    )

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
        self._sent = (head, tail)
        self.renames = False
        """Whether frames leave with another name of the model than they come with."""
        self._frame = frame
        self._chunk = chunk
        self._choice: Mapping[str, Any] = chunk["choices"][0]
        self._grown: dict[int, tuple[bytes, bytes]] = {}

    def comes_as(self, raw: bytes, sent: bytes) -> bool:
        """A frame of this shape came as `raw`, with another name of the model in it: later ones come like that."""
        head, tail = self._sent
        longer = len(raw) - len(sent)
        text = sent[len(head) : len(sent) - len(tail)]
        if raw.startswith(head):
            tail = raw[len(head) + len(text) :]
        else:
            head = raw[: len(head) + longer]
        self.head, self.tail, self.renames = head, tail, True
        return head + text + tail == raw

    def sent(self, raw: bytes) -> bytes:
        """A frame that came, as it leaves: with the client's name of the model."""
        head, tail = self._sent
        if tail is self.tail:
            return head + raw[len(self.head) :]
        return raw[: len(raw) - len(self.tail)] + tail

    def payload(self, raw: bytes) -> bytes:
        """The JSON text in a frame of this shape, as it leaves."""
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


class Renamer:
    """Writes the client's name of the model into frames that say another one. Every other byte stays."""

    __slots__ = ("_before", "_name", "_render", "_sent", "_text")

    def __init__(self, name: str, render: Callable[[bytes, bytes], bytes]) -> None:
        self._name = name
        self._text = encode(name)
        self._render = render
        self._before = b"\n"
        """How a frame began that was renamed, up to the end of the name; at first what no payload begins with."""
        self._sent = b""

    def rename(self, frame: Frame, chunk: dict[str, Any]) -> Frame:
        """The frame of this chunk as it leaves, should nothing else have to change; the chunk says the same then."""
        if frame.data is None or chunk.get("model", self._name) == self._name:
            return frame
        try:
            data = self._written(frame.data, chunk)
        except RecursionError:
            return frame  # Nested too deep to be written again.
        chunk["model"] = self._name
        at = frame.raw.find(frame.data)
        if at >= 0:
            raw = frame.raw[:at] + data + frame.raw[at + len(frame.data) :]
        else:
            raw = self._render(data.replace(b"\n", b""), frame.head)
        return Frame(raw, data, frame.head, frame.fault)

    def _written(self, data: bytes, chunk: dict[str, Any]) -> bytes:
        """By the grammar of JSON, what begins alike is named alike; a name that comes twice is looked at closely."""
        end = len(self._before)
        if data.startswith(self._before) and data.find(_NAME, end) < 0:
            return self._sent + data[end:]
        wanted = {**chunk, "model": self._name}
        for found in _NAMED.finditer(data):
            start, end = found.span(1)
            written = data[:start] + self._text + data[end:]
            if decode_object(written) == wanted:
                self._before, self._sent = data[:end], data[:start] + self._text
                return written
        return encode(wanted)
