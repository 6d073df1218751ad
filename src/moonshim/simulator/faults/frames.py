"""The bytes of a stream, framed and split in every way that the standard allows and hosts have been seen to use.

Faults that change the text come first and those that split it last: that is the order in which they are applied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any, Final

from msgspec.structs import replace

from moonshim.engine.wire.json_codec import decode_object, encode
from moonshim.simulator.fault import Fault, Frames, Piece, Speech, Stall
from moonshim.simulator.request import Json
from moonshim.simulator.response import Cut, HostResponse
from moonshim.simulator.wire.chat import chat_whole
from moonshim.simulator.wire.messages import messages_whole

__all__ = ["FAULTS", "FOREVER"]

FOREVER: Final = 3600.0
"""Seconds: longer than any client waits."""
_HUGE: Final = 1024 * 1024
_SIZES: Final = (1, 7, 64, 3, 500, 2, 19)
_MARK: Final = b"\xef\xbb\xbf"


def _change_frames(change: Callable[[bytes], bytes]) -> Frames:
    """Change every frame."""
    return lambda frames, answer: [change(frame) for frame in frames]


def _write_between(noise: bytes) -> Frames:
    """Send this before each frame, in a separate write."""
    return lambda frames, answer: [piece for frame in frames for piece in (noise, frame)]


def _change_lines(change: Callable[[bytes], bytes]) -> Frames:
    """Change every line that is not blank."""
    return _change_frames(lambda frame: b"\n".join(change(line) if line else line for line in frame.split(b"\n")))


def _number_events(frames: list[bytes], answer: HostResponse) -> list[Piece]:
    heads = (b"id: %d\nretry: 3000\n" % at for at in range(len(frames)))
    named = [frame if frame.startswith(b"event:") else b"event: message\n" + frame for frame in frames]
    return [head + frame for head, frame in zip(heads, named, strict=True)]


def _fold_lines(frame: bytes) -> bytes:
    """A payload over several `data:` lines, split where JSON allows a line break."""
    return frame.replace(b'"choices":', b'\ndata: "choices":', 1).replace(b',"index":', b',\ndata: "index":', 1)


def _drop_event_names(frames: list[bytes], answer: HostResponse) -> list[Piece]:
    return [frame[frame.index(b"data:") :] if b"data:" in frame else frame for frame in frames]


def _drop_last_blank_line(frames: list[bytes], answer: HostResponse) -> list[Piece]:
    return [*frames[:-1], *(frame.rstrip(b"\r\n") for frame in frames[-1:])]


def _add_byte_order_mark(frames: list[bytes], answer: HostResponse) -> list[Piece]:
    return [*(_MARK + frame for frame in frames[:1]), *frames[1:]]


def _add_huge_field(frames: list[bytes], answer: HostResponse) -> list[Piece]:
    """Add a large unknown field to one frame."""
    middle = len(frames) // 2
    payload = frames[middle].partition(b"data: ")[2]
    value = decode_object(payload)
    if value is None:
        return [*frames]
    grown: Json = {**value, "obfuscation": "x" * _HUGE}
    return [*frames[:middle], frames[middle].replace(payload, encode(grown) + b"\n\n"), *frames[middle + 1 :]]


def _write_ndjson(frames: list[bytes], answer: HostResponse) -> list[Piece]:
    """One JSON document per line, and no `[DONE]`."""
    payloads = (frame.partition(b"data: ")[2].strip() for frame in frames)
    return [payload + b"\n" for payload in payloads if payload.startswith(b"{")]


def _write_at_once(frames: list[bytes], answer: HostResponse) -> list[Piece]:
    """The whole response, although a stream was requested."""
    whole = messages_whole if answer.request.wire == "anthropic" else chat_whole
    return [encode(whole(answer))]


def _stay_open(frames: list[bytes], answer: HostResponse) -> list[Piece]:
    return [*frames, Stall(FOREVER)]


# -- where writes end --------------------------------------------------------------------------------------------


def _join_writes(frames: list[bytes], answer: HostResponse) -> list[Piece]:
    return [b"".join(frames)]


def _split_bytes(frames: list[bytes], answer: HostResponse) -> list[Piece]:
    return [bytes((byte,)) for frame in frames for byte in frame]


def _split_unevenly(frames: list[bytes], answer: HostResponse) -> list[Piece]:
    data = b"".join(frames)
    return [*_pieces(data)]


def _pieces(data: bytes) -> Iterator[bytes]:
    at = 0
    for size in cycle(_SIZES):
        if at >= len(data):
            return
        yield data[at : at + size]
        at += size


def _split_characters(frames: list[bytes], answer: HostResponse) -> list[Piece]:
    """Writes that end after the first byte of each multi-byte character."""
    out: list[Piece] = []
    for frame in frames:
        start = 0
        for at, byte in enumerate(frame):
            if byte >= 0xC0:
                out.append(frame[start : at + 1])
                start = at + 1
        out.append(frame[start:])
    return out


def _cutting(cut: Cut) -> Speech:
    return lambda answer: replace(answer, cut=cut)


_STANDARD: Final = "allowed by the SSE standard"


def _row(name: str, about: str, seen: str, frames: Frames | None = None, **more: Any) -> Fault:
    more = {"ways": ("stream",), "families": ("k2", "k3", "other"), **more}
    return Fault(name=name, group="frames", about=about, seen=seen, frames=frames, **more)


FAULTS: Final[tuple[Fault, ...]] = (
    # How much is in a chunk.
    _row(
        "by-character",
        "Every chunk contains one character",
        "hosts that send each token separately",
        speech=_cutting("characters"),
    ),
    _row("in-lumps", "Every chunk contains several tokens", "vllm#38274", speech=_cutting("lumps")),
    _row(
        "undivided",
        "Text, reasoning and arguments each arrive in a single chunk",
        "hosts that stream in name only",
        speech=_cutting("whole"),
    ),
    # What is written.
    _row(
        "no-space",
        "There is no space after `data:`",
        "jcode#46",
        _change_lines(lambda line: line.replace(b": ", b":", 1)),
    ),
    _row(
        "comments",
        "Every event contains a comment line",
        "OpenRouter",
        _change_frames(lambda frame: b": OPENROUTER PROCESSING\n" + frame),
    ),
    _row("keep-alives", "Comments arrive between the events", "OpenRouter", _write_between(b": keep-alive\n\n")),
    _row("blank-lines", "Extra blank lines arrive between the events", _STANDARD, _write_between(b"\n\n\n")),
    _row("event-fields", "Events have `event`, `id` and `retry` fields", _STANDARD, _number_events),
    _row(
        "empty-events",
        "Events without data arrive between the others",
        "hermes-agent#35418",
        _write_between(b"event: ping\n\n"),
    ),
    _row(
        "trailing-space",
        "Every payload is followed by white space",
        _STANDARD,
        _change_lines(lambda line: line + b"  "),
    ),
    _row(
        "several-data-lines", "A payload is split across several `data:` lines", "eko#287", _change_frames(_fold_lines)
    ),
    _row("huge-frame", "One event is larger than a megabyte", "ragflow#15381", _add_huge_field),
    _row(
        "no-event-lines",
        "Events have no `event:` line, so only the payload contains their type",
        "pi#1983",
        _drop_event_names,
        wires=("anthropic",),
    ),
    _row("crlf", "Lines end with CRLF", "hey-api#3054", _change_frames(lambda frame: frame.replace(b"\n", b"\r\n"))),
    _row("cr", "Lines end with CR", _STANDARD, _change_frames(lambda frame: frame.replace(b"\n", b"\r"))),
    _row("byte-order-mark", "The stream starts with a byte order mark", "openai-python#3819", _add_byte_order_mark),
    _row("unended", "The blank line after the last event is missing", "lathe#131", _drop_last_blank_line),
    # The declared content type.
    _row(
        "json-lines",
        "The stream is newline-delimited JSON instead of SSE, with the content type `application/x-ndjson`",
        "hosts used through musistudio/llms",
        _write_ndjson,
        wires=("openai_chat",),
        headers={"content-type": "application/x-ndjson"},
    ),
    _row(
        "stream-called-json",
        "The stream has the content type `application/json`",
        "openclaw#96497",
        headers={"content-type": "application/json"},
    ),
    _row(
        "stream-called-text",
        "The stream has the content type `text/plain`",
        "proxies that do not pass on the content type",
        headers={"content-type": "text/plain; charset=utf-8"},
    ),
    _row(
        "not-streamed",
        "A streaming request gets a complete, non-streaming response",
        "tinyagents#56",
        _write_at_once,
        headers={"content-type": "application/json"},
    ),
    _row(
        "stays-open",
        "The connection stays open after the end of the response",
        "vllm-project/router#224, openai-node#2317",
        _stay_open,
    ),
    # Where writes end.
    _row("one-write", "The whole stream arrives in one write", _STANDARD, _join_writes),
    _row("uneven-writes", "Writes end at arbitrary positions", "graniet/llm#90", _split_unevenly),
    _row("split-characters", "Writes split multi-byte characters", "praxis#739", _split_characters),
    _row("split-bytes", "Every byte is a separate write", "praxis#739", _split_bytes, ways=("stream", "whole")),
)
