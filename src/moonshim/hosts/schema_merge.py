"""Two schemas that hold at once -> one that says both, as far as one can.

Only the keywords that `schema_keywords.supported` leaves are known here. Where both cannot be
said the result allows more than the two together, never less, and the keyword is named as lost.
"""

from __future__ import annotations

import json
from typing import Any, Final, TypeAlias, TypeGuard

__all__ = ["NOTES", "Json", "Nothing", "is_number", "merge", "same", "type_names"]

Json: TypeAlias = dict[str, Any]

NOTES: Final = ("title", "description", "default")
"""Words that say nothing about which values are allowed."""
_LARGEST: Final = 1.7976931348623157e308
_LOWER: Final = ("minimum", "minLength", "minItems")
_UPPER: Final = ("maximum", "maxLength", "maxItems")


class Nothing(Exception):
    """No value at all is allowed here."""

    path: str | None = None
    """Where, once it is known."""


def merge(first: Json, second: Json, lost: list[str]) -> Json:
    """Both at once; raises `Nothing` when they exclude each other. `lost` takes the keywords that had to go."""
    both = {**second, **first}
    for word in first.keys() & second.keys():
        one, other = first[word], second[word]
        if word in _LOWER or word in _UPPER:
            both[word] = _tighter(word, one, other)
        elif word in _JOIN:
            both[word] = _JOIN[word](one, other)
        elif word not in NOTES and not same(one, other):
            lost.append(word)
    if "description" in first and "description" in second and second["description"] not in first["description"]:
        both["description"] = f"{first['description']} {second['description']}"
    if "additionalProperties" in both:
        both["additionalProperties"] = _additional(first, second, lost)
    return both


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON: 1 and true are not, 1 and 1.0 are near enough."""
    return type(one) is type(other) and (json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True))


def is_number(value: Any) -> TypeGuard[float]:
    """Whether a value is a number that a double can hold: Moonshot reads all numbers as doubles."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LARGEST


def type_names(given: Any) -> list[Any]:
    return given if isinstance(given, list) else [given]


def _tighter(word: str, one: Any, other: Any) -> Any:
    numbers = [value for value in (one, other) if is_number(value)]
    if len(numbers) < 2:
        return numbers[0] if numbers else one
    return max(numbers) if word in _LOWER else min(numbers)


def _types(one: Any, other: Any) -> Any:
    kept = [name for name in type_names(one) if _covers(type_names(other), name)]
    kept += [name for name in type_names(other) if name not in kept and _covers(type_names(one), name)]
    if not kept:
        raise Nothing
    return kept[0] if len(kept) == 1 else kept


def _covers(names: list[Any], name: Any) -> bool:
    return name in names or (name == "integer" and "number" in names)


def _enums(one: Any, other: Any) -> Any:
    if not isinstance(one, list) or not isinstance(other, list):
        return one
    written = {json.dumps(value, sort_keys=True) for value in other}
    kept = [value for value in one if json.dumps(value, sort_keys=True) in written]
    if not kept:
        raise Nothing
    return kept


def _required(one: Any, other: Any) -> Any:
    if not isinstance(one, list) or not isinstance(other, list):
        return one
    return [*one, *(name for name in other if name not in one)]


def _properties(one: Any, other: Any) -> Any:
    if not isinstance(one, dict) or not isinstance(other, dict):
        return one
    joined = {**one, **other}
    return {
        name: _schemas(one[name], other[name]) if name in one and name in other else joined[name] for name in joined
    }


def _schemas(one: Any, other: Any) -> Any:
    return one if same(one, other) else {"allOf": [one, other]}


def _additional(first: Json, second: Json, lost: list[str]) -> Any:
    """What the one forbids and the other lists is allowed: that is what people mean who write it."""
    one, other = first.get("additionalProperties", True), second.get("additionalProperties", True)
    if one is False or other is False:
        return False
    if one is True or other is True:
        return other if one is True else one
    if not same(one, other):
        lost.append("additionalProperties")
    return one


_JOIN: Final = {
    "type": _types,
    "enum": _enums,
    "required": _required,
    "properties": _properties,
    "items": _schemas,
}
