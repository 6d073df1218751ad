"""A `UpstreamRequest` -> an `UpstreamResponse`, over connections that are kept: aiohttp, with nothing of it showing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextvars import ContextVar
from functools import partial
from typing import Any, Final
from weakref import WeakSet

import aiohttp
from aiohttp.client_proto import ResponseHandler

from moonshim.errors import UpstreamError, UpstreamStalled, UpstreamUnreachable
from moonshim.http_client.failures import FAILURES, lost_at_once, unreachable
from moonshim.http_client.proxy_env import proxy_for, ssl_context
from moonshim.http_client.request import UpstreamRequest, origin_of
from moonshim.http_client.response import UpstreamResponse

__all__ = ["UpstreamClient"]

BUFFERED_BYTES: Final = 64 * 1024
"""Twice as much waits at most for a reader who is slow; then the host is held back."""
LONGEST_HEADER: Final = 32 * 1024
KEPT_SECONDS: Final = 55.0
"""How long an idle connection is kept: a little less than the minute after which many balancers close it."""
NAMES_SECONDS: Final = 30
"""How long the address of a name is remembered."""
_LARGE_BODY: Final = 1024 * 1024
"""From here on a body is written piece by piece, so that other streams go on meanwhile."""
_PIECE: Final = 64 * 1024
_OURS: Final = {"user-agent": "moonshim", "accept": "*/*", "accept-encoding": "identity"}
"""Headers of our own, where the call has none. Hosts that compress a stream hold events back for it."""


class UpstreamClient:
    """Asks hosts. One for the process: it keeps connections, as many at once as there are streams.

    `open` raises `UpstreamUnreachable` or `UpstreamStalled`, and nothing else. No redirect is followed, no cookie
    kept. Cancelling `open` leaves nothing behind.
    """

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._closed = False
        self._answers: WeakSet[UpstreamResponse] = WeakSet()
        self._proxies: dict[tuple[str, str | None], str | None] = {}

    async def open(self, call: UpstreamRequest) -> UpstreamResponse:
        """Ask, and wait for the headers of the answer."""
        if self._closed:
            raise UpstreamUnreachable(f"{origin_of(call.url)} is not asked any more: the gateway is closing")
        attempt = await self._ask(call)
        if attempt.kept and attempt.lost:
            # The host gave the connection up while the request was on its way, and has seen none of it or little.
            attempt = await self._ask(call)
        if attempt.failure is not None:
            raise attempt.failure
        assert attempt.response is not None
        answer = UpstreamResponse(attempt.response, call)
        self._answers.add(answer)
        return answer

    async def close(self) -> None:
        """Drop every connection. Answers that are still read end with `UpstreamBroke`."""
        self._closed = True
        for answer in list(self._answers):  # the session would leave their readers waiting
            answer.close()
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _ask(self, call: UpstreamRequest) -> _PendingRequest:
        asking = _PendingRequest(call)
        proxy: str | None = None
        _ASKING.set(asking)
        try:
            proxy = self._proxy(call)
            async with asyncio.timeout(call.timeouts.connect) as asking.deadline:
                asking.response = await self._open_session().request(
                    call.method,
                    call.url,
                    data=call.body if len(call.body) < _LARGE_BODY else _pieces(call.body),
                    headers=_headers(call),
                    allow_redirects=False,
                    proxy=proxy,
                    ssl=ssl_context(call.ca_bundle) if call.url[:5].lower() == "https" else True,
                )
        except UpstreamError as error:
            asking.failure = error
        except FAILURES as error:
            late = asking.deadline is not None and asking.deadline.expired()
            asking.failure = asking.too_late(proxy) if late else unreachable(error, call, proxy)
            asking.lost = lost_at_once(error)
        finally:
            _ASKING.set(None)
        return asking

    def _proxy(self, call: UpstreamRequest) -> str | None:
        """Looked up once for each address: there are as many as are configured."""
        key = (call.url, call.proxy)
        if key not in self._proxies:
            self._proxies[key] = proxy_for(call.url, call.proxy)
        return self._proxies[key]

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=_Connector(limit=0, keepalive_timeout=KEPT_SECONDS, ttl_dns_cache=NAMES_SECONDS),
                timeout=aiohttp.ClientTimeout(total=None, connect=None, sock_connect=None, sock_read=None),
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=("content-type",),
                read_bufsize=BUFFERED_BYTES,
                max_field_size=LONGEST_HEADER,
            )
        return self._session


def _headers(call: UpstreamRequest) -> dict[str, str]:
    headers = {**_OURS, **{name.lower(): value for name, value in call.headers.items()}}
    if len(call.body) >= _LARGE_BODY:
        headers["content-length"] = str(len(call.body))
    return headers


async def _pieces(body: bytes) -> AsyncIterator[memoryview]:
    """Lets other requests in between. aiohttp would write a string at once, and copy what is in a `BytesIO`."""
    view = memoryview(body)
    for at in range(0, len(view), _PIECE):
        yield view[at : at + _PIECE]
        await asyncio.sleep(0)


class _PendingRequest:
    """One request on its way: whether there is a connection yet, and what came of it."""

    def __init__(self, call: UpstreamRequest) -> None:
        self.call = call
        self.deadline: asyncio.Timeout | None = None
        self.connected = False
        self.kept = False
        """Whether the connection had been used before."""
        self.lost = False
        self.failure: UpstreamError | None = None
        self.response: aiohttp.ClientResponse | None = None

    def connect(self, kept: bool) -> None:
        """There is a connection: from now on the host's time runs."""
        self.connected, self.kept = True, kept
        if self.deadline is not None and not self.deadline.expired():
            self.deadline.reschedule(asyncio.get_running_loop().time() + self.call.timeouts.first_byte)

    def too_late(self, proxy: str | None) -> UpstreamError:
        timeouts, origin = self.call.timeouts, origin_of(self.call.url)
        if self.connected:
            return UpstreamStalled(f"{origin} sent no answer for {timeouts.first_byte:g} seconds")
        through = f" through the proxy {origin_of(proxy)}" if proxy else ""
        return UpstreamUnreachable(f"no connection to {origin}{through} within {timeouts.connect:g} seconds")


