"""The values of another tool's file -> a report with one entry for each: taken over, not needed, or no counterpart."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from moonshim.config.problems import Path, display_path

__all__ = ["OUTCOMES", "Account", "Entry", "leaves_of"]

Outcome: TypeAlias = Literal["taken", "not_needed", "no_counterpart"]
OUTCOMES: Final[dict[Outcome, str]] = {
    "taken": "taken over",
    "not_needed": "not needed",
    "no_counterpart": "no counterpart",
}


class Entry(Struct, frozen=True):
    """What became of one value. `detail` is the new key, or the reason; it never contains the value."""

    path: Path
    outcome: Outcome
    detail: str


class Account:
    """Accounts for every leaf of a file exactly once: the first decision about a leaf counts."""

    def __init__(self, value: Any) -> None:
        self._entries: dict[Path, Entry | None] = dict.fromkeys(leaves_of(value))

    def taken(self, path: Path, to: str) -> None:
        self._decide(path, "taken", to)

    def not_needed(self, path: Path, why: str) -> None:
        self._decide(path, "not_needed", why)

    def no_counterpart(self, path: Path, why: str) -> None:
        self._decide(path, "no_counterpart", why)

    def drop_nulls(self, value: Any, path: Path) -> None:
        """Account for the nulls in a value that is taken over without them."""
        for leaf in leaves_of(value):
            one = value
            for step in leaf:
                one = one[step]
            if one is None:
                self.no_counterpart((*path, *leaf), "TOML has no null")

    def _decide(self, path: Path, outcome: Outcome, detail: str) -> None:
        """The decision holds for everything at or below the path that has none yet."""
        for leaf, entry in self._entries.items():
            if entry is None and leaf[: len(path)] == path:
                self._entries[leaf] = Entry(leaf, outcome, detail)

    def entries(self) -> list[Entry]:
        """In the order of the file. Leaves without a decision are unknown settings."""
        unknown = "Moonshim has no such setting"
        return [entry or Entry(leaf, "no_counterpart", unknown) for leaf, entry in self._entries.items()]

    def lines(self, outcome: Outcome) -> list[tuple[str, str]]:
        """Paths and details for people; elements of a list that share a detail are one line."""
        chosen = [entry for entry in self.entries() if entry.outcome == outcome]
        return [
            (_shown(list(group)), detail)
            for (_, detail), group in groupby(chosen, key=lambda entry: (_list_of(entry.path), entry.detail))
        ]


def leaves_of(value: Any, path: Path = ()) -> Iterator[Path]:
    """The paths of all values that contain no others; an empty list or object is one of them.

    >>> list(leaves_of({"a": [1, {}], "b": None}))
    [('a', 0), ('a', 1), ('b',)]
    """
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    below = [leaf for step, one in inner for leaf in leaves_of(one, (*path, step))]
    yield from below or ([path] if path else [])


def _list_of(path: Path) -> Path:
    return path[:-1] if isinstance(path[-1], int) else path


def _shown(entries: list[Entry]) -> str:
    first, last = entries[0].path, entries[-1].path
    return display_path(first) if len(entries) == 1 else f"{display_path(first[:-1])}[{first[-1]}-{last[-1]}]"
