"""The body of a response that is being read -> its pieces at once, as they arrive, without waking the reader.

aiohttp's parser calls `feed_data` of a body for every piece. While a reader waits, the body is a `_RelayedBody`, whose
`feed_data` calls a function of the reader first. What that does not take is read as usual.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from aiohttp import StreamReader

__all__ = ["Take", "attach", "detach"]

Take: TypeAlias = Callable[[bytes], bool]
"""Takes a piece; False: it has to be read, and so has everything after it. Must not raise."""


class _RelayedBody(StreamReader):
    """Has no fields of its own: the class of a body changes from one to the other, and back."""

    __slots__ = ()

    def feed_data(self, data: bytes, size: int = 0) -> Any:
        """A piece arrived."""
        connection: Any = self._protocol
        if data and connection.take(data):
            return False
        self.__class__ = StreamReader  # type: ignore[assignment]
        return self.feed_data(data, size)

    def end_http_chunk_receiving(self) -> None:
        """The place of the boundary would be stored, until the piece is read."""


def attach(body: Any, take: Take) -> bool:
    """Let `take` have the pieces that arrive from now on. False: there is something to read, or it cannot be done."""
    if type(body) is not StreamReader or body._buffer or body._eof or body._exception is not None:
        return False
    connection: Any = body._protocol
    if not hasattr(connection, "take"):
        return False
    connection.take = take
    body.__class__ = _RelayedBody
    return True


def detach(body: Any, take: Take) -> None:
    """What arrives from now on is read."""
    if type(body) is _RelayedBody:
        body.__class__ = StreamReader  # type: ignore[assignment]
    if body._protocol.take is take:  # at its end, the connection may already serve another request
        body._protocol.take = None
