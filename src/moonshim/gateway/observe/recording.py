"""The first bytes of a recording -> which of three kinds it is, and which model it names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from typing import Any, Final, Literal, TypeAlias

import msgspec

from moonshim.engine.values.events import Repaired
from moonshim.engine.wire.json_codec import decode_object
from moonshim.engine.wire.ndjson import NdjsonFramer
from moonshim.engine.wire.sse import BYTE_ORDER_MARK, Frame, SseFramer
from moonshim.gateway.observe.stream_header import OPENING, StreamHeader, read_header

__all__ = ["Kind", "NotARecording", "Recording", "Sniffer", "split_header"]

Kind: TypeAlias = Literal["sse", "ndjson", "json"]

HEAD_LIMIT: Final = 1024 * 1024
"""How far into a stream to look for a model's name; until it is found, nothing is written."""
WHOLE_LIMIT: Final = 64 * 1024 * 1024
"""Maximum size of a response that is not a stream, since it has to be held in memory."""
BLANK_LIMIT: Final = 64 * 1024

_BLANK: Final = re.compile(b"(?:" + BYTE_ORDER_MARK + rb")*[ \t\r\n]*")
_FIELDS: Final = (b"data", b"event", b"id", b"retry")
_SSE_LINE: Final = re.compile(rb"(?:data|event|id|retry)?:|(?:data|event|id|retry)[\r\n]")
_DATA_LINE: Final = re.compile(rb"^data:", re.MULTILINE)
_SIGNATURES: Final = {
    b"\xff\xfe": "UTF-16 text; save it as UTF-8",
    b"\xfe\xff": "UTF-16 text; save it as UTF-8",
    b"\x1f\x8b": "gzip-compressed; decompress it first, or record it with curl --compressed",
    b"HTTP/": "starts with HTTP headers; record it without them (curl without -i)",
    b"[": "a JSON array; expected SSE, NDJSON or one JSON response",
}
_NEITHER: Final = "not a recording: expected SSE, NDJSON or one JSON response"


class NotARecording(Exception):
    """The bytes are not a recording; the message says what they are instead."""


class Recording(msgspec.Struct, frozen=True):
    """A recorded stream in one of two framings, or a whole response."""

    kind: Kind
    model: str | None = None
    """The name in the first chunk, or in the response."""
    body: dict[str, Any] | None = None
    """The whole response, if it is one."""
    repairs: tuple[Repaired, ...] = ()
    """Repairs made while reading it."""


def split_header(pieces: Iterator[bytes]) -> tuple[StreamHeader | None, Iterator[bytes]]:
    """The header that the gateway writes at the top of its logs, if there is one, and the host's bytes after it."""
    held = b""
    for piece in pieces:
        held += piece
        if not held.startswith(OPENING[: len(held)]):
            break
        end = held.find(b"\n\n")
        if end >= 0:
            header = read_header(held[:end])
            return (header, chain([held[end + 2 :]], pieces)) if header is not None else (None, chain([held], pieces))
        if len(held) > WHOLE_LIMIT:
            break
    return None, chain([held], pieces)


class Sniffer:
    """Detects the kind of a recording from its content, as early as possible, whatever the chunking.

    A stream is recognised by its first chunk. Only a whole JSON response, which may be spread over many lines, is read
    to its end. Anything else is refused as early as possible.
    """

    def __init__(self) -> None:
        self.head = bytearray()
        """Everything that was fed."""
        self._reader: _EventReader | _ObjectReader | None = None

    def feed(self, data: bytes) -> Recording | None:
        """Add bytes. None: not decided yet."""
        self.head += data
        if self._reader is None:
            self._reader = self._choose()
            if self._reader is None:
                return None
            data = bytes(self.head)
        return self._reader.feed(data)

    def flush(self) -> Recording:
        """End of input."""
        if self._reader is None:
            blank = _BLANK.match(self.head)
            raise NotARecording("the input is empty" if blank and blank.end() == len(self.head) else _NEITHER)
        return self._reader.flush()

    def _choose(self) -> _EventReader | _ObjectReader | None:
        blank = _BLANK.match(self.head)
        start = blank.end() if blank else 0
        if start > BLANK_LIMIT:
            raise NotARecording(_NEITHER)
        opening = bytes(self.head[start : start + 16])
        if opening.startswith(b"{"):
            return _ObjectReader(self.head)
        if _SSE_LINE.match(opening):
            return _EventReader(self.head)
        for signature, reason in _SIGNATURES.items():
            if opening.startswith(signature):
                raise NotARecording(reason)
        undecided = (*_FIELDS, *_SIGNATURES, BYTE_ORDER_MARK)
        if any(one.startswith(opening) for one in undecided):
            return None
        raise NotARecording(_NEITHER)


