"""A field of a request body -> its value, with the right type; otherwise `InvalidInput` names the field."""

from __future__ import annotations

import math
from typing import Any, Final

from moonshim.errors import InvalidInput

__all__ = ["read_field", "read_integer", "shorten_repr"]

_MAX_LENGTH: Final = 80


def read_field(body: dict[str, Any], key: str, kinds: tuple[type, ...], what: str, within: str = "") -> Any:
    """The value of a field, or None if it is missing or null. `what` describes the type, `within` is the path prefix.

    >>> read_field({"stream": True}, "stream", (bool,), "true or false")
    True
    """
    value = body.get(key)
    if value is None:
        return None
    field = f"{within}{key}"
    # In Python a bool is an int and a float may be infinite; in JSON neither holds.
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise InvalidInput(f"{key} must be {what}, not {type(value).__name__}", field=field)
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidInput(f"{key} must be a number that JSON can hold", field=field)
    return value


def read_integer(body: dict[str, Any], key: str) -> int | None:
    """An integer; `5.0` is accepted."""
    value = read_field(body, key, (int, float), "a whole number")
    if isinstance(value, float) and not value.is_integer():
        raise InvalidInput(f"{key} must be a whole number", field=key)
    return None if value is None else int(value)


def shorten_repr(value: Any) -> str:
    """A value for an error message, cut to 80 characters."""
    text = repr(value if not isinstance(value, str) else value[: _MAX_LENGTH + 1])
    return text if len(text) <= _MAX_LENGTH + 2 else f"{text[:_MAX_LENGTH]}…"
