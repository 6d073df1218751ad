"""Declared tools -> the JSON types that each argument may have.

Schemas are external input: anything that is not understood allows everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from moonshim.engine.values.conversation import Tool

__all__ = ["ANYTHING", "JSON_ONLY", "STRING_ONLY", "DeclaredKinds"]

ANYTHING: Final = frozenset({"string", "number", "boolean", "null", "object", "array"})
STRING_ONLY: Final = frozenset({"string"})
JSON_ONLY: Final = ANYTHING - STRING_ONLY

_VISITS: Final = 256
"""Maximum number of schemas visited per argument: beyond that everything is allowed."""
_KIND_NAMED: Final = {kind: frozenset({kind}) for kind in ANYTHING} | {"integer": frozenset({"number"})}
_KIND_OF: Final[dict[type, str]] = {
    str: "string",
    int: "number",
    float: "number",
    bool: "boolean",
    type(None): "null",
    dict: "object",
    list: "array",
}


class DeclaredKinds:
    """Knows the types of every argument of every declared tool. Always terminates and never raises, whatever the
    schema.

    >>> tool = Tool("add", parameters={"properties": {"n": {"type": ["integer", "null"]}}})
    >>> sorted(DeclaredKinds([tool]).kinds_of("add", "n")), DeclaredKinds([tool]).kinds_of("add", "m") == ANYTHING
    (['null', 'number'], True)
    """

    __slots__ = ("_schemas",)

    def __init__(self, tools: Sequence[Tool] | None) -> None:
        self._schemas = {tool.name: tool.parameters for tool in tools or ()}

    def kinds_of(self, tool: str, key: str) -> frozenset[str]:
        schema = self._schemas.get(tool)
        if not isinstance(schema, dict):
            return ANYTHING
        reader = _Reader(schema)
        top = reader.resolve(schema)
        properties = top.get("properties") if isinstance(top, dict) else None
        if not isinstance(properties, dict) or key not in properties:
            return ANYTHING
        return reader.kinds(properties[key]) or ANYTHING


class _Reader:
    """Reads one schema for one argument."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._left = _VISITS

    def kinds(self, schema: Any) -> frozenset[str]:
        self._left -= 1
        if self._left < 0 or not isinstance(schema, dict):
            return ANYTHING
        found = _own_kinds(schema)
        if "$ref" in schema:
            found &= self.kinds(self.resolve(schema))
        for part in _list(schema.get("allOf")):
            found &= self.kinds(part)
        for choice in ("anyOf", "oneOf"):
            if branches := _list(schema.get(choice)):
                found &= frozenset().union(*map(self.kinds, branches))
        return found

    def resolve(self, schema: Any) -> Any:
        """The target of a local reference; the schema itself if it has none."""
        for _ in range(8):
            ref = schema.get("$ref") if isinstance(schema, dict) else None
            if not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")):
                break
            place: Any = self._root
            for step in ref.split("/")[1:]:
                place = place.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(place, dict) else None
            schema = place
        return schema


def _own_kinds(schema: dict[Any, Any]) -> frozenset[str]:
    """The types of a schema by itself, without those it refers to."""
    declared = schema.get("type")
    names = declared if isinstance(declared, list) else [declared]
    found: frozenset[str] = frozenset()
    for name in names:
        found |= _KIND_NAMED.get(name, ANYTHING) if isinstance(name, str) else ANYTHING
    for choices in (_list(schema.get("enum")), [schema["const"]] if "const" in schema else []):
        if choices:
            found &= {_KIND_OF.get(type(choice), "string") for choice in choices}
    return found | {"null"} if schema.get("nullable") is True else found


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
