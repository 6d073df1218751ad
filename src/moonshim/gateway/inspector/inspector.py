"""The inspector of one process: what is recorded here, and the answers to questions about it, of all workers."""

from __future__ import annotations

import asyncio
import os
import time
from base64 import b64decode
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from moonshim.errors import Problem, Refused
from moonshim.gateway.inspector.feed import SummaryBuffer, TraceFeed
from moonshim.gateway.inspector.log_file import log_of
from moonshim.gateway.inspector.overview import MinuteCounts, MinuteStatistics, charts
from moonshim.gateway.inspector.peers import Question, WorkerPeers
from moonshim.gateway.inspector.trace import ExchangeTrace, Tracer
from moonshim.gateway.inspector.views import chain_of, detail_of, summary_of, version_of

__all__ = ["Inspector"]

Json = dict[str, Any]
Result = TypeVar("Result")

MOST_WATCHERS: Final = 50
"""Pages that can listen at one process at the same time."""
_STOPPING: Final = "The gateway is shutting down."
_TOO_MANY: Final = f"Too many inspector pages are open on this gateway (at most {MOST_WATCHERS}). Close some of them."


class Inspector:
    """Answers questions about exchanges; other workers are asked as well."""

    def __init__(self, tracer: Tracer, *, worker: int = 0, folder: str | None = None) -> None:
        self.tracer = tracer
        self._worker = worker
        self._statistics = MinuteStatistics()
        tracer.when_finished(lambda trace: self._statistics.add(trace.record))
        folder = folder if folder is not None else os.environ.get("PROMETHEUS_MULTIPROC_DIR")
        self._peers = WorkerPeers(folder, self._answer)
        # Its own thread, and only one: reading a large exchange must not take those that requests need.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="inspector")
        self._watchers: set[SummaryBuffer] = set()
        self._stopped = False

    async def start(self) -> None:
        await self._peers.start()

    def stop_watching(self) -> None:
        """Let every page that listens go: otherwise the gateway would wait for them when it stops."""
        self._stopped = True
        for watcher in self._watchers:
            watcher.close()

    async def close(self) -> None:
        self.stop_watching()
        await self._peers.close()
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def run(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Run this in the inspector's thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    async def detail(self, number: str, *, attempt: int | None = None, have: str | None = None) -> Json | None:
        """None if there is no such exchange; empty if `have` is the newest version of it."""
        found: Json | None = await self._ask({"ask": "get", "id": number, "attempt": attempt, "have": have})
        return found

    async def log(self, number: str, *, attempt: int | None = None) -> bytes | None:
        """A replayable log; None if nothing is recorded."""
        found: bytes | str | None = await self._ask({"ask": "log", "id": number, "attempt": attempt})
        return b64decode(found) if isinstance(found, str) else found

    async def _ask(self, question: Question) -> Any:
        """Ask this worker, then the others."""
        own = await self._answer(question)
        return own if own is not None else next(iter(await self._peers.ask(question)), None)

    async def charts(self, minutes: int) -> Json:
        others = await self._peers.ask({"ask": "minutes"})
        counts = [
            dict(self._statistics.minutes),
            *(msgspec.convert(one, dict[int, MinuteCounts], strict=False) for one in others),
        ]
        return charts(counts, minutes=minutes, now=time.time())

    def watch(self) -> AsyncGenerator[list[Json]]:
        """Batches of summaries: all that there are, then what changes, of all workers. An empty one is a heartbeat.

        Raises `Refused` if too many watch already, or if the gateway stops. The caller closes it.
        """
        if self._stopped or len(self._watchers) >= MOST_WATCHERS:
            message = _STOPPING if self._stopped else _TOO_MANY
            raise Refused(Problem(status=503, kind="overloaded", message=message))
        return self._batches(SummaryBuffer())

    async def _batches(self, buffer: SummaryBuffer) -> AsyncGenerator[list[Json]]:
        self._watchers.add(buffer)
        watching = asyncio.create_task(self._peers.watch({"ask": "watch"}, buffer.add))
        own = asyncio.create_task(self._forward(buffer))
        try:
            while (batch := await buffer.take()) is not None:
                yield batch
        finally:
            self._watchers.discard(buffer)
            watching.cancel()
            own.cancel()

    async def _forward(self, buffer: SummaryBuffer) -> None:
        async for batch in self._watch_own():
            buffer.add(batch)

    async def _watch_own(self) -> AsyncGenerator[list[Json]]:
        with TraceFeed(self.tracer) as feed:
            while True:
                yield [summary_of(trace, self._worker) for trace in await feed.changed()]

    async def _answer(self, question: Question) -> Any:
        match question:
            case {"ask": "get", "id": str(number), "attempt": attempt, "have": have}:
                trace = self.tracer.get(number)
                if trace is None:
                    return None
                if have == version_of(trace):
                    return {}
                return await self.run(partial(detail_of, trace, self._worker, number=attempt))
            case {"ask": "log", "id": str(number), "attempt": attempt}:
                return await self.run(_log, self.tracer.get(number), attempt)
            case {"ask": "minutes"}:
                return dict(self._statistics.minutes)
            case {"ask": "watch"}:
                return self._watch_own()
        return None


def _log(trace: ExchangeTrace | None, attempt: int | None) -> bytes | None:
    chain = [] if trace is None else chain_of(trace, attempt)
    return log_of(trace, chain) if trace is not None and any(one.has_pieces for one in chain) else None
