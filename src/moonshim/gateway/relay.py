"""Pieces of a host's response -> what the client is sent for them, at once where nothing has to be waited for.

A task costs more than the repair of a chunk. So while a response streams, the connection to the host calls `take` for
each piece, and that writes to the client's connection. The task that answers the request sleeps until `take` refuses a
piece: the client has to read first, or the response ends, and then there is something to store.
"""

from __future__ import annotations

from typing import Final

from moonshim.engine.exchange import Exchange
from moonshim.gateway.client_stream import ClientStream
from moonshim.gateway.inspector.trace import ExchangeTrace
from moonshim.gateway.judging import Judging
from moonshim.gateway.observe.stream_log import StreamLog

__all__ = ["Relay", "is_comment"]

FREE_COMMENTS: Final = 100
COMMENT_SECONDS: Final = 1.0
"""Comments of a host are passed on as they come; after this many in one response, at most one per this many seconds."""
_COMMENT_STARTS: Final = b":\n"


class Relay:
    """The responses of one attempt: one, or two if the first one is empty."""

    def __init__(
        self,
        exchange: Exchange,
        client_stream: ClientStream,
        trace: ExchangeTrace | None,
        judging: Judging | None = None,
    ) -> None:
        self._judging = judging
        self._exchange, self._client_stream, self._trace = exchange, client_stream, trace
        self.log: StreamLog | None = None
        self.frames = 0
        self.received = 0
        """Bytes of the host."""
        self._comments = 0
        self._fed: tuple[int, bytes] | Exception | None = None
        """What `take` could not finish: the number of bytes that were repaired and the result, or what was raised."""

    def take(self, data: bytes) -> bool:
        """Pass on a piece as it arrives; False: it has to be read, and `feed` gives the rest of it."""
        client_stream, exchange = self._client_stream, self._exchange
        if not client_stream.is_ready:
            return False
        try:
            out = self._feed(data)
        except Exception as error:
            self._fed = error
            return False
        if exchange.has_ended or exchange.is_useless:
            self._fed = len(data), out
            return False
        if out and (out[0] not in _COMMENT_STARTS or not self.is_redundant_comment(out)):
            client_stream.write_now(out)
        return True

    def feed(self, data: bytes) -> bytes:
        """Repair bytes that were read, of which `take` may have repaired the first ones."""
        fed, self._fed = self._fed, None
        if fed is None:
            return self._feed(data)
        if isinstance(fed, Exception):
            raise fed
        size, out = fed
        return out + self._feed(data[size:]) if len(data) > size else out

    def rest(self) -> bytes:
        """What `take` repaired and did not write, for a response that is given up before `feed`."""
        fed, self._fed = self._fed, None
        return fed[1] if isinstance(fed, tuple) else b""

    def _feed(self, data: bytes) -> bytes:
        if self.log is not None and not self._exchange.is_useless:
            self.log.write(data)
        self.frames += data.count(b"\n\n")
        self.received += len(data)
        out = self._exchange.feed(data)
        if self._judging is not None and (calls := self._exchange.take_calls()):
            self._judging.offer(calls)
        if self._trace is not None:
            self._trace.chunk(data, out)
        return out

    def is_redundant_comment(self, out: bytes) -> bool:
        """Whether these are comments that the client does not need: it got something a moment ago."""
        if not is_comment(out):
            return False
        self._comments += 1
        return self._comments > FREE_COMMENTS and self._client_stream.silent_seconds < COMMENT_SECONDS


def is_comment(out: bytes) -> bool:
    """Whether these are comments and blank lines of a stream, and nothing else."""
    return out.startswith((b":", b"\n")) and all(not line or line.startswith(b":") for line in out.splitlines())
