"""Changes of traces -> batches for those who watch, however slowly they read: only the newest state of each waits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final

from moonshim.gateway.inspector.trace import ExchangeTrace, Tracer

__all__ = ["SummaryBuffer", "TraceFeed"]

Json = dict[str, Any]

_TICK: Final = 0.1
"""Seconds in which changes are collected before they are sent."""
_RUNNING_SECONDS: Final = 1.0
"""How often exchanges that run are looked at."""
_HEARTBEAT_SECONDS: Final = 10.0
_BATCH: Final = 500
_MOST_WAITING: Final = 5000


class TraceFeed:
    """All traces, then those that change. Nothing is done while nothing changes."""

    def __init__(self, tracer: Tracer) -> None:
        self._changed = {trace.id: trace for trace in tracer}
        self._silent = {trace.id: trace for trace in tracer if trace.ended is None}
        """Those that run and have sent nothing yet: the list shows when they do."""
        self._arrived = asyncio.Event()
        self._stop = tracer.listen(self._note)

    def __enter__(self) -> TraceFeed:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop()

    def _note(self, trace: ExchangeTrace) -> None:
        self._changed[trace.id] = self._silent[trace.id] = trace
        if len(self._changed) > _MOST_WAITING:
            self._changed.pop(next(iter(self._changed)))
        self._arrived.set()

    async def changed(self) -> Sequence[ExchangeTrace]:
        """The next batch. Nothing has changed for a while: an empty one."""
        waited = 0.0
        while not self._changed:
            step = _RUNNING_SECONDS if self._silent else _HEARTBEAT_SECONDS
            if not await _within(step, self._arrived):
                waited += step
                self._find_first_tokens()
                if waited >= _HEARTBEAT_SECONDS and not self._changed:
                    return ()
        await asyncio.sleep(_TICK)
        self._arrived.clear()
        batch = [self._changed.pop(one) for one in list(self._changed)[:_BATCH]]
        for trace in batch:
            if trace.ended is not None or trace.record.first_byte_seconds is not None:
                self._silent.pop(trace.id, None)
        return batch

    def _find_first_tokens(self) -> None:
        for trace in self._silent.values():
            if trace.ended is not None or trace.record.first_byte_seconds is not None:
                self._changed[trace.id] = trace


class SummaryBuffer:
    """What one page has not read yet: the newest summary of each exchange."""

    def __init__(self) -> None:
        self._waiting: dict[str, Json] = {}
        self._arrived = asyncio.Event()
        self._closed = False

    def add(self, batch: Sequence[Json]) -> None:
        for one in batch:
            self._waiting.pop(one["id"], None)
            self._waiting[one["id"]] = one
        while len(self._waiting) > _MOST_WAITING:
            self._waiting.pop(next(iter(self._waiting)))
        if self._waiting:
            self._arrived.set()

    def close(self) -> None:
        self._closed = True
        self._arrived.set()

    async def take(self) -> list[Json] | None:
        """The next batch; empty if there is none for a while, None after `close`."""
        await _within(_HEARTBEAT_SECONDS, self._arrived)
        if self._closed:
            return None
        batch = [self._waiting.pop(one) for one in list(self._waiting)[:_BATCH]]
        if not self._waiting:
            self._arrived.clear()
        return batch


async def _within(seconds: float, event: asyncio.Event) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
