"""The schema of tool parameters or of a response -> Moonshot's flavour of JSON Schema, with the changes."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from moonshim.engine.request.schema.bounds import SchemaTooLarge, enforce_limits, too_large
from moonshim.engine.request.schema.merge import Json
from moonshim.engine.request.schema.plain import is_plain
from moonshim.engine.request.schema.rewrite import SchemaRewriter
from moonshim.engine.request.schema.weight import MAX_SCHEMA_BYTES, MAX_SCHEMA_WEIGHT
from moonshim.engine.wire.json_fields import shorten_repr
from moonshim.errors import CannotExpress

__all__ = ["moonshot_schema", "rewrite_schema"]

_MAX_DEPTH: Final = 200
_ESCAPE_LENGTH: Final = 6
_MAX_NUMBER_BITS: Final = 4096


def moonshot_schema(schema: Json, *, tool: str | None, limit: int | None = MAX_SCHEMA_BYTES) -> tuple[Json, list[str]]:
    """Convert a schema to Moonshot's flavour; return it with a description of each change. `tool` None: a response
    schema.

    The new schema accepts every value that the given one accepts. Where Moonshot lacks a constraint, the new schema
    accepts more, and the constraint is added to the description if it is short. A schema that needs no change is
    returned as the same object; the input is never modified. A schema of more than `limit` bytes is shortened: what it
    repeats becomes a definition, then its titles and descriptions are cut. Raises `CannotExpress` where the meaning
    would be lost: a reference outside the document, an unsatisfiable schema, one that still exceeds Moonshot's limits.

    A schema without `type` that requires properties, and the root, are objects.

    >>> moonshot_schema({"type": "object", "properties": {"a": {"const": 1}}}, tool="t")[0]["properties"]
    {'a': {'type': 'integer', 'enum': [1]}}
    """
    limit = MAX_SCHEMA_BYTES if limit is None else limit
    plain = is_plain(schema) and _is_small(schema, limit)
    return (schema, []) if plain else rewrite_schema(schema, tool=tool, limit=limit)


def _is_small(schema: Json, limit: int) -> bool:
    """Whether a schema is within the limit even if Moonshot escapes every character."""
    try:
        return len(msgspec.json.encode(schema)) * _ESCAPE_LENGTH <= limit
    except (UnicodeEncodeError, TypeError, RecursionError):
        return False


def rewrite_schema(schema: Json, *, tool: str | None, limit: int = MAX_SCHEMA_BYTES) -> tuple[Json, list[str]]:
    """Convert a schema without the quick check that is enough for most."""
    whose = "response_format" if tool is None else f"tool {shorten_repr(tool)}"
    size, heavy = _measure(schema, whose, limit)
    rewrite = SchemaRewriter(schema, size, heavy, whose)
    try:
        out = enforce_limits(rewrite.rewrite(schema), rewrite.changes, limit)
    except SchemaTooLarge as error:
        raise _cannot(whose, str(error)) from None
    except RecursionError:
        # The possible depth also depends on the caller's stack.
        raise _cannot(whose, "At path 'root': nested too deeply") from None
    return (out, rewrite.changes) if rewrite.changes else (schema, [])


def _cannot(whose: str, why: str) -> CannotExpress:
    return CannotExpress(f"{whose}: {why}", field="parameters")


def _measure(schema: Any, whose: str, limit: int) -> tuple[int, int]:
    """Number of objects and lists, and their weight. Raises for what is not JSON or exceeds the limits.

    Copies nothing and reads no more than the maximum size of a schema.
    """
    if not isinstance(schema, dict):
        raise _cannot(whose, "At path 'root': schema must be an object")
    count = heavy = 0
    level: list[Any] = [schema]
    for _ in range(_MAX_DEPTH):
        count += len(level)
        below: list[Any] = []
        for value in level:
            heavy += 1 + len(value)
            items = value
            if isinstance(value, dict):
                if not all(isinstance(key, str) for key in value):
                    raise _cannot(whose, "At path 'root': a key in it is not a string")
                heavy += sum(len(key) + 3 for key in value)
                items = value.values()
            for item in items:
                if isinstance(item, dict | list):
                    below.append(item)
                elif isinstance(item, str):
                    heavy += len(item) + 2
                elif isinstance(item, int) and item.bit_length() > _MAX_NUMBER_BITS:
                    raise _cannot(whose, "At path 'root': a number in it is too large")
            if heavy > MAX_SCHEMA_WEIGHT:
                raise _cannot(whose, f"At path 'root': {too_large(limit)}")
        if not below:
            return count, heavy
        level = below
    raise _cannot(whose, f"At path 'root': nested deeper than {_MAX_DEPTH} levels")
