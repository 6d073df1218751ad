"""A compressed body -> its content, a bounded amount at a time.

Hosts are asked not to compress; some do all the same.
"""

from __future__ import annotations

import zlib
from typing import Final

__all__ = ["BadContent", "ContentDecoder", "decoder_for"]

_GZIP: Final = 16 + zlib.MAX_WBITS
_GZIP_MAGIC: Final = b"\x1f\x8b"
_DEFLATE_METHOD: Final = 8


class BadContent(Exception):
    """A body is not compressed in the way that its headers say, or ends too early."""


class ContentDecoder:
    """Holds the pieces that are still compressed, so that a small body cannot become a large one in memory."""

    def __init__(self, *, gzip: bool) -> None:
        self._gzip = gzip
        self._inflate = zlib.decompressobj(_GZIP) if gzip else None
        """None: `deflate`, which is sent in two forms; the first byte shows which one it is."""
        self._rest = b""
        self._may_have_more = False

    @property
    def is_waiting(self) -> bool:
        """Whether `decode` needs another piece."""
        return not (self._rest or self._may_have_more)

    def decode(self, piece: bytes, limit: int) -> bytes:
        """At most `limit` bytes of content; while the decoder is not waiting, `piece` must be empty.

        Raises `BadContent`.
        """
        data = self._rest or piece
        if self._inflate is None:
            if not data:
                return b""
            self._inflate = zlib.decompressobj(zlib.MAX_WBITS if data[0] & 0xF == _DEFLATE_METHOD else -zlib.MAX_WBITS)
        try:
            out = self._inflate.decompress(data, limit)
        except zlib.error as error:
            raise BadContent(str(error)) from None
        self._rest, self._may_have_more = self._inflate.unconsumed_tail, len(out) == limit
        if self._inflate.eof:
            self._rest, self._may_have_more = self._inflate.unused_data, False
            if self._rest and self._gzip and _GZIP_MAGIC.startswith(self._rest[:2]):
                self._inflate = zlib.decompressobj(_GZIP)  # a body may consist of several gzip members
            else:
                self._rest = b""
        return out

    def end(self) -> None:
        """Everything was decoded. Raises `BadContent` if the compressed data has no end."""
        if self._inflate is not None and not self._inflate.eof:
            raise BadContent("the compressed data is incomplete")


def decoder_for(encoding: str) -> ContentDecoder | None:
    """For the header Content-Encoding; None: the body is not compressed. Raises `BadContent` if it is not known.

    >>> decoder_for("identity"), decoder_for("")
    (None, None)
    """
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return None
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise BadContent(encoding)
    return ContentDecoder(gzip=encoding != "deflate")
