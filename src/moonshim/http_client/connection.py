"""One connection to a host: a request -> the response to it, as it arrives.

A piece of a body goes from the socket to `IncomingResponse.take` without waking a task: a task would cost more than the
repair of a chunk. What is not taken waits in a buffer, and when that is full, the host is held back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias

import httptools

from moonshim.http_client.content_encoding import BadContent, ContentDecoder, decoder_for

__all__ = ["MOST_AT_ONCE", "Connection", "ConnectionFailed", "IncomingResponse", "Take"]

Take: TypeAlias = Callable[[bytes], bool]
"""Takes a piece; False: it has to be read, and so has everything after it. Must not raise."""

BUFFERED_BYTES: Final = 64 * 1024
"""Up to twice as much waits for a slow reader; then the host is held back."""
MOST_AT_ONCE: Final = 8 * 1024
"""Bytes per read. They are sent on before more is read, so that a client that stops reading holds no more than these;
and other requests get their turn, so that a host that sends at full speed does not delay them."""
HEAD_BYTES: Final = 32 * 1024
"""Of a response's headers, its trailers, or what stands between two pieces of its body."""
MOST_HEADERS: Final = 200
LARGE_BODY: Final = 1024 * 1024
"""From this size on, a body is written piece by piece, so that other streams continue meanwhile."""
_PIECE: Final = 64 * 1024
_SWITCHING: Final = 101
_WITHOUT_BODY: Final = frozenset({204, 304})


Fault: TypeAlias = Literal["lost", "headers", "framing", "encoding"]
"""The connection ended; too many or too long headers; what arrived is not HTTP; an unknown Content-Encoding."""


class ConnectionFailed(Exception):
    """There is no response, or no more of it. Says nothing that was received."""

    def __init__(self, fault: Fault, error: BaseException | None = None, *, before_response: bool = False) -> None:
        super().__init__(fault)
        self.fault: Fault = fault
        self.error = error
        """What the system reported, if anything."""
        self.before_response = before_response
        """The connection ended without a byte of a response, as one does that the host had closed before."""


class _TooMuch(Exception):
    """Raised in a callback of the parser, to end its work."""


class _NoResponse(Exception):
    """Raised in a callback of the parser: this is no response to what was sent."""


