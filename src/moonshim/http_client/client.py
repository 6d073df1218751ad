"""A `UpstreamRequest` -> an `UpstreamResponse`, over pooled connections: aiohttp, entirely hidden."""

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
from moonshim.http_client.failures import FAILURES, unreachable, was_lost_before_response
from moonshim.http_client.proxy_env import proxy_for, ssl_context
from moonshim.http_client.relay import Take
from moonshim.http_client.request import UpstreamRequest, origin_of
from moonshim.http_client.response import UpstreamResponse

__all__ = ["UpstreamClient"]

BUFFERED_BYTES: Final = 64 * 1024
"""Up to twice as much waits for a slow reader; then the host is held back."""
LONGEST_HEADER: Final = 32 * 1024
KEPT_SECONDS: Final = 55.0
"""How long an idle connection is retained: a little less than the minute after which many load balancers close it."""
NAMES_SECONDS: Final = 30
"""How long the address of a name is cached."""
_LARGE_BODY: Final = 1024 * 1024
"""From this size on, a body is written piece by piece, so that other streams continue meanwhile."""
_PIECE: Final = 64 * 1024
_OURS: Final = {"user-agent": "moonshim", "accept": "*/*", "accept-encoding": "identity"}
"""Default headers. Hosts that compress a stream delay events."""


class UpstreamClient:
    """Calls hosts. One per process: it pools connections, as many at once as there are streams.

    `open` raises `UpstreamUnreachable` or `UpstreamStalled`, and nothing else. Redirects are not followed, and cookies
    are not stored. Cancelling `open` leaves nothing behind.
    """

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._closed = False
        self._answers: WeakSet[UpstreamResponse] = WeakSet()
        self._proxies: dict[tuple[str, str | None], str | None] = {}

    async def open(self, call: UpstreamRequest) -> UpstreamResponse:
        """Send the request, and wait for the headers of the response."""
        if self._closed:
            raise UpstreamUnreachable(f"no request was sent to {origin_of(call.url)}: the client is closed")
        attempt = await self._ask(call)
        if attempt.reused and attempt.lost:
            # The host closed the pooled connection while the request was being sent, and has seen little or none of it.
            attempt = await self._ask(call)
        if attempt.failure is not None:
            raise attempt.failure
        assert attempt.response is not None
        answer = UpstreamResponse(attempt.response, call, attempt.connect_seconds)
        self._answers.add(answer)
        return answer

    async def close(self) -> None:
        """Close every connection. Responses that are still being read end with `UpstreamBroke`."""
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
            asking.lost = was_lost_before_response(error)
        finally:
            _ASKING.set(None)
        return asking

    def _proxy(self, call: UpstreamRequest) -> str | None:
        """Looked up once per address: there are only as many as are configured."""
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
    """Yields to other requests between pieces. aiohttp would write a string at once, and copy the content of a
    `BytesIO`."""
    view = memoryview(body)
    for at in range(0, len(view), _PIECE):
        yield view[at : at + _PIECE]
        await asyncio.sleep(0)


class _PendingRequest:
    """One request in progress: whether there is a connection yet, and its outcome."""

    def __init__(self, call: UpstreamRequest) -> None:
        self.call = call
        self.deadline: asyncio.Timeout | None = None
        self.connected = False
        self.connect_seconds: float | None = None
        self._started = asyncio.get_running_loop().time()
        self.reused = False
        """Whether the connection had been used before."""
        self.lost = False
        self.failure: UpstreamError | None = None
        self.response: aiohttp.ClientResponse | None = None

    def connect(self, reused: bool) -> None:
        """The connection is established: from now on the host's time runs."""
        self.connected, self.reused = True, reused
        now = asyncio.get_running_loop().time()
        self.connect_seconds = None if reused else now - self._started
        if self.deadline is not None and not self.deadline.expired():
            self.deadline.reschedule(now + self.call.timeouts.first_byte)

    def too_late(self, proxy: str | None) -> UpstreamError:
        timeouts, origin = self.call.timeouts, origin_of(self.call.url)
        if self.connected:
            return UpstreamStalled(f"{origin} sent no response within {timeouts.first_byte:g} seconds")
        through = f" through the proxy {origin_of(proxy)}" if proxy else ""
        return UpstreamUnreachable(f"no connection to {origin}{through} within {timeouts.connect:g} seconds")


_ASKING: Final[ContextVar[_PendingRequest | None]] = ContextVar("asking", default=None)
"""The pending request of this task. aiohttp's own way to report connections, its traces, is a sixth of its work."""


class _Connector(aiohttp.TCPConnector):
    """Creates `_Connection`s. If a later aiohttp creates them differently, its own are used."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if hasattr(self, "_factory") and hasattr(ResponseHandler, "_reading_paused"):
            make: Any = partial(_Connection, loop=self._loop)
            self._factory = make

    async def connect(self, *args: Any, **options: Any) -> Any:
        """A connection; notifies the `_PendingRequest` that wanted it."""
        connection = await super().connect(*args, **options)
        protocol, reused = connection.protocol, False
        if isinstance(protocol, _Connection):
            reused, protocol.is_used = protocol.is_used, True
        asking = _ASKING.get()
        if asking is not None:
            asking.connect(reused)
        return connection


class _Connection(ResponseHandler):
    """aiohttp's connection, without one inefficiency and one bug."""

    is_used = False
    """Whether a request was sent over it before."""
    take: Take | None = None
    """Gets the pieces of a body before its reader: see `relay`."""

    def resume_reading(self, *args: Any, **options: Any) -> None:
        """Resume, but only if it was paused.

        aiohttp 3.14 does so after every read: it runs its parser over nothing and resumes the transport, which is a
        fifth of its work for a chunk. Before 3.14 it checked first, as here.
        """
        if self._reading_paused:
            super().resume_reading(*args, **options)

    def set_exception(self, error: Any, *cause: Any) -> None:
        """An error on the connection, which the reader of the body must get.

        aiohttp swallows it when the framing breaks in the middle of a body: a read would wait until it stalls.
        """
        body = self._payload
        super().set_exception(error, *cause)
        if body is not None and not body.is_eof() and body.exception() is None:
            body.set_exception(aiohttp.ClientPayloadError("invalid framing of the response body"))
