"""A request body -> decompressed and decoded JSON; bounded in bytes and in time before anything is stored."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from typing import Any, Final, TypeAlias

import msgspec

from moonshim.config.model import Limits
from moonshim.engine.values.type_names import describe_type
from moonshim.engine.wire.sse import BYTE_ORDER_MARK
from moonshim.errors import InvalidInput, Problem, ProblemKind, Refused
from moonshim.gateway.inbound.admission import Reservation
from moonshim.gateway.inbound.call import LARGE_BYTES, ClientCall
from moonshim.gateway.inbound.decompress import (
    DecompressError,
    Decompressor,
    LimitExceeded,
    decompressor_for,
    readable_codings,
)
from moonshim.gateway.inbound.large_json import TooManyValues, parse_large_json

__all__ = ["BodyGone", "decode_object_or_refuse", "read_body", "read_json"]

Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]

_PACKING: Final = 64 * 1024
"""Factor by which compression can enlarge incompressible data."""
_PIECE: Final = 64 * 1024
"""Minimum size in bytes of the strings that a body is held in."""
_DECODER: Final = msgspec.json.Decoder()
_POSITION: Final = re.compile(r" \(byte (\d+)\)$")


class BodyGone(Exception):
    """The client disconnected before its body was complete: there is no one to answer."""


async def read_json(receive: Receive, call: ClientCall) -> dict[str, Any]:
    """The object in a request's body. Raises `Refused` (400, 408, 413, 415, 503) or `BodyGone`."""
    pieces = await read_body(receive, call)
    if call.trace is not None:
        call.trace.request(pieces)
    if sum(map(len, pieces)) <= LARGE_BYTES:
        return decode_object_or_refuse(b"".join(pieces))
    return await call.in_thread(_decode_large, pieces, call.held.limits.body_values)


async def read_body(receive: Receive, call: ClientCall) -> list[bytes]:
    """A request's body, decompressed, in pieces.

    However it is compressed, at most `limits.body_bytes` plus one piece from the network are held. Every byte is
    reserved before it is stored.
    """
    limits, headers = call.held.limits, call.headers
    decompressor = _decompressor_for(headers)
    length = _length(headers)
    if length > limits.body_bytes:
        raise _too_large(limits)  # before reading any of it
    await call.held.announce(length)
    try:
        async with asyncio.timeout(limits.body_seconds):
            pieces = await _read_pieces(
                receive, call.held, limits.body_bytes + (0 if decompressor is None else _PACKING)
            )
        if decompressor is not None:
            packed = call.held.size
            pieces = await call.in_thread(_decompress, decompressor, pieces, limits.body_bytes)
            await call.grow(max(0, sum(map(len, pieces)) - packed))
        return pieces
    except TimeoutError:
        message = f"The request body did not arrive within {limits.body_seconds:g} seconds."
        raise _refusal(408, message, "timeout") from None
    except LimitExceeded:
        raise _too_large(limits) from None
    except DecompressError as error:
        coding = headers.get("content-encoding", "")[:40]
        raise _refusal(400, f"Cannot decompress the request body ({coding}): {error}.") from None


async def _read_pieces(receive: Receive, held: Reservation, most: int) -> list[bytes]:
    """Many pieces rather than one string: growing, scanning or freeing one string would block all other requests."""
    pieces: list[bytes] = []
    last = bytearray()
    """Small pieces, which would take more memory than they have bytes."""
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise BodyGone
        piece = message.get("body", b"")
        size += len(piece)
        if size > most:
            raise LimitExceeded
        await held.grow(len(piece))
        more = message.get("more_body", False)
        if last or len(piece) < _PIECE:
            last += piece
            piece = bytes(last) if len(last) >= _PIECE or not more else b""
        if piece:
            pieces.append(piece)
            last.clear()
        if not more:
            return pieces
        if size > LARGE_BYTES:
            await held.rest(len(piece))


def _decompress(decompressor: Decompressor, pieces: list[bytes], room: int) -> list[bytes]:
    unpacked: list[bytes] = []
    pieces.reverse()
    while pieces:
        if piece := pieces.pop():
            unpacked.append(decompressor.feed(piece, room))
            room -= len(unpacked[-1])
    decompressor.flush()
    return unpacked


def _decompressor_for(headers: Mapping[str, str]) -> Decompressor | None:
    if headers.get("transfer-encoding", "chunked").strip().lower() != "chunked":
        # The server undoes `chunked`; any other transfer coding would be read as if it were the body.
        raise _refusal(400, "Unsupported Transfer-Encoding. Use chunked, or none.")
    coding = headers.get("content-encoding", "identity").strip().lower()
    if coding in ("", "identity"):
        return None
    decompressor = decompressor_for(coding)
    if decompressor is None:
        known = ", ".join(readable_codings())
        raise _refusal(415, f"Unsupported Content-Encoding {coding[:40]!r}. Use one of {known}, or none.")
    return decompressor