class IncomingResponse:
    """A response as it arrives: the callbacks of the parser fill it, one reader empties it."""

    __slots__ = (
        "_chunked",
        "_connection",
        "_count",
        "_decoder",
        "_has_length",
        "_head_size",
        "_pieces",
        "_size",
        "_waiter",
        "failure",
        "headers",
        "is_complete",
        "is_late",
        "status",
        "take",
        "unread",
    )

    def __init__(self, connection: Connection) -> None:
        self._connection: Connection | None = connection
        self.status = 0
        """0: its headers are not complete yet."""
        self.headers: dict[str, str] = {}
        """Names in lower case; values of one name joined by commas."""
        self.is_complete = False
        """The host has sent everything."""
        self.failure: ConnectionFailed | None = None
        """Why it will not be complete."""
        self.is_late = False
        """Its headers did not arrive in time."""
        self.take: Take | None = None
        """Is offered each piece that arrives, while a reader waits."""
        self.unread = 0
        """Bytes since the last piece of the body, or since the start."""
        self._pieces: list[bytes] = []
        """A few dozen at most. Mostly empty, and an empty deque takes ten times the memory of an empty list."""
        self._size = self._count = self._head_size = 0
        self._chunked = self._has_length = False
        self._decoder: ContentDecoder | None = None
        self._waiter: asyncio.Future[None] | None = None

    # -- callbacks of the parser -----------------------------------------------------

    def on_message_begin(self) -> None:
        if self.is_complete:
            raise _NoResponse

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count += 1
        self._head_size += len(name) + len(value)
        if self._count > MOST_HEADERS or self._head_size > HEAD_BYTES:
            raise _TooMuch
        if self.status:
            return  # a trailer
        key, text = name.decode("latin-1").lower(), value.decode("utf-8", "surrogateescape")
        self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text

    def on_headers_complete(self) -> None:
        assert self._connection is not None, "a closed response is not parsed"
        status = self._connection.parsed_status
        if status == _SWITCHING:
            raise _NoResponse
        if status < 200:
            self.headers, self._count, self._head_size = {}, 0, 0  # an interim response: the final one follows
            return
        self._has_length = "content-length" in self.headers or status in _WITHOUT_BODY
        self._chunked = "chunked" in self.headers.get("transfer-encoding", "").lower()
        self.unread = self._count = self._head_size = 0
        self._decoder = decoder_for(self.headers.get("content-encoding", ""))
        self.status = status
        self.wake()

    def on_body(self, data: bytes) -> None:
        self.unread = 0
        take = self.take
        if take is not None:
            if take(data):
                return
            self.take = None
        self._pieces.extend(data[at : at + MOST_AT_ONCE] for at in range(0, len(data), MOST_AT_ONCE))
        self._size += len(data)
        if self._size > 2 * BUFFERED_BYTES and self._connection is not None:
            self._connection.pause_reading()
        self.wake()

    def on_message_complete(self) -> None:
        if self.status and self._connection is not None:
            self.is_complete = True
            self._connection.note_end()

    # -- the connection --------------------------------------------------------------

    def detach(self) -> None:
        """The connection is done with this response."""
        self._connection = None
        self.wake()

    def break_off(self, failure: ConnectionFailed) -> None:
        """Nothing more arrives. A response without a length is complete then."""
        if self.is_complete or self.failure is not None:
            return
        if self.status and failure.error is None and not self._chunked and not self._has_length:
            self.is_complete = True
        else:
            self.failure = failure
        self.detach()

    # -- the reader ------------------------------------------------------------------

    async def read(self) -> bytes:
        """At most `MOST_AT_ONCE` bytes; empty: the response is complete. Raises `ConnectionFailed` and `BadContent`."""
        while True:
            if data := self._next():
                return data
            if self._decoder is not None and self.is_complete:
                self._decoder.end()
            if self.is_complete:
                return b""
            if self.failure is not None:
                raise self.failure
            await self.wait()

    async def wait(self) -> None:
        """Until something has happened."""
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    @property
    def has_more(self) -> bool:
        """Whether something can be read without waiting."""
        return bool(self._pieces) or not (self._decoder is None or self._decoder.is_waiting)

    @property
    def is_encoded(self) -> bool:
        return self._decoder is not None

    def _next(self) -> bytes:
        if self._decoder is not None:
            return self._decode(self._decoder)
        if not self._pieces:
            return b""
        data = self._pieces.pop(0)
        while self._pieces and len(data) + len(self._pieces[0]) <= MOST_AT_ONCE:
            data += self._pieces.pop(0)
        self._shrink(len(data))
        return data

    def _decode(self, decoder: ContentDecoder) -> bytes:
        while self.has_more:
            piece = self._pieces.pop(0) if decoder.is_waiting else b""
            self._shrink(len(piece))
            if data := decoder.decode(piece, MOST_AT_ONCE):
                return data
        return b""

    def _shrink(self, size: int) -> None:
        self._size -= size
        if self._connection is not None and self._size <= BUFFERED_BYTES:
            self._connection.resume_reading()


