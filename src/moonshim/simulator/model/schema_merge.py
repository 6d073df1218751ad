"""A schema with references and `allOf` -> an equivalent flat schema, as far as that can be expressed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from moonshim.simulator.model.schema_check import TYPES, is_number, is_same, resolve, types_of
from moonshim.simulator.request import Json

__all__ = ["merge_schema"]

MOST_PARTS: Final = 60
_TIGHTER: Final[dict[str, Callable[..., Any]]] = {
    **dict.fromkeys(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"), max),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"), min),
}
_KEPT_APART: Final = ("anyOf", "oneOf", "items", "additionalProperties", "pattern", "const", "not", "multipleOf")


def merge_schema(schema: Json, root: Any) -> Json:
    """Merge a schema; what cannot be merged stays under `allOf`, for the validator.

    >>> merge_schema({"minimum": 1, "allOf": [{"minimum": 3}, {"type": "integer"}]}, {})
    {'type': 'integer', 'minimum': 3}
    """
    made: Json = {}
    waiting, taken = [schema], 0
    while waiting and taken < MOST_PARTS:  # a schema may contain itself
        part = resolve(waiting.pop(0), root)
        parts = part.get("allOf")
        if isinstance(parts, list):
            waiting = [one for one in parts if isinstance(one, dict)] + waiting
        made = _both(made, {key: value for key, value in part.items() if key != "allOf"})
        taken += 1
    return made


def _both(one: Json, other: Json) -> Json:
    """What two schemas require together."""
    both = other | one
    for key, tighter in _TIGHTER.items():
        if is_number(one.get(key)) and is_number(other.get(key)):
            both[key] = tighter(one[key], other[key])
    mine, others = one.get("properties"), other.get("properties")
    if isinstance(mine, dict) and isinstance(others, dict):
        shared = {name: {"allOf": [mine[name], others[name]]} for name in mine.keys() & others.keys()}
        both["properties"] = mine | others | shared
    if isinstance(one.get("required"), list) and isinstance(other.get("required"), list):
        both["required"] = [*one["required"], *other["required"]]
    if types_of(one) and types_of(other):
        both["type"] = [kind for kind in TYPES if _is_kind(kind, one) and _is_kind(kind, other)]
    if isinstance(one.get("enum"), list) and isinstance(other.get("enum"), list):
        both["enum"] = [value for value in one["enum"] if any(is_same(value, same) for same in other["enum"])]
    for key in _KEPT_APART:
        if key in one and key in other and not is_same(one[key], other[key]):
            both["allOf"] = [*both.get("allOf", ()), {key: other[key]}]
    return both


def _is_kind(kind: str, schema: Json) -> bool:
    types = types_of(schema)
    return kind in types or (kind == "integer" and "number" in types)
