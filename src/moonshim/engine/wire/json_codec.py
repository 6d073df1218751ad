"""JSON text <-> values, also where a host cut a character in half and strict readers refuse."""

from __future__ import annotations

from typing import Any, Final

import msgspec

__all__ = ["decode_object", "encode"]

_DECODER: Final = msgspec.json.Decoder()
_ENCODER: Final = msgspec.json.Encoder()


def decode_object(data: bytes) -> dict[str, Any] | None:
    """The object that this text is; None when it is none, or no JSON at all."""
    try:
        value = _DECODER.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        value = _decode_halves(data)
    return value if isinstance(value, dict) else None


def _decode_halves(data: bytes) -> Any:
    """`"\\ud83d"` alone is half a character: msgspec refuses it, the standard library hands it over."""
    if b"\\ud" not in data and b"\\uD" not in data:
        return None
    import json

    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def encode(value: Any) -> bytes:
    """Compact JSON. Half a character, which has no bytes of its own, stays an escape."""
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError:
        import json

        return json.dumps(value, separators=(",", ":")).encode()
