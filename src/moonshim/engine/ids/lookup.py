"""A call or result object -> its number in the history, by identity or else by value."""

from __future__ import annotations

from typing import Any, TypeAlias

from moonshim.engine.ids.pairing import Key, keys_of, keys_of_entry
from moonshim.engine.values.conversation import Text, ToolCall, ToolResult
from moonshim.engine.values.tool_calls import FoundCall, FoundResult

__all__ = ["Lookup"]

Found: TypeAlias = FoundCall | FoundResult


class Lookup:
    """Finds calls and results again, in constant time on average.

    It keeps references to the objects it has seen, so that no new object can reuse the address of one of them.
    """

    def __init__(self) -> None:
        self._seen: dict[int, Found] = {}
        self._by_identity: dict[int, int] = {}
        self._by_key: dict[Key, list[int]] = {}
        self._alike: dict[Key, dict[tuple[str, ...], list[int]]] = {}
        self._turn: dict[tuple[Key, tuple[str, ...]], int] = {}
        self._resolved: dict[int, tuple[Any, int]] = {}

    def add(self, number: int, seen: Found) -> None:
        """Register an object of the history. An object that occurs twice is known by its first position."""
        self._seen[number] = seen
        self._by_identity.setdefault(id(seen.value), number)
        for key in keys_of_entry(seen):
            self._by_key.setdefault(key, []).append(number)

    def find(self, value: Any, seen: Found) -> int | None:
        """Its number, or None if the history has no entry with its id."""
        number = self._by_identity.get(id(value))
        if number is not None:
            return number
        resolved = self._resolved.get(id(value))
        if resolved is not None:
            return resolved[1]
        for key in keys_of(seen):
            numbers = self._by_key.get(key)
            if numbers is not None:
                return numbers[0] if len(numbers) == 1 else self._pick(key, value, seen)
        return None

    def last(self, seen: Found) -> int | None:
        """The number of the last entry with the same id."""
        return next((self._by_key[key][-1] for key in keys_of(seen) if key in self._by_key), None)

    def _pick(self, key: Key, value: Any, seen: Found) -> int:
        groups = self._alike.get(key)
        if groups is None:
            groups = self._alike[key] = self._group(self._by_key[key])
        name, text = seen.name or "", _content_text(value)
        like = next(sort for sort in ((name, text), (name,), ()) if sort in groups)
        numbers = groups[like]
        if len(numbers) == 1:
            return numbers[0]
        turn = self._turn.get((key, like), 0)
        self._turn[key, like] = turn + 1
        number = numbers[turn % len(numbers)]
        self._resolved[id(value)] = (value, number)
        return number

    def _group(self, numbers: list[int]) -> dict[tuple[str, ...], list[int]]:
        groups: dict[tuple[str, ...], list[int]] = {}
        for number in numbers:
            seen = self._seen[number]
            name, text = seen.name or "", _content_text(seen.value)
            for sort in ((name, text), (name,), ()):
                groups.setdefault(sort, []).append(number)
        return groups


def _content_text(value: Any) -> str:
    """The content of a call or result besides its id and name, as far as it is a string."""
    if isinstance(value, ToolCall):
        return value.arguments
    if isinstance(value, ToolResult):
        return "".join(part.text for part in value.parts if isinstance(part, Text))
    function = value.get("function")
    content = function.get("arguments") if isinstance(function, dict) else value.get("content")
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict)]
        return "".join(text for text in texts if isinstance(text, str))
    return content if isinstance(content, str) else ""
