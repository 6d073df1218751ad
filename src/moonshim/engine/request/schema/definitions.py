"""References in a schema -> their target schemas, with names that Moonshot accepts."""

from __future__ import annotations

from typing import Any, Final

from moonshim.engine.request.schema.merge import Json

__all__ = ["Definitions"]

_DIGITS: Final = 10
"""A list index with this many digits is out of range for any list."""


class Definitions:
    """Assigns each reference target one name in `$defs`, and hands each to the caller once, to be rewritten."""

    def __init__(self, root: Json) -> None:
        self._root = root
        self._names: dict[str, str] = {"#": ""}
        self._taken: set[str] = set()
        self._numbers: dict[str, int] = {}
        self._used: set[str] = set()
        self._waiting: list[tuple[str, Any, str]] = []
        self._targets: dict[str, Any] = {}

    def has(self, reference: str) -> bool:
        """Whether the reference leads to a schema in this document."""
        if reference not in self._targets:
            self._targets[reference] = self._find(reference)
        return isinstance(self._targets[reference], dict | bool)

    def target(self, reference: str) -> Any:
        return self._targets[reference] if self.has(reference) else None

    def name_of(self, reference: str) -> str:
        """The reference in Moonshot's form; `next_waiting` will return its target."""
        if reference in ("#", "#/"):
            return "#"
        if reference not in self._names:
            tokens = reference[2:].split("/")
            if tokens[0] == "$defs":
                self._used.add(_unescape(tokens[1]))
            plain = tokens[1] if len(tokens) == 2 and tokens[0] in ("$defs", "definitions") else "_".join(tokens)
            name = self._free_name(_unescape(plain).replace("/", "_") or "definition", own=tokens == ["$defs", plain])
            self._names[reference] = name
            self._waiting.append((name, self.target(reference), ".".join(tokens)))
        return f"#/$defs/{self._names[reference]}"

    def next_waiting(self) -> tuple[str, Any, str] | None:
        """Name, schema and path of a definition that is referenced but not handed out yet."""
        return self._waiting.pop(0) if self._waiting else None

    def unused(self) -> list[str]:
        """Definitions without a reference."""
        declared = self._root.get("$defs")
        return [name for name in declared if name not in self._used] if isinstance(declared, dict) else []

    def _free_name(self, name: str, *, own: bool) -> str:
        """An unused name; a definition that already has the name keeps it."""
        definitions = self._root.get("$defs")
        declared = definitions.keys() if isinstance(definitions, dict) else ()
        free, number = name, self._numbers.get(name, 2)
        while free in self._taken or (free in declared and not own):
            free, number = f"{name}_{number}", number + 1
        self._numbers[name] = number
        self._taken.add(free)
        return free

    def _find(self, reference: str) -> Any:
        if reference == "#":
            return self._root
        if not reference.startswith("#/"):
            return None
        target: Any = self._root
        for token in reference[2:].split("/"):
            token = _unescape(token)
            if isinstance(target, dict):
                target = target.get(token)
            elif isinstance(target, list) and token.isdecimal() and len(token) < _DIGITS and int(token) < len(target):
                target = target[int(token)]
            else:
                return None
        return target


def _unescape(token: str) -> str:
    return token.replace("~1", "/").replace("~0", "~")
