"""A query and the configured provider -> pages, within bounds; or why there are none."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from moonshim.config import Timeouts, WebSearch
from moonshim.engine.values.searches import SearchError, SearchResult
from moonshim.errors import MoonshimError, problem_of
from moonshim.http_client import UpstreamClient, UpstreamRequest
from moonshim.web_search.brave import BRAVE
from moonshim.web_search.command import CommandFailed, read_output, run_command
from moonshim.web_search.exa import EXA
from moonshim.web_search.provider import HttpProvider, SearchQuery
from moonshim.web_search.searxng import SEARXNG
from moonshim.web_search.tavily import TAVILY

__all__ = ["PROVIDERS", "SearchFailed", "run_search"]

PROVIDERS: Final[dict[str, HttpProvider]] = {"brave": BRAVE, "tavily": TAVILY, "exa": EXA, "searxng": SEARXNG}
MAX_BYTES: Final = 2 * 1024 * 1024
"""Of a response, or of a program's output."""
_CONNECT_SECONDS: Final = 10.0


class SearchFailed(Exception):
    """A search without results. The message is for the log: it has no secrets, and nothing that the provider sent."""

    def __init__(self, message: str, error: SearchError = "unavailable") -> None:
        super().__init__(message)
        self.error: SearchError = error


async def run_search(
    settings: WebSearch,
    client: UpstreamClient,
    query: str,
    *,
    allowed: tuple[str, ...] = (),
    blocked: tuple[str, ...] = (),
) -> tuple[SearchResult, ...]:
    """The pages for a query, at most as many as are configured. Raises `SearchFailed`."""
    asked = SearchQuery(query, settings.results, allowed, blocked)
    provider = PROVIDERS.get(settings.provider)
    try:
        async with asyncio.timeout(settings.seconds):
            if provider is None:
                data = await run_command(settings.command, query, max_bytes=MAX_BYTES)
            else:
                data = await _fetch(provider, settings, client, asked)
    except TimeoutError:
        raise SearchFailed(f"no response within {settings.seconds:g} s") from None
    except CommandFailed as failed:
        raise SearchFailed(str(failed)) from failed
    try:
        body = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise SearchFailed("the response is not valid JSON") from None
    return _distinct(read_output(body) if provider is None else provider.read(body), settings.results)


async def _fetch(provider: HttpProvider, settings: WebSearch, client: UpstreamClient, query: SearchQuery) -> bytes:
    base_url = (settings.base_url or provider.base_url or "").rstrip("/")
    call = provider.make_call(query, base_url, settings.key.reveal() if settings.key is not None else "")
    headers = {"accept": "application/json", **call.headers}
    body: Any = b""
    if call.body is not None:
        body = msgspec.json.encode(call.body)
        headers["content-type"] = "application/json"
    seconds = settings.seconds
    request = UpstreamRequest(
        url=call.url,
        headers=headers,
        body=body,
        timeouts=Timeouts(connect=min(_CONNECT_SECONDS, seconds), first_byte=seconds, between_bytes=seconds),
        method="GET" if call.body is None else "POST",
    )
    try:
        answer = await client.open(request)
        try:
            if answer.status != 200:
                limited = answer.status == 429
                raise SearchFailed(f"status {answer.status}", "too_many_requests" if limited else "unavailable")
            return await answer.read_all(MAX_BYTES)
        finally:
            answer.close()
    except MoonshimError as error:
        raise SearchFailed(problem_of(error).in_short) from error


def _distinct(results: Iterable[SearchResult], count: int) -> tuple[SearchResult, ...]:
    """The first results, each page once."""
    found: dict[str, SearchResult] = {}
    for result in results:
        found.setdefault(result.url, result)
        if len(found) == count:
            break
    return tuple(found.values())
