"""Names of JSON types for error messages: string, number, integer, boolean, list, object, null."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["describe_type", "name_types"]

_DESCRIPTIONS: Final[dict[type, str]] = {
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    list: "a list",
    dict: "an object",
    type(None): "null",
}
_MSGSPEC_NAMES: Final = {
    "str": "a string",
    "bool": "a boolean",
    "int": "an integer",
    "float": "a number",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
_TYPES: Final = re.compile(r"`([a-z]+(?: \| [a-z]+)*)`")
_PLACE: Final = re.compile(r" - at `(?:\$\.?)?([^`]*)`$")


def describe_type(value: Any) -> str:
    """The JSON type of a value, with its article; the Python type if JSON has none for it.

    >>> describe_type([1]), describe_type(None), describe_type(b"")
    ('a list', 'null', 'a bytes value')
    """
    if isinstance(value, Mapping):
        return "an object"
    return _DESCRIPTIONS.get(type(value), f"a {type(value).__name__} value")


def name_types(error: Exception) -> str:
    """The message of a msgspec error, after the place of the value and with JSON names for the types in it.

    >>> name_types(TypeError("Expected `int | null`, got `str` - at `$.limit`"))
    'limit: expected an integer or null, got a string'
    >>> name_types(TypeError("Object contains unknown field `a`"))
    'unknown field `a`'
    """
    text = str(error)
    place = _PLACE.search(text)
    message = _PLACE.sub("", text).removeprefix("Object contains ")
    message = message.replace(" of length >= 1", " that is not empty").replace(" >= ", " of at least ")
    if message.startswith(("Expected", "Invalid")):
        message = _TYPES.sub(_named, message[0].lower() + message[1:])
    return f"{place[1]}: {message}" if place and place[1] else message


def _named(types: re.Match[str]) -> str:
    return " or ".join(_MSGSPEC_NAMES.get(name, name) for name in types[1].split(" | "))
