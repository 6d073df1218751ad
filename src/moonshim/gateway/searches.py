"""Searches that an exchange waits for -> their outcomes, each logged and counted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from moonshim.config import WebSearch
from moonshim.engine.exchange import SearchOutcome, SearchWanted
from moonshim.gateway.observe import logs
from moonshim.gateway.observe.record import RequestRecord
from moonshim.gateway.state import GatewayState
from moonshim.web_search import SearchFailed, run_search

__all__ = ["search_all"]

_AT_ONCE: Final = 4
"""Searches of one request that run at the same time."""


async def search_all(
    state: GatewayState, record: RequestRecord, settings: WebSearch | None, wanted: Sequence[SearchWanted]
) -> list[SearchOutcome]:
    """Run these searches. One that fails has an outcome too."""
    room = asyncio.Semaphore(_AT_ONCE)

    async def search(one: SearchWanted) -> SearchOutcome:
        async with room:
            return await _search(state, record, settings, one)

    return list(await asyncio.gather(*map(search, wanted)))


async def _search(
    state: GatewayState, record: RequestRecord, settings: WebSearch | None, wanted: SearchWanted
) -> SearchOutcome:
    if settings is None:
        return SearchOutcome(wanted.id, error="unavailable")
    if not await state.spending.reserve_search(record):
        state.metrics.count_search(settings.provider, "budget")
        return SearchOutcome(wanted.id, error="max_uses_exceeded")
    try:
        results = await run_search(
            settings, state.upstream, wanted.query, allowed=wanted.allowed, blocked=wanted.blocked
        )
    except SearchFailed as failed:
        state.spending.return_search(record)
        state.metrics.count_search(settings.provider, failed.error)
        logs.event(
            "search_failed",
            level="warning",
            request_id=record.request_id,
            provider=settings.provider,
            problem=str(failed),
        )
        return SearchOutcome(wanted.id, error=failed.error)
    record.searches += 1
    state.metrics.count_search(settings.provider, "ok")
    return SearchOutcome(wanted.id, results)
