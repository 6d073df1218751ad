"""A field of a request body -> its value, with the right type; otherwise `InvalidInput` names the field."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from moonshim.engine.values.type_names import describe_type
from moonshim.errors import InvalidInput

__all__ = [
    "BOOLEAN",
    "INTEGER",
    "LENIENT_ARGUMENTS",
    "LIST",
    "NUMBER",
    "OBJECT",
    "OBJECTS",
    "STRING",
    "STRINGS",
    "STRING_OR_OBJECT",
    "JsonType",
    "check_fields",
    "check_value",
    "object_with",
    "read_cache_ttl",
    "read_field",
    "read_integer",
    "read_not_empty",
    "read_required",
    "shorten_repr",
    "wrong_type",
]

_MAX_LENGTH: Final = 80


class JsonType(Struct, frozen=True):
    """The type that an API documents for a field. Null is always accepted, and so are unknown keys of an object."""

    kinds: tuple[type, ...]
    name: str
    """For messages, with its article."""
    entries: JsonType | None = None
    """The type of every entry of a list; here null is not accepted."""
    fields: Mapping[str, JsonType] = {}
    """The types of the known keys of an object."""
    is_integer: bool = False


STRING: Final = JsonType((str,), "a string")
BOOLEAN: Final = JsonType((bool,), "a boolean")
NUMBER: Final = JsonType((int, float), "a number")
INTEGER: Final = JsonType((int, float), "an integer", is_integer=True)
OBJECT: Final = JsonType((dict,), "an object")
LIST: Final = JsonType((list,), "a list")
STRINGS: Final = JsonType((list,), "a list of strings", STRING)
OBJECTS: Final = JsonType((list,), "a list of objects", OBJECT)
STRING_OR_OBJECT: Final = JsonType((str, dict), "a string or an object")
LENIENT_ARGUMENTS: Final = JsonType((str, dict, list), "a string with a JSON object")
"""Arguments of a call in a history. Some clients send the object itself, and those in PHP an empty list for it."""


def object_with(**fields: JsonType) -> JsonType:
    """An object with these keys."""
    return JsonType((dict,), "an object", fields=fields)


def wrong_type(field: str, expected: str, value: Any) -> InvalidInput:
    """The error for a value of the wrong type.

    >>> str(wrong_type("temperature", "a number", "hot"))
    'temperature: expected a number, got a string'
    """
    return InvalidInput(f"{field}: expected {expected}, got {describe_type(value)}", field=field)


def check_value(value: Any, type: JsonType, field: str) -> None:
    """Raise `InvalidInput` unless the value, or every entry and known key inside it, has its type.

    >>> check_value(["a", 7], STRINGS, "include")
    Traceback (most recent call last):
    moonshim.errors.InvalidInput: include[1]: expected a string, got an integer
    """
    # In Python a bool is an int and a float may be infinite; in JSON neither holds.
    if not isinstance(value, type.kinds) or (isinstance(value, bool) and bool not in type.kinds):
        raise wrong_type(field, type.name, value)
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidInput(f"{field}: expected a finite number", field=field)
    if type.is_integer and isinstance(value, float) and not value.is_integer():
        raise wrong_type(field, type.name, value)
    if type.entries is not None and isinstance(value, list):
        for place, entry in enumerate(value):
            check_value(entry, type.entries, f"{field}[{place}]")
    elif type.fields and isinstance(value, dict):
        check_fields(value, type.fields, f"{field}.")


def check_fields(body: Mapping[str, Any], types: Mapping[str, JsonType], within: str = "") -> None:
    """Check the fields of an object that are set; `within` is the path prefix. Raises `InvalidInput`."""
    for key, type in types.items():
        value = body.get(key)
        if value is not None:
            check_value(value, type, f"{within}{key}")


def read_field(body: Mapping[str, Any], key: str, type: JsonType, within: str = "") -> Any:
    """The value of a field, or None if it is missing or null. `within` is the path prefix.

    >>> read_field({"stream": True}, "stream", BOOLEAN)
    True
    """
    value = body.get(key)
    if value is not None:
        check_value(value, type, f"{within}{key}")
    return value


def read_integer(body: Mapping[str, Any], key: str, within: str = "") -> int | None:
    """An integer; `5.0` is accepted."""
    value = read_field(body, key, INTEGER, within)
    return None if value is None else int(value)


def read_required(body: Mapping[str, Any], key: str, type: JsonType, within: str = "") -> Any:
    """The value of a field that a request must have.

    >>> read_required({}, "model", STRING)
    Traceback (most recent call last):
    moonshim.errors.InvalidInput: model is required
    """
    value = read_field(body, key, type, within)
    if value is None:
        raise InvalidInput(f"{within}{key} is required", field=f"{within}{key}")
    return value


def read_not_empty(body: Mapping[str, Any], key: str, type: JsonType, within: str = "") -> Any:
    """The same for a string or list with at least one character or entry."""
    value = read_required(body, key, type, within)
    if not value:
        raise InvalidInput(f"{within}{key} must not be empty", field=f"{within}{key}")
    return value


def read_cache_ttl(body: Mapping[str, Any]) -> str | None:
    """How long OpenAI's APIs are asked to cache the prompt; `in_memory` leaves it to the host.

    >>> read_cache_ttl({"prompt_cache_options": {"ttl": "30m"}}), read_cache_ttl({"prompt_cache_retention": "24h"})
    ('30m', '24h')
    """
    options = read_field(body, "prompt_cache_options", OBJECT) or {}
    ttl: str | None = read_field(options, "ttl", STRING, "prompt_cache_options.")
    retention: str | None = read_field(body, "prompt_cache_retention", STRING)
    return ttl or (None if retention == "in_memory" else retention)


def shorten_repr(value: Any) -> str:
    """A value for an error message, cut to 80 characters."""
    text = repr(value if not isinstance(value, str) else value[: _MAX_LENGTH + 1])
    return text if len(text) <= _MAX_LENGTH + 2 else f"{text[:_MAX_LENGTH]}…"
