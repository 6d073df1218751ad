"""Payloads -> bytes: one server-sent event each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from moonshim.engine.wire.json_codec import encode
from moonshim.simulator.request import Json

__all__ = ["DONE", "chat_frames", "messages_frames"]

DONE: Final = b"data: [DONE]\n\n"


def chat_frames(chunks: Iterable[Json]) -> list[bytes]:
    r"""
    >>> chat_frames([{"choices": []}])
    [b'data: {"choices":[]}\n\n', b'data: [DONE]\n\n']
    """
    return [*(b"data: " + encode(chunk) + b"\n\n" for chunk in chunks), DONE]


def messages_frames(events: Iterable[Json]) -> list[bytes]:
    r"""
    >>> messages_frames([{"type": "ping"}])
    [b'event: ping\ndata: {"type":"ping"}\n\n']
    """
    return [
        b"event: " + str(event.get("type", "message")).encode() + b"\ndata: " + encode(event) + b"\n\n"
        for event in events
    ]
