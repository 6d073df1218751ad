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
_MSGSPEC_NAMES: Final = {"str": "string", "bool": "boolean", "int": "integer", "float": "number", "array": "list"}
_QUOTED: Final = re.compile(r"`[^`$]*`")
_WORD: Final = re.compile(r"\w+")


def describe_type(value: Any) -> str:
    """The JSON type of a value, with its article; the Python type if JSON has none for it.

    >>> describe_type([1]), describe_type(None), describe_type(b"")
    ('a list', 'null', 'a bytes value')
    """
    if isinstance(value, Mapping):
        return "an object"
    return _DESCRIPTIONS.get(type(value), f"a {type(value).__name__} value")


def name_types(error: Exception) -> str:
    """The message of a msgspec error, with JSON names for the types in it.

    >>> name_types(TypeError("Expected `int | null`, got `str` - at `$.int`"))
    'Expected `integer | null`, got `string` - at `$.int`'
    """
    return _QUOTED.sub(lambda quoted: _WORD.sub(_named, quoted[0]), str(error))


def _named(word: re.Match[str]) -> str:
    return _MSGSPEC_NAMES.get(word[0], word[0])
