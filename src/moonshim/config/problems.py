"""Problems in a configuration, and their positions -> lines for people: all of them, not only the first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from moonshim.errors import MoonshimError

__all__ = ["ConfigError", "Path", "Problems", "display_path", "nearest"]

Path: TypeAlias = tuple[str | int, ...]
"""The path of a value: `("providers", 1, "models")`."""

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_TOML_NOTE: Final = re.compile(r" \(`\[\[[^`]*` in TOML\)")


class ConfigError(MoonshimError):
    """A configuration cannot be used; `problems` has one line per problem, without secrets."""

    code = "invalid_configuration"

    def __init__(self, problems: Sequence[str], notes: Sequence[str] = ()) -> None:
        super().__init__("\n".join(problems))
        self.problems = list(problems)
        self.notes = list(notes)
        """Problems that do not prevent its use."""


class Problems:
    """Collects errors (`add`) and warnings (`note`) about one text, each with its position."""

    def __init__(self, source: str, lines: Mapping[Path, int]) -> None:
        self.source = source
        self._lines = lines
        self._errors: list[tuple[int, str]] = []
        self._notes: list[tuple[int, str]] = []
        self._unknown: set[Path] = set()
        self.notes_by_path: dict[Path, list[str]] = {}
        """The warnings without their position."""

    def add(self, path: Path, message: str) -> None:
        if path not in self._unknown:
            self._errors.append(self._locate(path, message))

    def note(self, path: Path, message: str) -> None:
        if path not in self._unknown:
            self._notes.append(self._locate(path, message))
            self.notes_by_path.setdefault(path, []).append(message)

    def add_unknown(self, path: Path, messages: Sequence[str], *, is_note: bool = False) -> None:
        """Mark a value as unknown (a variable is not set): further problems with it are not reported."""
        for message in messages:
            (self.note if is_note else self.add)(path, message)
        if messages:
            self._unknown.add(path)

    @property
    def count(self) -> int:
        return len(self._errors)

    @property
    def errors(self) -> list[str]:
        """In the order of the text, whatever order they were found in."""
        return [line for _, line in sorted(self._errors, key=_by_line)]

    @property
    def notes(self) -> list[str]:
        return [line for _, line in sorted(self._notes, key=_by_line)]

    def _locate(self, path: Path, message: str) -> tuple[int, str]:
        line = self._line(path)
        place = f"{display_path(path)}: " if path else ""
        if self.source.lower().endswith((".json", ".jsonc", ".json5")):
            message = _in_json(message)
        return line or 0, f"{self.source}{f':{line}' if line else ''}: {place}{message}"

    def _line(self, path: Path) -> int | None:
        """The line of the value, or of the nearest enclosing one that is in the text."""
        return next((self._lines[path[:size]] for size in range(len(path), 0, -1) if path[:size] in self._lines), None)


def _in_json(message: str) -> str:
    """The message in the terms of JSON, which has no tables.

    >>> _in_json("expected a list of tables (`[[providers]]` in TOML), got a table")
    'expected a list of objects, got an object'
    """
    return _TOML_NOTE.sub("", message).replace("a list of tables", "a list of objects").replace("a table", "an object")


def _by_line(problem: tuple[int, str]) -> int:
    return problem[0]


def display_path(path: Path) -> str:
    """A path as people write it.

    >>> display_path(("providers", 1, "transformer", "kimi-k2.5", "use"))
    'providers[1].transformer."kimi-k2.5".use'
    """
    shown = ""
    for step in path:
        if isinstance(step, int):
            shown += f"[{step}]"
        else:
            shown += f".{step}" if _BARE.fullmatch(step) else f'."{step}"'
    return shown.removeprefix(".")


def nearest(word: str, words: Iterable[str]) -> str:
    """` (did you mean '…'?)`, or an empty string.

    >>> nearest("modles", ["models", "name"]), nearest("zzz", ["models"])
    (" (did you mean 'models'?)", '')
    """
    from difflib import get_close_matches

    by_lower = {known.lower(): known for known in words}
    close = get_close_matches(word.lower(), by_lower, n=1)
    return f" (did you mean '{by_lower[close[0]]}'?)" if close else ""
