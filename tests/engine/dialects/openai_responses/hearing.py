"""What a decoder hears, put together: shared by the tests of both directions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from moonshim.engine.dialects.openai_responses.decode import ResponsesDecoder
from moonshim.engine.upstream_events import TextDelta, ToolCallEnded, UpstreamEvent
from moonshim.engine.values.conversation import Message, Reasoning, Text, ToolCall
from moonshim.engine.values.events import CallPiece


class Told:
    """The blocks of an answer, in the order they began; neighbours of one channel are one block."""

    def __init__(self, heard: Iterable[UpstreamEvent]) -> None:
        self.blocks: list[list[Any]] = []
        self.closed: list[int] = []
        calls: dict[int | None, list[Any]] = {}
        for one in heard:
            if isinstance(one, TextDelta):
                if not self.blocks or self.blocks[-1][0] != one.channel:
                    self.blocks.append([one.channel, ""])
                self.blocks[-1][1] += one.text
            elif isinstance(one, CallPiece):
                if one.index not in calls:
                    calls[one.index] = ["call", None, None, ""]
                    self.blocks.append(calls[one.index])
                call = calls[one.index]
                call[1], call[2] = call[1] or one.id, call[2] or one.name
                call[3] += one.arguments
            elif isinstance(one, ToolCallEnded):
                self.closed.append(one.index)


def heard(payloads: Iterable[dict[str, Any]]) -> list[UpstreamEvent]:
    decoder = ResponsesDecoder()
    return [one for payload in payloads for one in decoder.feed(payload)] + decoder.flush()


def blocks_of(message: Message) -> list[list[Any]]:
    """The same for a message: what of it can be heard again."""
    out: list[list[Any]] = []
    for part in message.parts:
        match part:
            case ToolCall():
                out.append(["call", part.wire_id, part.name, part.arguments])
            case Text(text=text) | Reasoning(text=text):
                channel = "text" if isinstance(part, Text) else "reasoning"
                if not text:
                    continue
                if out and out[-1][0] == channel:
                    out[-1][1] += text
                else:
                    out.append([channel, text])
    return out
