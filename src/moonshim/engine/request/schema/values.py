"""Types, enums and ranges -> the forms that Moonshot accepts."""

from __future__ import annotations

import math
from typing import Any, Final

from moonshim.engine.request.schema.merge import Json, Unsatisfiable, is_number

__all__ = ["LONGEST_ENUM", "WORDS_OF", "enum_branches", "enum_stands", "kind_of", "mend_ranges"]

WORDS_OF: Final[dict[str, frozenset[str]]] = {
    "object": frozenset({"properties", "required", "additionalProperties"}),
    "array": frozenset({"items", "minItems", "maxItems"}),
    "string": frozenset({"minLength", "maxLength", "pattern", "enum"}),
    "number": frozenset({"minimum", "maximum", "enum"}),
    "integer": frozenset({"minimum", "maximum", "enum"}),
    "boolean": frozenset({"enum"}),
    "null": frozenset({"enum"}),
}
LONGEST_ENUM: Final = 1000
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


def enum_stands(words: Json, types: list[str] | None) -> bool:
    """Whether an enum can stay unchanged next to its types."""
    values = words["enum"]
    if types is None or len(values) > LONGEST_ENUM or not all(_fits(value, types) for value in values):
        return False
    if len(types) == 1:
        return types[0] in _LISTED
    # If a numeric type comes before null, Moonshot refuses the null.
    pair = len(types) == 2 and "null" in types and {*types} <= _LISTED and types[-1] in ("number", "integer")
    return (pair or {*types} in ({"string", "null"}, {"boolean", "null"})) and not words.keys() & _BESIDE


_BESIDE: Final = frozenset().union(*WORDS_OF.values()) - {"enum"}


def enum_branches(values: list[Any], types: list[str] | None) -> list[Json]:
    """One schema per kind of value; values that no declared type accepts are dropped."""
    groups: dict[str, list[Any]] = {}
    for value in values:
        if types is None or _fits(value, types):
            kind = kind_of(value)
            label = "numeric" if kind in ("integer", "number") else kind
            groups.setdefault(label, []).append(value)
    if not groups:
        raise Unsatisfiable
    return [branch for label, group in groups.items() for branch in _branches(label, group, types)]


def _branches(label: str, group: list[Any], types: list[str] | None) -> list[Json]:
    if label == "numeric":
        whole = all(kind_of(value) == "integer" for value in group)
        label = "integer" if whole and (types is None or "number" not in types) else "number"
    if label == "null":
        return [{"type": "null"}]
    if label not in _LISTED:
        return [{"type": label}]
    return [{"type": label, "enum": group[at : at + LONGEST_ENUM]} for at in range(0, len(group), LONGEST_ENUM)]


def mend_ranges(words: Json, type_: str, changes: list[str]) -> None:
    """Drop invalid bounds and round those of integers inwards; raises `Unsatisfiable` if they cross."""
    for low, high in _RANGES:
        for word, rounded in ((low, math.ceil), (high, math.floor)):
            if word not in words:
                continue
            value = words[word]
            if not is_number(value):
                del words[word]
                changes.append(f"{word} was left out, since it is no number")
                continue
            if (type_ == "integer" or low != "minimum") and rounded(value) != value:
                words[word] = value = rounded(value)
                changes.append(f"{word} was rounded to {value}, which says the same of whole numbers")
            if low != "minimum" and value < 0:
                if word == high:
                    raise Unsatisfiable
                del words[word]
                changes.append(f"{word} was left out, since it is always met")
        if low in words and high in words and words[low] > words[high]:
            raise Unsatisfiable
