"""A tool's schema -> Moonshot's objection to it, in its own words.

Written from the behaviour of MoonshotAI/walle at its strictest level, and independent of
`moonshim.engine.request.schema.flavour`, which it judges. One rule is simpler than there: JSON that is nested deeper
than `NESTING` is refused as too deep.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final

from moonshim.simulator.rules.schema_endings import References
from moonshim.simulator.rules.schema_words import (
    LIMITS,
    Json,
    Path,
    SchemaLimits,
    SchemaRejected,
    check_known,
    check_words,
)

__all__ = ["LIMITS", "SchemaLimits", "check_schema", "check_schema_value"]

NESTING: Final = 250


def check_schema(schema: Any, *, limits: SchemaLimits = LIMITS) -> str | None:
    """The message with which Moonshot refuses a schema, given as JSON text or as a value; None if it is accepted.

    >>> check_schema({"type": "object", "properties": {"a": {"type": "text"}}})
    "At path 'properties.a': invalid type"
    >>> check_schema('{"type": "object"}') is None
    True
    """
    try:
        value = _parse(schema) if isinstance(schema, str) else schema
    except SchemaRejected as refused:
        return str(refused)
    except ValueError as error:
        return f"JSON schema parsing error: {error}"
    return check_schema_value(value, limits=limits)


def check_schema_value(schema: Any, *, limits: SchemaLimits = LIMITS) -> str | None:
    """The same for a schema in a request, where a string is not a schema.

    >>> check_schema_value("{}")
    'JSON schema parsing error: JSON type error: expected an object but got str'
    """
    try:
        _check(schema, limits)
    except SchemaRejected as refused:
        return str(refused)
    except ValueError as error:
        return f"JSON schema parsing error: {error}"
    except RecursionError:  # a long chain of definitions
        return str(SchemaRejected(f"schema depth exceeds maximum limit of {limits.depth}", ()))
    return None


def _parse(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_number, parse_float=_number)
    except RecursionError:
        raise SchemaRejected(f"schema depth exceeds maximum limit of {LIMITS.depth}", ()) from None


def _number(text: str) -> float:
    value = float(text)
    return value if abs(value) != float("inf") else _no_number(text)


def _no_number(text: str) -> float:
    raise ValueError(f"JSON type error: {text} is not a number")


def _check(schema: Any, limits: SchemaLimits) -> None:
    if schema is None:
        raise SchemaRejected("schema must be a dict", ())
    if not isinstance(schema, dict):
        raise ValueError(f"JSON type error: expected an object but got {type(schema).__name__}")
    if not schema:
        return
    if _too_nested(schema):
        raise SchemaRejected(f"schema depth exceeds maximum limit of {limits.depth}", ())
    if _size(schema) > limits.size:
        raise SchemaRejected("schema exceeds maximum allowed size", ())
    walk = _Walk(schema, limits)
    walk.visit(schema, (), 0)
    if walk.deepest > limits.depth:
        raise SchemaRejected(f"schema depth exceeds maximum limit of {limits.depth}", ())
    walk.references.check()


def _size(schema: Json) -> int:
    """As Go writes it: these three characters are escaped to six each."""
    text = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
    return len(text.encode("utf-8", "surrogatepass")) + 5 * sum(map(text.count, "<>&"))


def _too_nested(schema: Any) -> bool:
    level = [schema]
    for _ in range(NESTING):
        if any(isinstance(value, float) and not math.isfinite(value) for value in level):
            _no_number("Infinity")
        level = [
            item
            for value in level
            if isinstance(value, dict | list)
            for item in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return False
    return True


class _Walk:
    """Visits every level once, in Moonshot's order: the first error found is the one it reports."""

    def __init__(self, root: Json, limits: SchemaLimits) -> None:
        self._root = root
        self._limits = limits
        self._keys = 0
        self.references = References(root)
        self.deepest = 0

    def visit(self, schema: Json, path: Path, depth: int) -> None:
        if depth > self._limits.depth:
            raise SchemaRejected(f"schema depth exceeds maximum limit of {self._limits.depth}", path)
        check_known(schema, path)
        defs = schema["$defs"] if isinstance(schema.get("$defs"), dict) else {}
        for name in sorted(defs):
            if not isinstance(defs[name], dict):
                raise SchemaRejected("$defs schema must be object", (*path, "$defs"))
            self.visit(defs[name], (*path, "$defs", name), depth)
        check_words(schema, self._root, path, self._limits)
        self._note_depth(schema, depth)
        self._descend(schema, path, depth)

    def _note_depth(self, schema: Json, depth: int) -> None:
        reference = schema.get("$ref")
        nested = self.references.depth_of(reference) if isinstance(reference, str) else 0
        self.deepest = max(self.deepest, depth + nested)

    def _descend(self, schema: Json, path: Path, depth: int) -> None:
        properties = schema.get("properties", {})
        self._keys += len(properties)
        if self._keys > self._limits.keys:
            raise SchemaRejected(
                f"total number of properties keys({self._keys}) across all objects "
                f"exceeds maximum limit of {self._limits.keys}",
                path,
            )
        for name, below in properties.items():
            self.visit(below, (*path, "properties", name), depth + 1)
        for word in ("items", "additionalProperties"):
            if isinstance(schema.get(word), dict):
                self.visit(schema[word], (*path, word), depth)
        for branch in schema.get("anyOf", ()):
            self.visit(branch, (*path, "anyOf"), depth)
