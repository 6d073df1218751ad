"""A `UpstreamRequest` -> an `UpstreamResponse`, over pooled connections."""

from __future__ import annotations

import asyncio
import re
from typing import Final, assert_never
from weakref import WeakSet

from msgspec import Struct

from moonshim.errors import UpstreamError, UpstreamStalled, UpstreamUnreachable
from moonshim.http_client.address import Address, split_url
from moonshim.http_client.connect import Names, connect, reason_of
from moonshim.http_client.connection import Connection, ConnectionFailed
from moonshim.http_client.proxy_env import proxy_for
from moonshim.http_client.request import UpstreamRequest, origin_of
from moonshim.http_client.response import UpstreamResponse

__all__ = ["UpstreamClient"]

KEPT_SECONDS: Final = 55.0
"""How long an idle connection is retained: a little less than the minute after which many load balancers close it."""
_OURS: Final = {"user-agent": "moonshim", "accept": "*/*", "accept-encoding": "identity"}
"""Default headers. Hosts that compress a stream delay events."""
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)


class _Route(Struct, frozen=True):
    """How to reach a host. Requests of the same route can use each other's connections."""

    address: Address
    proxy: Address | None
    ca_bundle: str | None


class UpstreamClient:
    """Calls hosts. One per process: it pools connections, as many at once as there are streams.

    `open` raises `UpstreamUnreachable` or `UpstreamStalled`, and nothing else. Redirects are not followed, and cookies
    are not stored. Cancelling `open` leaves nothing behind.
    """

    def __init__(self) -> None:
        self._closed = False
        self._answers: WeakSet[UpstreamResponse] = WeakSet()
        self._routes: dict[tuple[Address, str | None, str | None], _Route] = {}
        """There are only as many as are configured."""
        self._idle: dict[_Route, dict[Connection, float]] = {}
        """With the time since when; the one that was used last is at the end."""
        self._connections: set[Connection] = set()
        self._names = Names()
        self._sweeper: asyncio.TimerHandle | None = None

    async def open(self, call: UpstreamRequest) -> UpstreamResponse:
        """Send the request, and wait for the headers of the response."""
        if self._closed:
            raise UpstreamUnreachable(f"no request was sent to {origin_of(call.url)}: the client is closed")
        route, target = self._route(call)
        head = _head(call, route, target)
        connection = self._idle_connection(route)
        if connection is not None:
            answer = await self._ask(connection, route, head, call)
            if answer is not None:
                return answer
            # The host closed the idle connection while the request was being sent, and has seen little or none of it.
        loop = asyncio.get_running_loop()
        started = loop.time()
        connection = await self._connect(route, call)
        answer = await self._ask(connection, route, head, call, loop.time() - started)
        assert answer is not None, "a new connection was not used before"
        return answer

    async def close(self) -> None:
        """Close every connection. Responses that are still being read end with `UpstreamBroke`."""
        self._closed = True
        for answer in list(self._answers):
            answer.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._names.close()
        for connection in list(self._connections):
            connection.abort()
        await asyncio.sleep(0)  # the event loop now tells each of them that it has ended

    async def _ask(
        self,
        connection: Connection,
        route: _Route,
        head: bytes,
        call: UpstreamRequest,
        connect_seconds: float | None = None,
    ) -> UpstreamResponse | None:
        """The response; None: the connection, which was used before, had been closed."""
        failure: UpstreamError
        try:
            incoming = await connection.ask(head, call.body, call.timeouts.first_byte)
        except TimeoutError:
            seconds = call.timeouts.first_byte
            failure = UpstreamStalled(f"{origin_of(call.url)} sent no response within {seconds:g} seconds")
        except ConnectionFailed as error:
            if error.before_response and connection.is_used:
                return None
            failure = _no_response(error, call, route)
        else:
            answer = UpstreamResponse(incoming, connection, call, connect_seconds)
            self._answers.add(answer)
            return answer
        raise failure

    # -- connections -----------------------------------------------------------------

    async def _connect(self, route: _Route, call: UpstreamRequest) -> Connection:
        seconds = call.timeouts.connect

        def ended(connection: Connection) -> None:
            self._ended(connection, route)

        try:
            async with asyncio.timeout(seconds):
                connection = await connect(route.address, route.proxy, route.ca_bundle, self._names, ended)
        except TimeoutError:
            pass
        else:
            if connection.is_open:
                self._connections.add(connection)
            return connection
        through = "" if route.proxy is None else f" through the proxy {route.proxy.host_and_port}"
        raise UpstreamUnreachable(f"no connection to {origin_of(call.url)}{through} within {seconds:g} seconds")

    def _idle_connection(self, route: _Route) -> Connection | None:
        idle = self._idle.get(route)
        while idle:
            connection, since = idle.popitem()
            if asyncio.get_running_loop().time() - since < KEPT_SECONDS:
                return connection
            connection.abort()
        return None

    def _ended(self, connection: Connection, route: _Route) -> None:
        """A connection is idle, or closed."""
        if not connection.is_open:
            self._connections.discard(connection)
            if (idle := self._idle.get(route)) is not None:
                idle.pop(connection, None)
        elif self._closed:
            connection.abort()
        else:
            loop = asyncio.get_running_loop()
            self._idle.setdefault(route, {})[connection] = loop.time()
            if self._sweeper is None:
                self._sweeper = loop.call_later(KEPT_SECONDS, self._sweep)

    def _sweep(self) -> None:
        """Close what was idle for too long."""
        loop = asyncio.get_running_loop()
        oldest = loop.time() - KEPT_SECONDS
        for idle in self._idle.values():
            for connection, since in list(idle.items()):
                if since <= oldest:
                    connection.abort()
        self._sweeper = loop.call_later(KEPT_SECONDS, self._sweep) if any(self._idle.values()) else None

    def _route(self, call: UpstreamRequest) -> tuple[_Route, str]:
        """The route, and path and query."""
        address, target = _split(call.url, "provider")
        key = (address, call.proxy, call.ca_bundle)
        route = self._routes.get(key)
        if route is None:
            proxy = proxy_for(call.url, call.proxy)
            through = None if proxy is None else _split(proxy, "proxy")[0]
            route = self._routes[key] = _Route(address, through, call.ca_bundle)
        return route, target