def _length(headers: Mapping[str, str]) -> int:
    text = headers.get("content-length", "0").strip()
    if not (text.isascii() and text.isdecimal()):
        raise _refusal(400, "Content-Length is not a number.")
    return int(text) if len(text) < 20 else 1 << 64


def decode_object_or_refuse(data: bytes) -> dict[str, Any]:
    """Decode a JSON object; `Refused` (400) says where the error is.

    >>> decode_object_or_refuse(b'{"model": "kimi-k2.5"}')
    {'model': 'kimi-k2.5'}
    """
    data = data.removeprefix(BYTE_ORDER_MARK)
    if not data or data.isspace():
        raise _refusal(400, "The request body is empty. Send a JSON object.")
    try:
        value = _DECODER.decode(data)
    except RecursionError:
        raise _refusal(400, "The request body is nested too deeply.") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        value = _decode_leniently(data, error)
    return _object_or_refuse(value)


def _object_or_refuse(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _refusal(400, f"The request body must be a JSON object, got {describe_type(value)}.")
    return value


def _decode_large(pieces: list[bytes], max_values: int) -> dict[str, Any]:
    """The same for a large body, without blocking the other threads. Takes the pieces out of the list."""
    pieces[0] = pieces[0].removeprefix(BYTE_ORDER_MARK)
    try:
        value = parse_large_json(pieces, max_values)
    except TooManyValues:
        raise _refusal(
            413, f"The request body has more than {max_values:,} JSON values (limits.body_values).", "too_large"
        ) from None
    except RecursionError:
        raise _refusal(400, "The request body is nested too deeply.") from None
    except ValueError as error:
        raise _refusal(400, f"The request body is not valid JSON: {error}.") from None
    finally:
        pieces.clear()
    return _object_or_refuse(value)


def _decode_leniently(data: bytes, error: Exception) -> Any:
    """Accept lone surrogates (`"\\ud83d"`), which clients produce when they cut text: the engine repairs them.

    A number that JSON does not have, or that does not fit, is refused with its field.
    """
    try:
        value = json.loads(data.decode(), parse_constant=_BadNumber, parse_float=_parse_number, parse_int=_parse_number)
        bad = next(_bad_numbers(value, ""), None)
    except RecursionError:
        raise _refusal(400, "The request body is nested too deeply.") from None
    except ValueError:
        raise _refusal(400, f"The request body is not valid JSON: {_reason(data, error)}.") from None
    if bad is None:
        return value
    field, number = bad
    raise Refused(
        Problem(
            status=400, kind="invalid_request", message=f"{field}: {number.reason}", code=InvalidInput.code, param=field
        )
    )


class _BadNumber:
    """A number of a body that JSON does not have (NaN, Infinity), or that is out of range."""

    def __init__(self, constant: str = "") -> None:
        self.reason = f"{constant} is not a JSON number" if constant else "the number is too large"


def _parse_number(text: str) -> int | float | _BadNumber:
    try:
        value = int(text) if text.lstrip("-").isdecimal() else float(text)
    except ValueError:  # more digits than Python converts
        return _BadNumber()
    return value if math.isfinite(value) else _BadNumber()


def _bad_numbers(value: Any, field: str) -> Iterator[tuple[str, _BadNumber]]:
    if isinstance(value, _BadNumber):
        yield field, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _bad_numbers(inner, f"{field}.{key}" if field else key)
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _bad_numbers(inner, f"{field}[{place}]")


def _reason(data: bytes, error: Exception) -> str:
    reason = str(error).removeprefix("JSON is malformed: ")
    if isinstance(error, UnicodeDecodeError):
        try:
            data.decode()
        except UnicodeDecodeError as wrong:  # the first one counts from the start of its string
            return f"invalid UTF-8 at byte {wrong.start}"
    if "truncated" in reason:
        return f"unexpected end of data at byte {len(data)}"
    return _POSITION.sub(r" at byte \1", reason)


def _too_large(limits: Limits) -> Refused:
    size = limits.body_bytes
    amount = f"{size / (1 << 20):g} MiB" if size >= 1 << 20 else f"{size:,} bytes"
    return _refusal(413, f"The request body is larger than {amount} (limits.body_bytes).", "too_large")


def _refusal(status: int, message: str, kind: ProblemKind = "invalid_request") -> Refused:
    return Refused(Problem(status=status, kind=kind, message=message))
