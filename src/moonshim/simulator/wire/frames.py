"""Payloads -> bytes: one server-sent event each, or a JSON text."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

import msgspec

from moonshim.simulator.question import Json

__all__ = ["DONE", "chat_frames", "json_bytes", "messages_frames"]

DONE: Final = b"data: [DONE]\n\n"


def chat_frames(chunks: Iterable[Json]) -> list[bytes]:
    r"""
    >>> chat_frames([{"choices": []}])
    [b'data: {"choices":[]}\n\n', b'data: [DONE]\n\n']
    """
    return [*(b"data: " + json_bytes(chunk) + b"\n\n" for chunk in chunks), DONE]


def messages_frames(events: Iterable[Json]) -> list[bytes]:
    r"""
    >>> messages_frames([{"type": "ping"}])
    [b'event: ping\ndata: {"type":"ping"}\n\n']
    """
    return [
        b"event: " + str(event.get("type", "message")).encode() + b"\ndata: " + json_bytes(event) + b"\n\n"
        for event in events
    ]


def json_bytes(value: Json) -> bytes:
    r"""Half a character, which a fault may leave, is escaped: JSON can say it where UTF-8 cannot.

    >>> json_bytes({"a": "é"}), json_bytes({"a": "\ud83d"})
    (b'{"a":"\xc3\xa9"}', b'{"a":"\\ud83d"}')
    """
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()
