"""Values of any shape -> what the rules check in them, without ever failing on a shape."""

from __future__ import annotations

from typing import Any, Final

from moonshim.simulator.rules.contracts import Json

__all__ = ["describe", "field", "is_number", "objects"]

LONGEST_SHOWN: Final = 200


def describe(value: Any) -> str:
    """A short description of a value, for messages.

    >>> describe("xml"), describe(None), describe([[]])
    ("'xml'", 'null', 'an array')
    """
    match value:
        case str():
            return repr(value[:LONGEST_SHOWN])
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case int() | float():
            return "a number"
        case list():
            return "an array"
        case _:
            return "an object"


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def objects(value: Any) -> list[Json]:
    """The objects in a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def field(body: Json, name: str, below: str) -> Any:
    """
    >>> field({"thinking": {"type": "enabled"}}, "thinking", "type"), field({"thinking": 1}, "thinking", "type")
    ('enabled', None)
    """
    value = body.get(name)
    return value.get(below) if isinstance(value, dict) else None
