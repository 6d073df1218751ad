"""Schemas that apply at the same time -> one schema, as far as possible.

Only the keywords that `keywords` produces are known here. Where not everything can be expressed, the result accepts
more than the schemas together, never less, and the keyword is reported as lost.
"""

from __future__ import annotations

import json
from collections.abc import KeysView
from typing import Any, Final, TypeAlias, TypeGuard

__all__ = ["NOTES", "Joined", "Json", "Unsatisfiable", "is_number", "same", "type_names"]

Json: TypeAlias = dict[str, Any]

NOTES: Final = ("title", "description", "default")
"""Keywords that do not constrain values."""
_LARGEST: Final = 1.7976931348623157e308
_LOWER: Final = ("minimum", "minLength", "minItems")
_UPPER: Final = ("maximum", "maxLength", "maxItems")
_COMPARED: Final = 8
"""Number of descriptions to compare a new one with, which keeps the cost linear."""


class Unsatisfiable(Exception):
    """No value is accepted here."""

    path: str | None = None
    """The path, once it is known."""


class Joined:
    """Merges schemas that apply at the same time, one by one; each costs no more than its own size."""

    def __init__(self) -> None:
        self._words: Json = {}
        self._properties: dict[str, list[Any]] | None = None
        self._items: list[Any] | None = None
        self._required: dict[str, None] | None = None
        self._descriptions: list[str] | None = None

    def add(self, part: Json) -> list[str]:
        """Merge a schema; return the keywords that were lost. Raises `Unsatisfiable` if it contradicts the others."""
        lost: list[str] = []
        for word, value in part.items():
            if word not in self._words:
                self._words[word] = value
            elif word in _JOIN:
                self._words[word] = _JOIN[word](self._words[word], value)
            elif word in _LOWER or word in _UPPER:
                self._words[word] = _tighter(word, self._words[word], value)
            elif word == "additionalProperties":
                self._words[word] = _additional(self._words[word], value, lost)
            elif not self._gathers(word, value) and word not in NOTES and not same(self._words[word], value):
                lost.append(word)
        return lost

    def words(self) -> KeysView[str]:
        """The keywords seen so far."""
        return self._words.keys()

    def says(self, word: str, value: Any) -> bool:
        """Whether a keyword has this value."""
        kept = self._properties if word == "properties" else self._required if word == "required" else None
        if kept is not None and isinstance(value, dict | list) and len(kept) != len(value):
            return False
        return same(self._value(word), value)

    def said(self) -> Json:
        """The merged schema."""
        return {word: self._value(word) for word in self._words}

    def _gathers(self, word: str, value: Any) -> bool:
        """Collect the value of a keyword whose values are merged at the end; return whether it is one."""
        given = self._words[word]
        if word == "properties":
            if isinstance(given, dict) and isinstance(value, dict):
                if self._properties is None:
                    self._properties = {name: [schema] for name, schema in given.items()}
                for name, schema in value.items():
                    _put(self._properties.setdefault(name, []), schema)
        elif word == "items":
            self._items = self._items or [given]
            _put(self._items, value)
        elif word == "required":
            if isinstance(given, list) and isinstance(value, list):
                if self._required is None:
                    self._required = dict.fromkeys(name for name in given if isinstance(name, str))
                self._required.update(dict.fromkeys(name for name in value if isinstance(name, str)))
        elif word == "description":
            self._descriptions = self._descriptions or [given]
            if not any(value in said for said in self._descriptions[:_COMPARED]):
                self._descriptions.append(value)
        else:
            return False
        return True

    def _value(self, word: str) -> Any:
        if word == "properties" and self._properties is not None:
            return {name: _at_once(schemas) for name, schemas in self._properties.items()}
        if word == "items" and self._items is not None:
            return _at_once(self._items)
        if word == "required" and self._required is not None:
            return list(self._required)
        if word == "description" and self._descriptions is not None:
            return " ".join(self._descriptions)
        return self._words[word]


def _put(schemas: list[Any], schema: Any) -> None:
    """Add a schema unless it is already there. Only a few are compared: a duplicate does no harm."""
    if not any(same(schema, known) for known in (*schemas[:1], *schemas[1:][-2:])):
        schemas.append(schema)


def _at_once(schemas: list[Any]) -> Any:
    return schemas[0] if len(schemas) == 1 else {"allOf": schemas}


def same(one: Any, other: Any) -> bool:
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
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LARGEST


def type_names(given: Any) -> list[Any]:
    return given if isinstance(given, list) else [given]


def _tighter(word: str, one: Any, other: Any) -> Any:
    numbers = [value for value in (one, other) if is_number(value)]
    if len(numbers) < 2:
        return numbers[0] if numbers else one
    return max(numbers) if word in _LOWER else min(numbers)


def _types(one: Any, other: Any) -> Any:
    ours, theirs = (list(dict.fromkeys(type_names(names))) for names in (one, other))
    kept = [name for name in ours if _covers(theirs, name)]
    kept += [name for name in theirs if name not in kept and _covers(ours, name)]
    if not kept:
        raise Unsatisfiable
    return kept[0] if len(kept) == 1 else kept


def _covers(names: list[Any], name: Any) -> bool:
    return name in names or (name == "integer" and "number" in names)


def _enums(one: Any, other: Any) -> Any:
    if not isinstance(one, list) or not isinstance(other, list):
        return one
    written = {json.dumps(value, sort_keys=True) for value in other}
    kept = [value for value in one if json.dumps(value, sort_keys=True) in written]
    if not kept:
        raise Unsatisfiable
    return kept


def _additional(one: Any, other: Any, lost: list[str]) -> Any:
    """What one schema forbids and the other lists is accepted: that is what authors mean by it."""
    if one is False or other is False:
        return False
    if one is True or other is True:
        return other if one is True else one
    if not same(one, other):
        lost.append("additionalProperties")
    return one


_JOIN: Final = {"type": _types, "enum": _enums}
