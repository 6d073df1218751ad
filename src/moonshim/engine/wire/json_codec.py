"""JSON text <-> values, including lone surrogates, which strict parsers refuse."""

from __future__ import annotations

from typing import Any, Final

import msgspec

__all__ = ["decode_object", "encode"]

_DECODER: Final = msgspec.json.Decoder()
_ENCODER: Final = msgspec.json.Encoder()


def decode_object(data: bytes) -> dict[str, Any] | None:
    """The JSON object in `data`; None if it is not valid JSON or not an object."""
    try:
        value = _DECODER.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        value = _decode_surrogates(data)
    return value if isinstance(value, dict) else None


def _decode_surrogates(data: bytes) -> Any:
    """Parse a lone surrogate (`"\\ud83d"`): msgspec refuses it, the standard library accepts it."""
    if b"\\ud" not in data and b"\\uD" not in data:
        return None
    import json

    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def encode(value: Any) -> bytes:
    """Compact JSON. A lone surrogate, which has no UTF-8 form, stays an escape."""
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError:
        import json

        return json.dumps(value, separators=(",", ":")).encode()
