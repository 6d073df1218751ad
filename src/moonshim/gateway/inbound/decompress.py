"""A compressed body, piece by piece -> its content, and never more of that than there is room for.

A kilobyte can expand to a gigabyte, so the limit applies to the output, and no more than that is ever produced. gzip
and deflate are always supported; zstd with Python 3.14 or the package `zstandard`; br with the package `brotli`, from
the version that can stop in the middle.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias

__all__ = ["DecompressError", "Decompressor", "LimitExceeded", "decompressor_for", "readable_codings"]

_WINDOW_LOG: Final = 23
"""zstd: 8 MiB, which is what RFC 9659 allows on the web; a frame may request more memory than it fills."""
_ZSTD_SLICE: Final = 64
"""`zstandard` cannot stop in the middle. This few bytes expand to 2 MiB at most: four of them are 128 KiB at best."""


class DecompressError(Exception):
    """The data cannot be decompressed; the message says why."""


class LimitExceeded(Exception):
    """The output is larger than the room there was for it."""


class Decompressor(Protocol):
    """Decompresses one body. `LimitExceeded`: a piece expands to more than `room` bytes; `DecompressError`: it is
    damaged."""

    def feed(self, data: bytes, room: int) -> bytes: ...

    def flush(self) -> None: ...


class _Zlib:
    """gzip, and deflate with or without the header that it should have."""

    def __init__(self, window_bits: int | None) -> None:
        self._reader = None if window_bits is None else zlib.decompressobj(window_bits)

    def feed(self, data: bytes, room: int) -> bytes:
        if self._reader is None:
            # Every zlib stream starts with a byte whose low half is 8, and no encoder starts bare deflate with one.
            self._reader = zlib.decompressobj(zlib.MAX_WBITS if data[:1] and data[0] & 15 == 8 else -zlib.MAX_WBITS)
        try:
            out = self._reader.decompress(data, room + 1)
        except zlib.error as error:
            raise DecompressError(str(error)) from None
        if len(out) > room:
            raise LimitExceeded
        if self._reader.unused_data:
            raise DecompressError("trailing data after the compressed body")
        return out

    def flush(self) -> None:
        if self._reader is None or not self._reader.eof:
            raise DecompressError("unexpected end of data")


class _Zstd:
    """zstd as Python 3.14 reads it."""

    def __init__(self, module: Any) -> None:
        limit = {module.DecompressionParameter.window_log_max: _WINDOW_LOG}
        self._reader, self._error = module.ZstdDecompressor(options=limit), module.ZstdError

    def feed(self, data: bytes, room: int) -> bytes:
        try:
            out: bytes = self._reader.decompress(data, room + 1)
        except (self._error, EOFError) as error:
            raise DecompressError(str(error)) from None
        if len(out) > room:
            raise LimitExceeded
        if self._reader.unused_data:
            raise DecompressError("trailing data after the compressed body")
        return out

    def flush(self) -> None:
        if not self._reader.eof:
            raise DecompressError("unexpected end of data")


class _Zstandard:
    """zstd as the package `zstandard` reads it."""

    def __init__(self, module: Any) -> None:
        self._reader = module.ZstdDecompressor(max_window_size=1 << _WINDOW_LOG).decompressobj()
        self._error = module.ZstdError

    def feed(self, data: bytes, room: int) -> bytes:
        out = bytearray()
        for start in range(0, len(data), _ZSTD_SLICE):
            if self._reader.eof:
                raise DecompressError("trailing data after the compressed body")
            try:
                piece = self._reader.decompress(data[start : start + _ZSTD_SLICE])
            except self._error as error:
                raise DecompressError(str(error)) from None
            if len(out) + len(piece) > room:
                raise LimitExceeded
            out += piece
        if self._reader.unused_data:
            raise DecompressError("trailing data after the compressed body")
        return bytes(out)

    def flush(self) -> None:
        if not self._reader.eof:
            raise DecompressError("unexpected end of data")


class _Brotli:
    """br as the package `brotli` reads it."""

    def __init__(self, module: Any) -> None:
        self._reader, self._error = module.Decompressor(), module.error

    def feed(self, data: bytes, room: int) -> bytes:
        try:
            out: bytes = self._reader.process(data, output_buffer_limit=room + 1)
        except self._error as error:
            raise DecompressError(str(error)) from None
        if len(out) > room:
            raise LimitExceeded
        return out

    def flush(self) -> None:
        if not self._reader.is_finished():
            raise DecompressError("unexpected end of data")


def _zstd() -> Decompressor | None:
    try:
        from compression import zstd  # type: ignore[import-not-found, unused-ignore]  # Python 3.14
    except ImportError:
        pass
    else:
        return _Zstd(zstd)
    try:
        import zstandard  # type: ignore[import-not-found, unused-ignore]  # not a dependency: used when it is there
    except ImportError:
        return None
    return _Zstandard(zstandard)


def _br() -> Decompressor | None:
    try:
        import brotli  # type: ignore[import-not-found, import-untyped, unused-ignore]  # not a dependency: used when there
    except ImportError:
        return None
    return _Brotli(brotli) if hasattr(brotli.Decompressor, "can_accept_more_data") else None


_Make: TypeAlias = Callable[[], Decompressor | None]

_UNPACKERS: Final[dict[str, _Make]] = {
    "gzip": lambda: _Zlib(16 + zlib.MAX_WBITS),
    "x-gzip": lambda: _Zlib(16 + zlib.MAX_WBITS),
    "deflate": lambda: _Zlib(None),
    "zstd": _zstd,
    "br": _br,
}


def decompressor_for(coding: str) -> Decompressor | None:
    """A decompressor for a `Content-Encoding`; None if it is not supported."""
    make = _UNPACKERS.get(coding)
    return None if make is None else make()


def readable_codings() -> list[str]:
    """The content codings that this process supports, for error messages."""
    return [coding for coding, make in _UNPACKERS.items() if not coding.startswith("x-") and make() is not None]
