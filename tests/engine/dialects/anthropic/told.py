"""What was heard -> events, in the plainest way: what `repair` does for answers that need no mending."""

from __future__ import annotations

from collections.abc import Iterable

from moonshim.engine.upstream_events import (
    BlockEnded,
    FinishReported,
    ResponseStarted,
    SignatureReported,
    TextDelta,
    ToolCallEnded,
    UpstreamEvent,
    UpstreamFailed,
    UsageReported,
)
from moonshim.engine.values.events import (
    BlockClosed,
    BlockDelta,
    BlockOpened,
    BlockSigned,
    CallPiece,
    Event,
    Failed,
    Finished,
    Started,
)


def told(heard: Iterable[UpstreamEvent]) -> list[Event]:
    """The events of an answer that needs no mending."""
    out: list[Event] = []
    count, speaking, at, usage = 0, "", -1, None
    calls: dict[int | None, int] = {}

    def close_text_block() -> None:
        nonlocal speaking
        if speaking:
            out.append(BlockClosed(at))
        speaking = ""

    for one in heard:
        match one:
            case TextDelta(channel=channel, text=text):
                if speaking != channel:
                    close_text_block()
                    speaking, at, count = channel, count, count + 1
                    out.append(BlockOpened(at, channel))
                out.append(BlockDelta(at, text))
            case BlockEnded():
                close_text_block()
            case SignatureReported():
                shown = speaking == "reasoning"
                if not shown:
                    close_text_block()
                    at, count = count, count + 1
                    out.append(BlockOpened(at, "reasoning"))
                out.append(BlockSigned(at, one.signature, one.details, one.field))
                if not shown:
                    out.append(BlockClosed(at))
            case CallPiece(index=index):
                if index not in calls:
                    close_text_block()
                    calls[index], count = count, count + 1
                    out.append(BlockOpened(calls[index], "call", one.id, one.name))
                if one.arguments:
                    out.append(BlockDelta(calls[index], one.arguments))
            case ToolCallEnded(index=index):
                out.append(BlockClosed(calls[index]))
            case ResponseStarted():
                out.append(Started(one.id, one.model, one.created, one.usage))
            case UsageReported():
                usage = one.usage
            case FinishReported():
                close_text_block()
                out.append(Finished(one.reason or "stop", one.raw, one.stop_sequence, usage))
            case UpstreamFailed(failed=failed):
                close_text_block()
                out.append(failed)
            case _:
                pass
    return out


def ending(events: Iterable[Event]) -> Finished | Failed | None:
    """How it ended."""
    return next((event for event in events if isinstance(event, (Finished, Failed))), None)
