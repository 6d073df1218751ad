"""Quick check whether a schema is already in Moonshot's flavour, as most are: those need no rewriting."""

from __future__ import annotations

import re
from typing import Any, Final

from moonshim.engine.request.schema.merge import Json

__all__ = ["RESERVED", "is_plain"]

RESERVED: Final = frozenset({"", "$defs", "$ref", "anyOf", "required", "additionalProperties"})
"""Property names that Moonshot refuses."""

_SCALARS: Final = frozenset({"string", "number", "integer", "boolean"})
_OBJECT: Final = frozenset({"type", "properties", "required", "additionalProperties", "description"})
_ARRAY: Final = frozenset({"type", "items", "description"})
_SCALAR: Final = frozenset({"type", "description", "enum"})
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}", re.ASCII)
_MAX_DEPTH: Final = 6
_MAX_ENTRIES: Final = 200
_MAX_LENGTH: Final = 2_000


def is_plain(schema: Any, depth: int = 0) -> bool:
    """Whether a schema uses only what Moonshot accepts unchanged. False means unknown.

    >>> is_plain({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]})
    True
    """
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return False
    kind, about = schema.get("type"), schema.get("description", "")
    if not isinstance(kind, str) or not isinstance(about, str) or len(about) > _MAX_LENGTH:
        return False
    if kind == "object":
        return _is_plain_object(schema, depth)
    if depth == 0:
        return False
    if kind == "array":
        return schema.keys() <= _ARRAY and "items" in schema and is_plain(schema["items"], depth + 1)
    return kind in _SCALARS and schema.keys() <= _SCALAR and _is_plain_enum(schema, kind)


def _is_plain_object(schema: Json, depth: int) -> bool:
    properties, required = schema.get("properties"), schema.get("required", [])
    if not schema.keys() <= _OBJECT or not isinstance(properties, dict) or len(properties) > _MAX_ENTRIES >> depth:
        return False
    if not isinstance(schema.get("additionalProperties", False), bool) or not isinstance(required, list):
        return False
    names = all(isinstance(name, str) and name in properties for name in required)
    return (
        names
        and len(set(required)) == len(required)
        and all(_is_plain_name(name) and is_plain(inner, depth + 1) for name, inner in properties.items())
    )


def _is_plain_name(name: Any) -> bool:
    return isinstance(name, str) and _NAME.fullmatch(name) is not None and name not in RESERVED


def _is_plain_enum(schema: Json, kind: str) -> bool:
    if "enum" not in schema:
        return True
    values = schema["enum"]
    if kind != "string" or not isinstance(values, list) or not 0 < len(values) <= _MAX_ENTRIES:
        return False
    texts = all(isinstance(value, str) and len(value) <= _MAX_LENGTH for value in values)
    return texts and len(set(values)) == len(values)