class Connection(asyncio.Protocol):
    """A connection, which serves one request at a time. `ended` is called when it may serve another one, or none."""

    __slots__ = (
        "_ended",
        "_incoming",
        "_is_sent",
        "_parser",
        "_reading_paused",
        "_received",
        "_stays_open",
        "_writing_paused",
        "is_open",
        "is_used",
        "transport",
    )

    def __init__(self, ended: Callable[[Connection], None]) -> None:
        self._ended = ended
        self.transport: Any = None
        self.is_used = False
        """Whether a request was sent over it before the current one."""
        self.is_open = False
        self._incoming: IncomingResponse | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._is_sent = False
        """The whole request was written."""
        self._stays_open = False
        """The host will take another request."""
        self._received = False
        self._reading_paused = self._writing_paused = False

    # -- callbacks of the transport --------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self.transport, self.is_open = transport, True

    def data_received(self, data: bytes) -> None:
        incoming = self._incoming
        if incoming is None:
            self.abort()  # nobody has sent a request
            return
        self._received = True
        incoming.unread += len(data)
        assert self._parser is not None
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if not incoming.is_complete:
                self._fail(_unreadable(error, in_headers=not incoming.status))
                return
            self._stays_open = False  # what follows the response belongs to no request
        if incoming.is_complete:
            self._complete(incoming)
        elif incoming.unread > HEAD_BYTES:
            self._fail(ConnectionFailed("headers"))

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        incoming, self._incoming = self._incoming, None
        if incoming is not None:
            incoming.break_off(ConnectionFailed("lost", error, before_response=not self._received))
        self._parser = None
        self._ended(self)

    def pause_writing(self) -> None:
        self._writing_paused = True

    def resume_writing(self) -> None:
        self._writing_paused = False
        if self._incoming is not None:
            self._incoming.wake()

    # -- one request -----------------------------------------------------------------

    async def ask(self, head: bytes, body: bytes, seconds: float) -> IncomingResponse:
        """Send a request; return when the headers of the response are complete.

        Raises `ConnectionFailed`, `BadContent`, and `TimeoutError` after this many seconds. After any exception, the
        connection is closed.
        """
        incoming = self._incoming = IncomingResponse(self)
        self._parser = httptools.HttpResponseParser(incoming)
        # As aiohttp, and so most of Python, reads responses. Requests are read strictly, of course.
        self._parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )
        self._received = self._is_sent = False
        timer = asyncio.get_running_loop().call_later(seconds, _expire, incoming)
        try:
            await self._send(incoming, head, body)
            while not incoming.status:
                await _progress(incoming)
        except BaseException:
            if self._incoming is incoming:  # otherwise the connection may serve another request by now
                self.abort()
            raise
        finally:
            timer.cancel()
        return incoming

    async def _send(self, incoming: IncomingResponse, head: bytes, body: bytes) -> None:
        if len(body) < LARGE_BODY:
            self.transport.write(head + body)
        else:
            self.transport.write(head)
            view = memoryview(body)
            for at in range(0, len(view), _PIECE):
                await asyncio.sleep(0)  # other requests get their turn between two pieces
                while self._writing_paused and not incoming.status:
                    await _progress(incoming)
                if incoming.status or not self.is_open:
                    return  # the host does not want the rest
                self.transport.write(view[at : at + _PIECE])
        self._is_sent = True

    def note_end(self) -> None:
        """The parser is at the end of the response: only now it knows whether another one may follow."""
        assert self._parser is not None
        self._stays_open = self._parser.should_keep_alive()

    def _complete(self, incoming: IncomingResponse) -> None:
        self._incoming = self._parser = None  # the parser refers to the response, and that to this connection
        self.resume_reading()
        incoming.detach()
        if self._is_sent and self._stays_open:
            self.is_used = True
            self._ended(self)
        elif self._is_sent:
            self.transport.close()
        else:
            self.abort()  # it would wait until the host has read the rest of the request

    def _fail(self, failure: ConnectionFailed) -> None:
        incoming, self._incoming = self._incoming, None
        if incoming is not None:
            incoming.break_off(failure)
        self.abort()

    @property
    def parsed_status(self) -> int:
        assert self._parser is not None
        status: int = self._parser.get_status_code()
        return status

    def abort(self) -> None:
        """Close at once, whatever is being sent or received."""
        if self.transport is not None:
            self.transport.abort()

    # -- back-pressure ---------------------------------------------------------------

    def pause_reading(self) -> None:
        if not self._reading_paused:
            self._reading_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if self._reading_paused:
            self._reading_paused = False
            if self.is_open:
                self.transport.resume_reading()


async def _progress(incoming: IncomingResponse) -> None:
    """Wait until something has happened. Raises `ConnectionFailed`, and `TimeoutError` if it is too late."""
    if incoming.failure is not None:
        raise incoming.failure
    if incoming.is_late:
        raise TimeoutError
    await incoming.wait()


def _expire(incoming: IncomingResponse) -> None:
    incoming.is_late = True
    incoming.wake()


def _unreadable(error: Exception, *, in_headers: bool) -> ConnectionFailed:
    inner = error.__context__
    if isinstance(inner, BadContent):
        return ConnectionFailed("encoding")
    return ConnectionFailed("headers" if in_headers and isinstance(inner, _TooMuch) else "framing")
