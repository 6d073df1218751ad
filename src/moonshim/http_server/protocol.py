"""Bytes of a connection -> requests, with headers bounded in size, number and time.

uvicorn's httptools protocol, on which this is built, waits forever for the end of a header and holds all of it. Here
every state in which we wait for a client has a deadline, and every state in which we buffer data has a limit:

    waiting for headers     `header_seconds` from the connection's opening, or from the first byte of a next request
    headers, trailers       `header_bytes`, `MOST_HEADERS`
    the body                is up to the application; once that has answered, `LINGER_SECONDS`
    a refused client        has `LINGER_SECONDS` to read why, whatever it still sends

A connection serves one request at a time. Requests that a client sends before it has the answer to an earlier one
(pipelining) wait, and are answered in order: up to `MOST_PIPELINED` requests and `PIPELINED_BYTES`. What exceeds that,
or cannot be read as a request, is dropped, and the connection ends after the last answer, as RFC 9112 (9.3.2) allows.
uvicorn has such a queue, but reports a disconnect to the last request only: the running one would continue in vain.

A client may close its sending side after its request (`shutdown(SHUT_WR)`) and still wait for the answer. A client that
has closed the whole connection looks the same, until something is sent to it: then its system answers with a reset. So
something harmless is sent at once, and the connection stays open unless a reset comes back.
"""

from __future__ import annotations

import asyncio
import re
import socket
import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any, ClassVar, Final, NoReturn

import httptools
import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from moonshim.config.model import Limits
from moonshim.http_server import logs
from moonshim.http_server.descriptors import DescriptorBudget, room_for_connections

__all__ = [
    "DIRECT",
    "DROP",
    "LINGER_SECONDS",
    "MOST_HEADERS",
    "MOST_PIPELINED",
    "ROOM",
    "BoundedProtocol",
    "DirectWriter",
    "protocol_with",
]

DROP: Final = "moonshim.drop"
"""An extension of the ASGI scope: its `drop` ends a connection within a response, its `abort` also discards what is
waiting to be read."""
ROOM: Final = "moonshim.room"
"""An extension of the ASGI scope: its `left` says whether this request may open a connection to a host."""
DIRECT: Final = "moonshim.direct"
"""An extension of the ASGI scope: its `open` returns a `DirectWriter` for a response that has started, or None."""
RETRY_SECONDS: Final = 2
REFUSED_SECONDS: Final = 0.5
"""How long a connection for which there is no descriptor has to read the reason."""
UNSENT_BYTES: Final = 32 * 1024
"""How much of a response waits in this process for a client that does not read, and as much again in the system, before
reading from its host pauses."""
_UNSENT: Final[int | None] = getattr(socket, "TCP_NOTSENT_LOWAT", None)
MOST_HEADERS: Final = 200
LINGER_SECONDS: Final = 5.0
"""How long we keep reading, and discarding, what comes after a response. A connection that is closed while a client
still sends is reset, and the client never sees why it was refused."""
MOST_PIPELINED: Final = 16
PIPELINED_BYTES: Final = 64 * 1024
"""Limits for requests that wait on one connection for their turn: how many are accepted, and how much is read."""
FIRST_LOOK: Final = 0.01
LAST_LOOK: Final = 1.0
"""Seconds between two checks whether a client that has closed its sending side is gone: they double."""
LINGER_PAUSE: Final = 0.01
"""Seconds of pause after each large read of that: a client that sends fast must not keep the event loop busy."""
LINGER_BYTES: Final = 4096
_NOT_HTTP: Final = "The request is not valid HTTP/1.1."
_TOO_LARGE: Final = "The request headers are too large."
_NO_ROOM: Final = "The server has reached its maximum number of open connections. Retry in a moment."
_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
_BODY_HEADERS: Final = frozenset({b"content-length", b"transfer-encoding"})
_OFFER: Final = b"\r\nUpgrade: h2c\r\n"


class DirectWriter:
    """Writes pieces of one response that has started, without the detour over ASGI and its tasks."""

    __slots__ = ("_cycle", "_flow", "_write")

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle, self._flow, self._write = cycle, cycle.flow, cycle.transport.write

    @property
    def is_ready(self) -> bool:
        """Whether the client reads what it is sent. If not, `send` waits for it."""
        return not (self._flow.write_paused or self._cycle.disconnected)

    def write(self, data: bytes) -> None:
        """Send a piece, which must not be empty, if it `is_ready` and before the last one was sent."""
        self._write(b"%x\r\n%b\r\n" % (len(data), data))


