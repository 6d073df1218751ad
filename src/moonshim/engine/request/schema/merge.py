"""Schemas that apply at the same time -> one schema, as far as possible.

Only the keywords that `keywords` produces are known here. Where not everything can be expressed, the result accepts
more than the schemas together, never less, and the keyword is reported as lost.
"""

from __future__ import annotations

import json
from collections.abc import KeysView
from typing import Any, Final, TypeAlias, TypeGuard

__all__ = ["NOTES", "Json", "SchemaMerger", "Unsatisfiable", "is_number", "is_same_json", "type_names"]

Json: TypeAlias = dict[str, Any]

NOTES: Final = ("title", "description", "default")
"""Keywords that do not constrain values."""
_MAX_DOUBLE: Final = 1.7976931348623157e308
_LOWER: Final = ("minimum", "minLength", "minItems")
_UPPER: Final = ("maximum", "maxLength", "maxItems")
_MAX_COMPARED: Final = 8
"""Number of descriptions to compare a new one with, which keeps the cost linear."""


class Unsatisfiable(Exception):
    """No value is accepted here."""

    path: str | None = None
    """The path, once it is known."""


class SchemaMerger:
    """Merges schemas that apply at the same time, one by one; each costs no more than its own size."""

    def __init__(self) -> None:
        self._keywords: Json = {}
        self._properties: dict[str, list[Any]] | None = None
        self._items: list[Any] | None = None
        self._required: dict[str, None] | None = None
        self._descriptions: list[str] | None = None

    def add(self, part: Json) -> list[str]:
        """Merge a schema; return the keywords that were lost. Raises `Unsatisfiable` if it contradicts the others."""
        lost: list[str] = []
        for keyword, value in part.items():
            if keyword not in self._keywords:
                self._keywords[keyword] = value
            elif keyword in _MERGE_FUNCTIONS:
                self._keywords[keyword] = _MERGE_FUNCTIONS[keyword](self._keywords[keyword], value)
            elif keyword in _LOWER or keyword in _UPPER:
                self._keywords[keyword] = _tighten(keyword, self._keywords[keyword], value)
            elif keyword == "additionalProperties":
                self._keywords[keyword] = _merge_additional(self._keywords[keyword], value, lost)
            elif (
                not self._collect(keyword, value)
                and keyword not in NOTES
                and not is_same_json(self._keywords[keyword], value)
            ):
                lost.append(keyword)
        return lost

    def keywords(self) -> KeysView[str]:
        """The keywords seen so far."""
        return self._keywords.keys()

    def has_value(self, keyword: str, value: Any) -> bool:
        """Whether a keyword has this value."""
        collected = self._properties if keyword == "properties" else self._required if keyword == "required" else None
        if collected is not None and isinstance(value, dict | list) and len(collected) != len(value):
            return False
        return is_same_json(self._value(keyword), value)

    def result(self) -> Json:
        """The merged schema."""
        return {keyword: self._value(keyword) for keyword in self._keywords}

    def _collect(self, keyword: str, value: Any) -> bool:
        """Collect the value of a keyword whose values are merged at the end; return whether it is one."""
        current = self._keywords[keyword]
        if keyword == "properties":
            if isinstance(current, dict) and isinstance(value, dict):
                if self._properties is None:
                    self._properties = {name: [schema] for name, schema in current.items()}
                for name, schema in value.items():
                    _add_schema(self._properties.setdefault(name, []), schema)
        elif keyword == "items":
            self._items = self._items or [current]
            _add_schema(self._items, value)
        elif keyword == "required":
            if isinstance(current, list) and isinstance(value, list):
                if self._required is None:
                    self._required = dict.fromkeys(name for name in current if isinstance(name, str))
                self._required.update(dict.fromkeys(name for name in value if isinstance(name, str)))
        elif keyword == "description":
            self._descriptions = self._descriptions or [current]
            if not any(value in known for known in self._descriptions[:_MAX_COMPARED]):
                self._descriptions.append(value)
        else:
            return False
        return True

    def _value(self, keyword: str) -> Any:
        if keyword == "properties" and self._properties is not None:
            return {name: _all_of(schemas) for name, schemas in self._properties.items()}
        if keyword == "items" and self._items is not None:
            return _all_of(self._items)
        if keyword == "required" and self._required is not None:
            return list(self._required)
        if keyword == "description" and self._descriptions is not None:
            return " ".join(self._descriptions)
        return self._keywords[keyword]


def _add_schema(schemas: list[Any], schema: Any) -> None:
    """Add a schema unless it is already there. Only a few are compared: a duplicate does no harm."""
    if not any(is_same_json(schema, known) for known in (*schemas[:1], *schemas[1:][-2:])):
        schemas.append(schema)


def _all_of(schemas: list[Any]) -> Any:
    return schemas[0] if len(schemas) == 1 else {"allOf": schemas}


def is_same_json(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON: 1 and true are not, nor 1 and 1.0."""
    waiting = [(one, other)]
    while waiting:
        left, right = waiting.pop()
        if left is right:
            continue
        if type(left) is not type(right):
            return False
        if isinstance(left, dict):
            if left.keys() != right.keys():
                return False
            waiting += ((value, right[key]) for key, value in left.items())
        elif isinstance(left, list):
            if len(left) != len(right):
                return False
            waiting += zip(left, right, strict=True)
        elif left != right:
            return False
    return True


def is_number(value: Any) -> TypeGuard[float]:
    """Whether a value is a number that a double can represent: Moonshot reads all numbers as doubles."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _MAX_DOUBLE


def type_names(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _tighten(keyword: str, one: Any, other: Any) -> Any:
    numbers = [value for value in (one, other) if is_number(value)]
    if len(numbers) < 2:
        return numbers[0] if numbers else one
    return max(numbers) if keyword in _LOWER else min(numbers)


def _intersect_types(one: Any, other: Any) -> Any:
    ours, theirs = (list(dict.fromkeys(type_names(names))) for names in (one, other))
    common = [name for name in ours if _covers(theirs, name)]
    common += [name for name in theirs if name not in common and _covers(ours, name)]
    if not common:
        raise Unsatisfiable
    return common[0] if len(common) == 1 else common


def _covers(names: list[Any], name: Any) -> bool:
    return name in names or (name == "integer" and "number" in names)


def _intersect_enums(one: Any, other: Any) -> Any:
    if not isinstance(one, list) or not isinstance(other, list):
        return one
    written = {json.dumps(value, sort_keys=True) for value in other}
    common = [value for value in one if json.dumps(value, sort_keys=True) in written]
    if not common:
        raise Unsatisfiable
    return common


def _merge_additional(one: Any, other: Any, lost: list[str]) -> Any:
    """What one schema forbids and the other lists is accepted: that is what authors mean by it."""
    if one is False or other is False:
        return False
    if one is True or other is True:
        return other if one is True else one
    if not is_same_json(one, other):
        lost.append("additionalProperties")
    return one


_MERGE_FUNCTIONS: Final = {"type": _intersect_types, "enum": _intersect_enums}
