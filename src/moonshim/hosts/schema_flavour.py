"""The schema of a tool's parameters, or of the answer -> Moonshot's flavour of JSON Schema, and what was changed."""

from __future__ import annotations

from typing import Any, Final

from moonshim.errors import CannotExpress
from moonshim.hosts.schema_bounds import TooMuch, bounded
from moonshim.hosts.schema_merge import Json
from moonshim.hosts.schema_plain import is_plain
from moonshim.hosts.schema_rewrite import Rewrite

__all__ = ["moonshot_schema", "rewritten"]

_DEEPEST: Final = 200
_MOST: Final = 1_000_000


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
    return (schema, []) if is_plain(schema) else rewritten(schema, tool=tool)


def rewritten(schema: Json, *, tool: str | None) -> tuple[Json, list[str]]:
    """The same, without the glance that most schemas need no more than."""
    whose = "response_format" if tool is None else f"tool {tool!r}"
    size = _measured(schema, whose)
    rewrite = Rewrite(schema, size, whose)
    out = rewrite.whole(schema)
    try:
        out = bounded(out, rewrite.changes)
    except TooMuch as error:
        raise CannotExpress(f"{whose}: {error}", field="parameters") from None
    return (out, rewrite.changes) if rewrite.changes else (schema, [])


def _measured(schema: Any, whose: str) -> int:
    """How many objects and lists there are; raises for what is no JSON, and for what is nested without measure."""
    if not isinstance(schema, dict):
        raise CannotExpress(f"{whose}: At path 'root': schema must be an object", field="parameters")
    count = 0
    level: list[Any] = [schema]
    for _ in range(_DEEPEST):
        count += len(level)
        if count > _MOST:
            raise CannotExpress(f"{whose}: At path 'root': schema has more than {_MOST} parts", field="parameters")
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                if not all(isinstance(key, str) for key in value):
                    raise CannotExpress(f"{whose}: a key in the schema is no text", field="parameters")
                below += (item for item in value.values() if isinstance(item, dict | list))
            else:
                below += (item for item in value if isinstance(item, dict | list))
        if not below:
            return count
        level = below
    raise CannotExpress(f"{whose}: At path 'root': nested deeper than {_DEEPEST} levels", field="parameters")
