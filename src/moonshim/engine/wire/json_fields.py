"""A field of a request's body -> its value, of the right type; `InvalidInput` names the field otherwise."""

from __future__ import annotations

import math
from typing import Any, Final

from moonshim.errors import InvalidInput

__all__ = ["shortened", "typed", "whole"]

_LONGEST_SHOWN: Final = 80


def typed(body: dict[str, Any], key: str, kinds: tuple[type, ...], what: str, within: str = "") -> Any:
    """The value, or None where the body says nothing. `what` is its type in words, `within` what stands around it.

    >>> typed({"stream": True}, "stream", (bool,), "true or false")
    True
    """
    value = body.get(key)
    if value is None:
        return None
    field = f"{within}{key}"
    # To Python a switch is a number, and to a number there is no end; to JSON neither is true.
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise InvalidInput(f"{key} must be {what}, not {type(value).__name__}", field=field)
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidInput(f"{key} must be a number that JSON can hold", field=field)
    return value


def whole(body: dict[str, Any], key: str) -> int | None:
    """A whole number, also one that was written as `5.0`."""
    value = typed(body, key, (int, float), "a whole number")
    if isinstance(value, float) and not value.is_integer():
        raise InvalidInput(f"{key} must be a whole number", field=key)
    return None if value is None else int(value)


def shortened(value: Any) -> str:
    """A value as a message shows it: at most 80 characters of it."""
    text = repr(value if not isinstance(value, str) else value[: _LONGEST_SHOWN + 1])
    return text if len(text) <= _LONGEST_SHOWN + 2 else f"{text[:_LONGEST_SHOWN]}…"
