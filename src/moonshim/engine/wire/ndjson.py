"""Newline-delimited JSON bytes in any chunking <-> frames."""

from __future__ import annotations

from typing import Final

from moonshim.engine.wire.sse import BoundedFramer, Frame

__all__ = ["NdjsonFramer", "render_ndjson"]

_CR: Final = 13


def render_ndjson(data: bytes, head: bytes = b"") -> bytes:
    """One line. `data` is JSON without line feeds; `head` does not exist in this framing."""
    return data + b"\n"


class NdjsonFramer(BoundedFramer):
    """Splits NDJSON into frames, whatever the chunking.

    Same guarantees as `SseFramer`, with lines instead of events: LF or CRLF ends a line, a lone CR is white space. A
    blank line has no data; an oversized line keeps its CR.
    """

    __slots__ = ()

    def feed(self, chunk: bytes) -> list[Frame]:
        """The frames that end in this chunk."""
        if self.idle and chunk[:1] == b"{" and _CR not in chunk:
            size = len(chunk)
            if chunk.find(b"\n") == size - 1 and size <= self._max:
                return [Frame(chunk, chunk[:-1])]
        return self._feed(chunk)

    def _split(self, chunk: bytes) -> list[Frame]:
        out: list[Frame] = []
        start = 0
        while end := chunk.find(b"\n", start) + 1:
            out.append(self._complete(chunk[start:end]))
            start = end
        if start < len(chunk):
            self._hold(chunk[start:], out)
        self.idle = not (self._held or self._passing)
        return out

    def _missing_end(self) -> bytes:
        return b"\n"

    def _frame(self, event: bytes, cut: bool = False) -> Frame:
        line = event[:-1].rstrip(b"\r")
        data = line if line.strip(b" \t\r") else None
        if len(line) < len(event) - 1:
            return Frame(line + b"\n", data, b"", "line_endings")
        return Frame(event, data, b"", "unterminated" if cut else None)
