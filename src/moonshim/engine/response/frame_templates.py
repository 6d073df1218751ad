"""Learns the shape of a host's chunks: where in the bytes the only text stands, so that the rest need not be parsed.

Most chunks of a stream differ in one string alone. If a chunk begins and ends with
the very bytes of one that was parsed before, and what is between is one JSON
string, then it says the same with another text: that is not a guess but follows
from the grammar of JSON. Everything else takes the slow path. The same holds for the
name of the model, where the client's is written over the host's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from moonshim.engine.upstream_events import OnlyText
from moonshim.engine.wire.json_codec import decode_object, encode
from moonshim.engine.wire.sse import Frame

__all__ = ["FrameTemplate", "Renamer", "learn_template"]

_PROBE: Final = "\u2400moonshim\u2400"
_PROBE_TEXT: Final = msgspec.json.encode(_PROBE)
_FIELDS: Final = {
    field: re.compile(rb'"%b"[ \t]*:[ \t]*(?=("(?:[^"\\]++|\\.)*+"))' % field.encode())
    for field in ("content", "reasoning_content", "reasoning", "arguments", "text", "thinking", "partial_json")
}
_NAME: Final = b'"model"'
_NAMED: Final = re.compile(rb'"model"[ \t\r\n]*:[ \t\r\n]*(?=("(?:[^"\\]++|\\.)*+"))')


class FrameTemplate:
    """One shape: `head`, a JSON string, `tail`. Of such frames only the text is ever of use."""

    __slots__ = ("_line", "_payload", "_sent", "channel", "head", "index", "only", "renames", "start", "stop", "tail")

    def __init__(self, head: bytes, tail: bytes, only: OnlyText, line: bytes, payload: tuple[int, int]) -> None:
        self.head = head
        """The bytes up to and with the opening quote."""
        self.tail = tail
        """The bytes from the closing quote on."""
        self.only = only
        self.channel, self.index = only.channel, only.index
        self.start, self.stop = len(head) - 1, 1 - len(tail)
        """From where to where a frame of this shape has its text, with the quotes."""
        self._sent = (head, tail)
        self.renames = False
        """Whether frames leave with another name of the model than they come with."""
        self._line = line
        self._payload = payload
        """How many bytes are before and after the payload in a frame that leaves."""

    def learn_incoming(self, raw: bytes, sent: bytes) -> bool:
        """A frame of this shape came as `raw`, with another name of the model in it: later ones come like that."""
        head, tail = self._sent
        longer = len(raw) - len(sent)
        text = sent[len(head) : len(sent) - len(tail)]
        if raw.startswith(head):
            tail = raw[len(head) + len(text) :]
        else:
            head = raw[: len(head) + longer]
        self.head, self.tail, self.renames = head, tail, True
        self.start, self.stop = len(head) - 1, 1 - len(tail)
        return head + text + tail == raw

    def outgoing(self, raw: bytes) -> bytes:
        """A frame that came, as it leaves: with the client's name of the model."""
        head, tail = self._sent
        if tail is self.tail:
            return head + raw[len(self.head) :]
        return raw[: len(raw) - len(self.tail)] + tail

    def frame(self, sent: bytes) -> Frame:
        """A frame that leaves, as a framer would have read it."""
        before, after = self._payload
        return Frame(sent, sent[before : len(sent) - after], self._line)


def learn_template(frame: Frame, payload: Mapping[str, Any], only: OnlyText) -> FrameTemplate | None:
    """The shape of a frame whose payload contains `only` this text."""
    around = None if frame.data is None else _around(frame.raw, frame.data, payload, only.path)
    return None if around is None else FrameTemplate(around[0], around[1], only, frame.head, around[2])


def _around(
    raw: bytes, data: bytes, value: Mapping[str, Any], path: tuple[str | int, ...]
) -> tuple[bytes, bytes, tuple[int, int]] | None:
    """The bytes before and after the text at this path, with its quotes; and how many are around the payload."""
    pattern = _FIELDS.get(str(path[-1]))
    body = raw.rstrip(b"\n")
    if pattern is None or not body.endswith(data):
        return None
    offset = len(body) - len(data)
    wanted = _with_probe(value, path)
    for found in pattern.finditer(data):
        start, end = found.span(1)
        if decode_object(data[:start] + _PROBE_TEXT + data[end:]) == wanted:
            around = (offset, len(raw) - len(body))
            return raw[: offset + start + 1], raw[offset + end - 1 :], around
    return None


def _with_probe(value: Any, path: tuple[str | int, ...]) -> Any:
    if not path:
        return _PROBE
    first, rest = path[0], path[1:]
    if isinstance(value, list):
        return [_with_probe(one, rest) if at == first else one for at, one in enumerate(value)]
    return {**value, first: _with_probe(value[first], rest)}


class Renamer:
    """Writes the client's name of the model into frames that have another one. Every other byte stays."""

    __slots__ = ("_before", "_name", "_render", "_sent", "_text")

    def __init__(self, name: str, render: Callable[[bytes, bytes], bytes]) -> None:
        self._name = name
        self._text = encode(name)
        self._render = render
        self._before = b"\n"
        """How a frame began that was renamed, up to the end of the name; at first what no payload begins with."""
        self._sent = b""

    def rename(self, frame: Frame, chunk: dict[str, Any]) -> Frame:
        """The frame of this chunk as it leaves if nothing else has to change; the chunk gets the name too."""
        if frame.data is None or chunk.get("model", self._name) == self._name:
            return frame
        try:
            data = self._rewrite(frame.data, chunk)
        except RecursionError:
            return frame  # Nested too deep to be written again.
        chunk["model"] = self._name
        at = frame.raw.find(frame.data)
        if at >= 0:
            raw = frame.raw[:at] + data + frame.raw[at + len(frame.data) :]
        else:
            raw = self._render(data.replace(b"\n", b""), frame.head)
        return Frame(raw, data, frame.head, frame.fault)

    def _rewrite(self, data: bytes, chunk: dict[str, Any]) -> bytes:
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