class _EventReader:
    """Reads events until one names the model."""

    def __init__(self, head: bytearray) -> None:
        self._head = head
        self._framer = SseFramer(HEAD_LIMIT)
        self._room = HEAD_LIMIT
        self._data = False

    def feed(self, data: bytes) -> Recording | None:
        found = self._judge(self._framer.feed(data[: self._room]))
        self._room -= min(self._room, len(data))
        if found is not None or self._room:
            return found
        if not self._data and not _DATA_LINE.search(self._head, 0, HEAD_LIMIT):
            raise NotARecording(_NEITHER)
        return Recording("sse")

    def flush(self) -> Recording:
        return self._judge(self._framer.flush()) or Recording("sse")

    def _judge(self, frames: list[Frame]) -> Recording | None:
        for frame in frames:
            if frame.data is None:
                self._check(frame)
                continue
            self._data = True
            value = decode_object(frame.data)
            if value is not None and (isinstance(value.get("choices"), list) or _model_of(value)):
                return Recording("sse", _model_of(value))
            if frame.data.strip() == b"[DONE]":
                return Recording("sse")
        return None

    def _check(self, frame: Frame) -> None:
        """Before any data, other lines must be those of an event: a YAML file may start with `id:` too."""
        if not self._data and not all(_SSE_LINE.match(line + b"\n") for line in frame.head.splitlines()):
            raise NotARecording(_NEITHER)


class _ObjectReader:
    """Reads lines until one is a chunk; if the first is not even an object, reads everything."""

    def __init__(self, head: bytearray) -> None:
        self._head = head
        self._framer = NdjsonFramer(WHOLE_LIMIT)
        self._size = 0
        self._first: dict[str, Any] | None = None
        self._broken = False
        """A line is not an object: this is a response over many lines, or a damaged stream."""

    def feed(self, data: bytes) -> Recording | None:
        self._size += len(data)
        if self._size > WHOLE_LIMIT:
            raise NotARecording(f"no chunk in the first {WHOLE_LIMIT >> 20} MiB, and too long for a single response")
        return None if self._broken else self._judge(self._framer.feed(data))

    def flush(self) -> Recording:
        found = None if self._broken else self._judge(self._framer.flush())
        if found is not None:
            return found
        head = bytes(self._head)
        repairs = (Repaired("framing", "byte_order_mark"),) if head.startswith(BYTE_ORDER_MARK) else ()
        while head.startswith(BYTE_ORDER_MARK):
            head = head.removeprefix(BYTE_ORDER_MARK)
        body = self._first if not self._broken else decode_object(head)
        if body is None:
            return _stream_with_faults(head)
        if _is_chunk(body):
            raise NotARecording("a chunk spans several lines; write each chunk on one line (jq -c .)")
        if isinstance(body.get("choices"), list) or "error" in body:
            return Recording("json", _model_of(body), body, repairs)
        raise NotARecording("a JSON object without `choices`: neither a chunk nor a response")

    def _judge(self, frames: list[Frame]) -> Recording | None:
        for frame in frames:
            if frame.data is None:
                continue
            value = decode_object(frame.data)
            if value is None:
                self._broken = True
                return None
            if _is_chunk(value):
                return Recording("ndjson", _model_of(value))
            if self._first is not None:
                return self._several(self._first, value)
            self._first = value
        return None

    def _several(self, first: dict[str, Any], second: dict[str, Any]) -> Recording:
        if _is_response(first) or _is_response(second):
            raise NotARecording("several complete responses; write each to a separate file")
        return Recording("ndjson", _model_of(first) or _model_of(second))


def _stream_with_faults(head: bytes) -> Recording:
    """Not JSON as a whole. If some line is a chunk, the mender reports the others as faults."""
    for line in head.split(b"\n"):
        value = decode_object(line) if line.lstrip().startswith(b"{") else None
        if value is not None and _is_chunk(value):
            return Recording("ndjson", _model_of(value))
    try:
        msgspec.json.decode(head)
    except UnicodeDecodeError:
        raise NotARecording("looks like JSON, but is not UTF-8") from None
    except (msgspec.MsgspecError, RecursionError) as error:
        reason = str(error)
        raise NotARecording(f"looks like JSON, but {reason[:1].lower()}{reason[1:]}") from None
    raise NotARecording(_NEITHER)


def _is_chunk(value: dict[str, Any]) -> bool:
    return isinstance(value.get("choices"), list) and not _is_response(value)


def _is_response(value: dict[str, Any]) -> bool:
    """A choice of a response has a `message`; a chunk may have one too, but beside a `delta`."""
    choices = value.get("choices")
    if not isinstance(choices, list):
        return False
    has_message = any(isinstance(one, dict) and "message" in one and "delta" not in one for one in choices)
    return has_message or value.get("object") == "chat.completion"


def _model_of(value: dict[str, Any]) -> str | None:
    model = value.get("model")
    return model if isinstance(model, str) and model else None