class _Stop(Exception):
    """Raised in a callback of the parser, to end its work."""


class BoundedProtocol(HttpToolsProtocol):
    """One connection. Whatever a client sends, or fails to send, it never waits forever or buffers more than its
    limits.

    Costs nothing while a response is sent: every check is on input.
    """

    limits: ClassVar[Limits] = Limits()
    linger_seconds: ClassVar[float] = LINGER_SECONDS
    room: ClassVar[DescriptorBudget] = room_for_connections()
    """In descriptors: one for each client, and one for the host that each request may call."""
    waiting: ClassVar[OrderedDict[BoundedProtocol, None]] = OrderedDict()
    """Connections without a request, the one that has waited longest first: silent, idle, or with a partial header."""

    # -- the connection --------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        self._deadline: asyncio.TimerHandle | None = None
        self._deaf = False
        """Discard all input: the last response of this connection has been sent, or is being sent."""
        self._in_request = False
        """Between the end of a request's headers and its own end."""
        self._in_headers = False
        """Between the first byte of a request and the end of its headers."""
        self._lingers = False
        """The response has been sent, and the rest of the request is still coming."""
        self._received_any = False
        self._unread = 0
        """Bytes buffered in the parser: the beginning of a header, or of a chunk's size."""
        self._size = 0
        self._count = 0
        """Bytes of the headers so far."""
        self._reason = 400, _NOT_HTTP
        self._running: RequestResponseCycle | None = None
        """The request that is being answered, or was last. `cycle` is the one that was received last."""
        self._ahead = 0
        """Bytes received while an earlier request was being answered."""
        super().connection_made(transport)
        self.waiting[self] = None
        transport.set_write_buffer_limits(high=UNSENT_BYTES)
        bare: socket.socket | None = transport.get_extra_info("socket")
        if _UNSENT is not None and bare is not None and bare.family in (socket.AF_INET, socket.AF_INET6):
            bare.setsockopt(socket.IPPROTO_TCP, _UNSENT, UNSENT_BYTES)
        self._expect(self.limits.header_seconds, self._headers_are_late)
        if self._descriptors() > self.room.connections:
            self._make_room()

    def _has_room(self) -> bool:
        """Whether a request may call a host; connections without a request are closed to make room."""
        while self._descriptors() > self.room.requests and self.waiting:
            self._close_oldest()
        return self._descriptors() <= self.room.requests

    def _descriptors(self) -> int:
        return len(self.connections) + len(self.tasks)

    def _make_room(self) -> None:
        """There are too many connections: close the one that has waited longest for a request, or refuse this one."""
        if len(self.waiting) > 1:
            self._close_oldest()
        elif self._descriptors() <= self.room.refusals:
            self._refuse(503, _NO_ROOM, [(b"retry-after", b"%d" % RETRY_SECONDS)], linger=REFUSED_SECONDS)
        else:
            logs.event("connection_dropped", level="warning", problem=_NO_ROOM)
            self.transport.abort()

    def _close_oldest(self) -> None:
        oldest, _ = self.waiting.popitem(last=False)
        oldest.transport.close()
        if not oldest.transport.get_write_buffer_size():
            # Its descriptor is free when the event loop continues. Otherwise its client has to read its response first.
            self.connections.discard(oldest)

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_nothing()
        self.waiting.pop(self, None)
        running = self._running
        super().connection_lost(exc)
        self.pipeline.clear()
        if running is not None and not running.response_complete:
            running.disconnected = True
            running.message_event.set()

    def data_received(self, data: bytes) -> None:
        if (self._deaf or self._lingers) and len(data) > LINGER_BYTES:
            self._pause_reading()
        if self._deaf:
            return
        if self._deadline is None and not self._in_request and not self._answering():
            # The first byte of a next request, even an empty line. Nothing that follows moves this deadline.
            self._expect(self.limits.header_seconds, self._headers_are_late)
        if not self._in_request:
            data = _without_offer(data)
        self._received_any = True
        self._unread += len(data)
        if self._answering() and not self._receives_running():
            self._ahead += len(data)
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # an offer that is not accepted: the request is answered over HTTP/1.1
        except httptools.HttpParserError:
            self._refuse(*self._reason)
        if (self._unread > self.limits.header_bytes or self._ahead > PIPELINED_BYTES) and not self._deaf:
            self._refuse(431, _TOO_LARGE)
        if self.pipeline:
            self.flow.resume_reading()  # or a disconnect would go unnoticed

    def eof_received(self) -> bool:  # type: ignore[override]  # as asyncio has it
        running = self._running
        if running is None or running.response_complete or running.disconnected or self._receives_running():
            return False
        self._end_after_last()
        if not running.response_started:
            if running.scope["http_version"] == "1.1":
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        elif running.chunked_encoding:
            self.transport.write(b"0")  # the size of the next chunk may begin with it
        self._look_for_reset(FIRST_LOOK)
        return True

    def _end_after_last(self) -> None:
        """Answer the requests that were received completely, then close the connection."""
        self._deaf = True
        if self._in_request and self.pipeline:
            self.pipeline.popleft()  # the one received last, whose body will never be complete
            self._in_request = False
        assert self._running is not None
        self.cycle = self.pipeline[0][0] if self.pipeline else self._running
        self.cycle.keep_alive = False

    def _look_for_reset(self, seconds: float) -> None:
        """Reading has stopped, so a reset would otherwise go unnoticed."""
        bare = self.transport.get_extra_info("socket")
        if self.transport.is_closing() or not self._answering():
            return
        if bare.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.transport.abort()
        else:
            self.loop.call_later(seconds, self._look_for_reset, min(2 * seconds, LAST_LOOK))

    def _answering(self) -> bool:
        return self._running is not None and not self._running.response_complete

    def _receives_running(self) -> bool:
        """Whether the input is the body of the request that is being answered."""
        return self._in_request and self.cycle is self._running

    # -- parser callbacks ----------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._answering() and len(self.pipeline) == MOST_PIPELINED:
            raise _Stop
        self._size = self._count = 0
        self._in_headers = True
        super().on_message_begin()
        self.scope["extensions"] = {
            DROP: {"drop": self._drop, "abort": self._abort},
            ROOM: {"left": self._has_room},
            DIRECT: {"open": self._open_direct},
        }

    def on_url(self, url: bytes) -> None:
        self._grow(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count += 1
        self._grow(len(name) + len(value))
        # uvicorn would add a trailer, which comes after the body, to the headers that were checked before it.
        if not self._in_request:
            super().on_header(name, value)

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > self.limits.header_bytes:
            self._stop(431, _TOO_LARGE)
        if self._count > MOST_HEADERS:
            self._stop(431, f"The request has more than {MOST_HEADERS} headers.")

    def on_headers_complete(self) -> None:
        self._expect_nothing()
        self._unread = 0
        version = self.parser.get_http_version()
        if version not in ("1.1", "1.0"):
            self._stop(400, _NOT_HTTP)
        if not self.url.startswith(b"/"):
            self._stop(400, "The request target must be a path: this server is not a proxy.")
        hosts = 0
        for name, value in self.headers:
            hosts += name == b"host"
            if name == b"upgrade" and value.strip().lower() == b"websocket":
                # Codex, for one, tries this first, and takes 426 as the signal to continue over HTTP.
                self._stop(
                    426,
                    "WebSockets are not supported. Send the request over HTTP, with `stream` for a streamed response.",
                )
            if name in _BODY_HEADERS and value != b"0" and self.parser.should_upgrade():
                self._stop(426, "Send the request without an Upgrade header.")
        if hosts > 1 or (hosts == 0 and version == "1.1"):
            self._stop(400, "The request must have exactly one Host header.")
        self._in_request, self._in_headers = True, False
        waits = self._answering()
        self.waiting.pop(self, None)
        super().on_headers_complete()
        if version == "1.0":
            self.cycle.send = partial(_send_unchunked, self.cycle, self.cycle.send)  # type: ignore[method-assign]
        if not waits:
            self._running = self.cycle

    def on_body(self, body: bytes) -> None:
        self._unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_request = self._lingers = False
        self._unread = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        following = self.pipeline[-1][0] if self.pipeline and not self.transport.is_closing() else None
        super().on_response_complete()
        if following is not None:
            self._running = following
            return
        self._ahead = 0
        self.waiting[self] = None
        if self._in_headers:
            # The headers of a next request have started to arrive.
            self._expect(self.limits.header_seconds, self._headers_are_late)
        # The rest of the body would end uvicorn's own timer for idle connections, and none would start again.
        if self._in_request and not self.transport.is_closing():
            self._lingers = True
            self._expect(self.linger_seconds, self.transport.abort)

    def _pause_reading(self) -> None:
        self.flow.pause_reading()
        self.loop.call_later(LINGER_PAUSE, self._resume_reading)

    def _resume_reading(self) -> None:
        if not self.transport.is_closing():
            self.flow.resume_reading()

    # -- refusals ------------------------------------------------------------------------

    def _stop(self, status: int, message: str) -> NoReturn:
        self._reason = status, message
        raise _Stop

    def _headers_are_late(self) -> None:
        if self._received_any:
            self._refuse(408, f"The request headers did not arrive within {self.limits.header_seconds:g} seconds.")
        else:
            self.transport.close()  # opened and never used, as browsers do: there is nothing to answer

    def _refuse(
        self, status: int, message: str, headers: Sequence[tuple[bytes, bytes]] = (), linger: float | None = None
    ) -> None:
        self._deaf = True
        self._expect_nothing()
        if self.transport.is_closing():
            return
        if self._answering():
            if not self._receives_running():
                # Earlier requests have not been answered yet: end after their responses, without an error in the
                # middle.
                self._end_after_last()
                return
            self.cycle.disconnected = True  # its body will never be complete
            self.cycle.message_event.set()
            if self.cycle.response_started:
                self.transport.abort()
                return
        request_id = self._request_id()
        logs.event("http_rejected", level="warning", request_id=request_id, status=status, problem=message)
        self.transport.write(self._answer(status, message, [*headers, (b"x-request-id", request_id.encode())]))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._expect(self.linger_seconds if linger is None else linger, self.transport.abort)

    def _request_id(self) -> str:
        """The client's own id, if it sent a sensible one."""
        given = next((value for name, value in self.headers or () if name == b"x-request-id"), b"")
        return given.decode() if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex

    def _answer(self, status: int, message: str, more: Sequence[tuple[bytes, bytes]]) -> bytes:
        # There is no dialect yet: this is what OpenAI's and Anthropic's clients both read.
        kind = "overloaded_error" if status == HTTPStatus.SERVICE_UNAVAILABLE else "invalid_request_error"
        error = {"type": "error", "error": {"type": kind, "message": message}}
        body = msgspec.json.encode(error)
        headers = [
            *self.server_state.default_headers,
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
            *more,
        ]
        if status == HTTPStatus.UPGRADE_REQUIRED:
            headers.append((b"upgrade", b"HTTP/1.1"))
        head = b"HTTP/1.1 %d %s\r\n" % (status, HTTPStatus(status).phrase.encode())
        return head + b"".join(b"%s: %s\r\n" % header for header in headers) + b"\r\n" + body

    def _open_direct(self) -> DirectWriter | None:
        cycle = self._running
        return DirectWriter(cycle) if cycle is not None and cycle.response_started and cycle.chunked_encoding else None

    def _drop(self) -> None:
        """Close after sending what was written, without the end of the response, so that it is not taken for
        complete."""
        if self._running is not None:
            self._running.disconnected = True
            self._running.message_event.set()
        self.transport.close()

    def _abort(self) -> None:
        self._drop()
        self.transport.abort()

    # -- deadlines -------------------------------------------------------------------

    def _expect(self, seconds: float, otherwise: Callable[[], None]) -> None:
        self._expect_nothing()
        self._deadline = self.loop.call_later(seconds, otherwise)

    def _expect_nothing(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


async def _send_unchunked(cycle: RequestResponseCycle, send: Callable[[Any], Awaitable[None]], message: Any) -> None:
    """HTTP/1.0 has no chunks: a response without a length ends with its connection."""
    if message["type"] == "http.response.start":
        if not any(name.lower() == b"content-length" for name, _ in message.get("headers", ())):
            cycle.chunked_encoding = False
            cycle.expected_content_length = -1
    elif cycle.expected_content_length < 0:
        cycle.expected_content_length = len(message.get("body", b""))
        await send(message)
        cycle.expected_content_length = -1
        return
    await send(message)


def _without_offer(data: bytes) -> bytes:
    """Remove Java's offer of HTTP/2 in its first request, which httptools takes for the end of HTTP and so of the body.

    >>> _without_offer(b"POST / HTTP/1.1\\r\\nHost: x\\r\\nUpgrade: h2c\\r\\nA: b\\r\\n\\r\\n{}")
    b'POST / HTTP/1.1\\r\\nHost: x\\r\\nA: b\\r\\n\\r\\n{}'
    """
    if _OFFER not in data:
        return data
    head, end, body = data.partition(b"\r\n\r\n")
    return (head + b"\r\n").replace(_OFFER, b"\r\n").removesuffix(b"\r\n") + end + body


def protocol_with(limits: Limits) -> type[BoundedProtocol]:
    """The class for uvicorn's `Config(http=…)`, with these limits."""
    own = {"limits": limits, "room": room_for_connections(), "waiting": OrderedDict()}
    return type("BoundedProtocol", (BoundedProtocol,), own)
