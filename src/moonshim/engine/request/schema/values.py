"""Types, enums and ranges -> the forms that Moonshot accepts."""

from __future__ import annotations

import math
from typing import Any, Final

from moonshim.engine.request.schema.merge import Json, Unsatisfiable, is_number

__all__ = ["KEYWORDS_OF", "MAX_ENUM_VALUES", "can_keep_enum", "kind_of", "mend_ranges", "split_enum"]

KEYWORDS_OF: Final[dict[str, frozenset[str]]] = {
    "object": frozenset({"properties", "required", "additionalProperties"}),
    "array": frozenset({"items", "minItems", "maxItems"}),
    "string": frozenset({"minLength", "maxLength", "pattern", "enum"}),
    "number": frozenset({"minimum", "maximum", "enum"}),
    "integer": frozenset({"minimum", "maximum", "enum"}),
    "boolean": frozenset({"enum"}),
    "null": frozenset({"enum"}),
}
MAX_ENUM_VALUES: Final = 1000
_RANGES: Final = (("minimum", "maximum"), ("minLength", "maxLength"), ("minItems", "maxItems"))
_LISTED: Final = frozenset({"string", "number", "integer", "boolean", "null"})
"""Types whose values are allowed in an enum."""


def kind_of(value: Any) -> str:
    """The narrowest type of a value."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "integer" if value.is_integer() else "number"
        case str():
            return "string"
        case dict():
            return "object"
        case _:
            return "array"


def _fits(value: Any, types: list[str]) -> bool:
    kind = kind_of(value)
    return kind in types or (kind == "integer" and "number" in types)


def can_keep_enum(keywords: Json, types: list[str] | None) -> bool:
    """Whether an enum can stay unchanged next to its types."""
    values = keywords["enum"]
    if types is None or len(values) > MAX_ENUM_VALUES or not all(_fits(value, types) for value in values):
        return False
    if len(types) == 1:
        return types[0] in _LISTED
    # If a numeric type comes before null, Moonshot refuses the null.
    pair = len(types) == 2 and "null" in types and {*types} <= _LISTED and types[-1] in ("number", "integer")
    return (pair or {*types} in ({"string", "null"}, {"boolean", "null"})) and not keywords.keys() & _OTHER_KEYWORDS


_OTHER_KEYWORDS: Final = frozenset().union(*KEYWORDS_OF.values()) - {"enum"}


def split_enum(values: list[Any], types: list[str] | None) -> list[Json]:
    """One schema per kind of value; values that no declared type accepts are dropped."""
    groups: dict[str, list[Any]] = {}
    for value in values:
        if types is None or _fits(value, types):
            kind = kind_of(value)
            label = "numeric" if kind in ("integer", "number") else kind
            groups.setdefault(label, []).append(value)
    if not groups:
        raise Unsatisfiable
    return [branch for label, group in groups.items() for branch in _split_group(label, group, types)]


def _split_group(label: str, group: list[Any], types: list[str] | None) -> list[Json]:
    if label == "numeric":
        whole = all(kind_of(value) == "integer" for value in group)
        label = "integer" if whole and (types is None or "number" not in types) else "number"
    if label == "null":
        return [{"type": "null"}]
    if label not in _LISTED:
        return [{"type": label}]
    return [{"type": label, "enum": group[at : at + MAX_ENUM_VALUES]} for at in range(0, len(group), MAX_ENUM_VALUES)]


def mend_ranges(keywords: Json, type_: str, changes: list[str]) -> None:
    """Drop invalid bounds and round those of integers inwards; raises `Unsatisfiable` if they cross."""
    for low, high in _RANGES:
        for keyword, rounded in ((low, math.ceil), (high, math.floor)):
            if keyword not in keywords:
                continue
            value = keywords[keyword]
            if not is_number(value):
                del keywords[keyword]
                changes.append(f"{keyword} was removed, because it is not a number")
                continue
            if (type_ == "integer" or low != "minimum") and rounded(value) != value:
                keywords[keyword] = value = rounded(value)
                changes.append(f"{keyword} was rounded to {value}, which is the same bound for integers")
            if low != "minimum" and value < 0:
                if keyword == high:
                    raise Unsatisfiable
                del keywords[keyword]
                changes.append(f"{keyword} was removed, because it is always met")
        if low in keywords and high in keywords and keywords[low] > keywords[high]:
            raise Unsatisfiable