_ASKING: Final[ContextVar[_PendingRequest | None]] = ContextVar("asking", default=None)
"""Who asks in this task. aiohttp's own way to tell of connections, its traces, is a sixth of what it does."""


class _Connector(aiohttp.TCPConnector):
    """Makes `_Connection`s. If a later aiohttp has another way of making them, its own have to do."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if hasattr(self, "_factory") and hasattr(ResponseHandler, "_reading_paused"):
            make: Any = partial(_Connection, loop=self._loop)
            self._factory = make

    async def connect(self, *args: Any, **options: Any) -> Any:
        """A connection, and the `_PendingRequest` that wanted it is told."""
        connection = await super().connect(*args, **options)
        protocol, kept = connection.protocol, False
        if isinstance(protocol, _Connection):
            kept, protocol.is_used = protocol.is_used, True
        asking = _ASKING.get()
        if asking is not None:
            asking.connect(kept)
        return connection


class _Connection(ResponseHandler):
    """A connection as aiohttp has it, less one expense and one fault."""

    is_used = False
    """Whether a request went over it before."""

    def resume_reading(self, *args: Any, **options: Any) -> None:
        """Go on, but only where it had stopped.

        aiohttp 3.14 does so after every read: it runs its parser over nothing and asks the transport to go on, which
        is a fifth of all that it does for a chunk. Before 3.14 it asked first, as here.
        """
        if self._reading_paused:
            super().resume_reading(*args, **options)

    def set_exception(self, error: Any, *cause: Any) -> None:
        """A fault on the connection, which whoever reads the body must hear of.

        aiohttp keeps it to itself when the framing breaks in the middle of a body: a read would wait until it stalls.
        """
        body = self._payload
        super().set_exception(error, *cause)
        if body is not None and not body.is_eof() and body.exception() is None:
            body.set_exception(aiohttp.ClientPayloadError("the framing of the body is broken"))
