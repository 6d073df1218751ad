"""The size of a schema before and during rewriting: one that can never fit is refused before it is copied."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

__all__ = ["MAX_SCHEMA_BYTES", "MAX_SCHEMA_WEIGHT", "child_path", "own_weight", "size_of", "subschemas", "weight"]

MAX_SCHEMA_BYTES: Final = 120_000
"""Bytes of JSON that Moonshot accepts for one schema."""
MAX_SCHEMA_WEIGHT: Final = 4 * MAX_SCHEMA_BYTES
"""A schema above this size, including annotations and unused definitions, is not examined further."""
_HOLD_SCHEMAS: Final = frozenset(
    {
        "properties", "patternProperties", "items", "prefixItems", "additionalProperties", "additionalItems",
        "anyOf", "allOf", "oneOf", "$defs", "definitions",
    }
)  # fmt: skip
_LONGEST_NAME: Final = 80
_LONGEST_PATH: Final = 400


def weight(value: Any) -> int:
    """Minimum length of a value as compact JSON: no character counts for more than one.

    >>> weight({"type": "string", "enum": ["a", 1]})
    32
    """
    total = 0
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            total += len(part) + 2
        elif isinstance(part, dict):
            total += 1 + sum(len(key) + 4 for key in part)
            waiting += part.values()
        elif isinstance(part, list):
            total += 1 + len(part)
            waiting += part
        else:
            total += 1
    return total


def own_weight(schema: dict[str, Any]) -> int:
    """The same for one level: of its subschemas only the names count."""
    total = 1
    for keyword, value in schema.items():
        total += len(keyword) + 4
        if keyword in _HOLD_SCHEMAS and isinstance(value, dict | list):
            total += sum(len(name) + 4 for name in value) if isinstance(value, dict) else len(value)
        else:
            total += weight(value)
    return total


def size_of(schema: Any) -> int:
    """Bytes of JSON as Moonshot counts them: it escapes `<`, `>` and `&` to six characters each.

    >>> size_of({"a": "<"})
    14
    """
    text = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
    return len(text.encode("utf-8", "surrogatepass")) + 5 * sum(map(text.count, "<>&"))


def subschemas(schema: dict[str, Any]) -> Iterator[tuple[bool, dict[str, Any]]]:
    """Each direct subschema in Moonshot's flavour, and whether it is that of a property."""
    for below in schema.get("properties", {}).values():
        yield True, below
    for keyword in ("items", "additionalProperties"):
        if isinstance(schema.get(keyword), dict):
            yield False, schema[keyword]
    for branch in schema.get("anyOf", ()):
        yield False, branch


def child_path(path: str, keyword: str, name: str | None = None) -> str:
    """The path of a subschema; a very long one is cut at the start.

    >>> child_path("", "items"), child_path("items", "properties", "a")
    ('items', 'items.properties.a')
    """
    if name is not None:
        keyword = f"{keyword}.{name if len(name) <= _LONGEST_NAME else name[:_LONGEST_NAME] + '…'}"
    below = f"{path}.{keyword}" if path else keyword
    return below if len(below) <= _LONGEST_PATH else f"…{below[-_LONGEST_PATH:]}"
