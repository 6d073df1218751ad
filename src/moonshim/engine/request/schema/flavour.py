"""The schema of a tool's parameters, or of the answer -> Moonshot's flavour of JSON Schema, and what was changed."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from moonshim.engine.request.schema.bounds import TOO_LARGE, SchemaTooLarge, bounded
from moonshim.engine.request.schema.merge import Json
from moonshim.engine.request.schema.plain import is_plain
from moonshim.engine.request.schema.rewrite import Rewrite
from moonshim.engine.request.schema.weight import LARGEST, MOST_READ
from moonshim.engine.wire.json_fields import shortened
from moonshim.errors import CannotExpress

__all__ = ["moonshot_schema", "rewritten"]

_DEEPEST: Final = 200
_ESCAPED: Final = 6
_LONGEST_NUMBER: Final = 4096


def moonshot_schema(schema: Json, *, tool: str | None) -> tuple[Json, list[str]]:
    """The schema as Moonshot takes it, and each change in words. Without a tool it is the schema of the answer.

    Whatever arguments the given schema allows, the new one allows too. Where Moonshot has no word
    for a constraint the new schema allows more, and the description tells the model of it where that
    is short. A schema that needs nothing is returned as the very same object; the given one is never
    changed. Raises `CannotExpress` where the meaning would be lost: a reference out of the document,
    a schema that nothing fits, one that goes over Moonshot's limits.

    A level without `type` that requires properties, and the root, mean an object.

    >>> moonshot_schema({"type": "object", "properties": {"a": {"const": 1}}}, tool="t")[0]["properties"]
    {'a': {'type': 'integer', 'enum': [1]}}
    """
    return (schema, []) if is_plain(schema) and _is_small(schema) else rewritten(schema, tool=tool)


def _is_small(schema: Json) -> bool:
    """Whether a schema keeps the limit even if Moonshot escapes every character of it."""
    try:
        return len(msgspec.json.encode(schema)) * _ESCAPED <= LARGEST
    except (UnicodeEncodeError, TypeError, RecursionError):
        return False


def rewritten(schema: Json, *, tool: str | None) -> tuple[Json, list[str]]:
    """The same, without the glance that most schemas need no more than."""
    whose = "response_format" if tool is None else f"tool {shortened(tool)}"
    size, heavy = _measured(schema, whose)
    rewrite = Rewrite(schema, size, heavy, whose)
    try:
        out = bounded(rewrite.whole(schema), rewrite.changes)
    except SchemaTooLarge as error:
        raise _cannot(whose, str(error)) from None
    except RecursionError:
        # How deep is too deep depends on the caller's own stack too.
        raise _cannot(whose, "At path 'root': nested too deep to be rewritten") from None
    return (out, rewrite.changes) if rewrite.changes else (schema, [])


def _cannot(whose: str, why: str) -> CannotExpress:
    return CannotExpress(f"{whose}: {why}", field="parameters")


def _measured(schema: Any, whose: str) -> tuple[int, int]:
    """How many objects and lists there are, and what they weigh; raises for what is no JSON or without measure.

    Nothing is copied and no more is read than a schema may say.
    """
    if not isinstance(schema, dict):
        raise _cannot(whose, "At path 'root': schema must be an object")
    count = heavy = 0
    level: list[Any] = [schema]
    for _ in range(_DEEPEST):
        count += len(level)
        below: list[Any] = []
        for value in level:
            heavy += 1 + len(value)
            items = value
            if isinstance(value, dict):
                if not all(isinstance(key, str) for key in value):
                    raise _cannot(whose, "At path 'root': a key below it is no text")
                heavy += sum(len(key) + 3 for key in value)
                items = value.values()
            for item in items:
                if isinstance(item, dict | list):
                    below.append(item)
                elif isinstance(item, str):
                    heavy += len(item) + 2
                elif isinstance(item, int) and item.bit_length() > _LONGEST_NUMBER:
                    raise _cannot(whose, "At path 'root': a number below it is too large")
            if heavy > MOST_READ:
                raise _cannot(whose, f"At path 'root': {TOO_LARGE}")
        if not below:
            return count, heavy
        level = below
    raise _cannot(whose, f"At path 'root': nested deeper than {_DEEPEST} levels")