def _split(url: str, whose: str) -> tuple[Address, str]:
    try:
        return split_url(url)
    except ValueError:
        pass
    raise UpstreamUnreachable(f"the address of the {whose} is not an http or https URL")


def _head(call: UpstreamRequest, route: _Route, target: str) -> bytes:
    """The request line and the headers."""
    address, proxy = route.address, route.proxy
    headers = {"host": address.authority, **_OURS, **{name.lower(): value for name, value in call.headers.items()}}
    if call.body or call.method != "GET":
        headers["content-length"] = str(len(call.body))
    if address.credentials is not None:
        headers.setdefault("authorization", address.credentials)
    if proxy is not None and not address.is_tls:
        target = f"http://{address.authority}{target}"
        if proxy.credentials is not None:
            headers["proxy-authorization"] = proxy.credentials
    lines = [f"{call.method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    # One search instead of one per header; a line break in a header would be a second header.
    text = "\n".join(lines)
    if "\r" in text or "\0" in text or text.count("\n") != len(lines) - 1 or not all(map(_NAME.fullmatch, headers)):
        raise UpstreamUnreachable(
            f"cannot send the request to {origin_of(call.url)}: its URL or a header is not valid in HTTP (does the key "
            "contain a line break?)"
        )
    return f"{text}\n\n".replace("\n", "\r\n").encode("utf-8", "surrogateescape")


def _no_response(error: ConnectionFailed, call: UpstreamRequest, route: _Route) -> UpstreamError:
    origin = origin_of(call.url)
    place = origin if route.proxy is None else route.proxy.host_and_port
    match error.fault:
        case "headers":
            return UpstreamUnreachable(f"the response headers of {origin} are too many or too long")
        case "framing":
            return UpstreamUnreachable(f"{origin} did not send a valid HTTP response")
        case "encoding":
            return UpstreamUnreachable(
                f"{origin} sent a response with an unsupported Content-Encoding, although none was requested"
            )
        case "lost" if error.error is not None:
            return UpstreamUnreachable(f"lost the connection to {place} before a response: {reason_of(error.error)}")
        case "lost":
            return UpstreamUnreachable(f"{place} closed the connection without a response")
        case _:
            assert_never(error.fault)
