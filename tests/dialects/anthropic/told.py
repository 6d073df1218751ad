"""What was heard -> events, in the plainest way: what `repair` does for answers that need no mending."""

from __future__ import annotations

from collections.abc import Iterable

from moonshim.engine.upstream_events import Began, Broke, CallClosed, Counted, Ended, Heard, Paused, Signed, Spoke
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


def told(heard: Iterable[Heard]) -> list[Event]:
    """The events of an answer that needs no mending."""
    out: list[Event] = []
    count, speaking, at, usage = 0, "", -1, None
    calls: dict[int | None, int] = {}

    def hush() -> None:
        nonlocal speaking
        if speaking:
            out.append(BlockClosed(at))
        speaking = ""

    for one in heard:
        match one:
            case Spoke(channel=channel, text=text):
                if speaking != channel:
                    hush()
                    speaking, at, count = channel, count, count + 1
                    out.append(BlockOpened(at, channel))
                out.append(BlockDelta(at, text))
            case Paused():
                hush()
            case Signed():
                shown = speaking == "reasoning"
                if not shown:
                    hush()
                    at, count = count, count + 1
                    out.append(BlockOpened(at, "reasoning"))
                out.append(BlockSigned(at, one.signature, one.details, one.field))
                if not shown:
                    out.append(BlockClosed(at))
            case CallPiece(index=index):
                if index not in calls:
                    hush()
                    calls[index], count = count, count + 1
                    out.append(BlockOpened(calls[index], "call", one.id, one.name))
                if one.arguments:
                    out.append(BlockDelta(calls[index], one.arguments))
            case CallClosed(index=index):
                out.append(BlockClosed(calls[index]))
            case Began():
                out.append(Started(one.id, one.model, one.created, one.usage))
            case Counted():
                usage = one.usage
            case Ended():
                hush()
                out.append(Finished(one.reason or "stop", one.raw, one.stop_sequence, usage))
            case Broke(failed=failed):
                hush()
                out.append(failed)
            case _:
                pass
    return out


def ending(events: Iterable[Event]) -> Finished | Failed | None:
    """How it ended."""
    return next((event for event in events if isinstance(event, (Finished, Failed))), None)
