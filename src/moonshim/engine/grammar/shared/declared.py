"""Declared tools -> known names, and how much of a text is the start of one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from moonshim.engine.grammar.protocol import CallDelta, CallEnded, CallStarted, Channel, GrammarEvent, Notice
from moonshim.engine.values.conversation import Tool

__all__ = ["DeclaredNames", "call_without_arguments", "declared_names", "names_of"]


class DeclaredNames:
    """Names, and every prefix of one."""

    __slots__ = ("_beginnings", "names")

    def __init__(self, names: Iterable[str]) -> None:
        self.names = frozenset(name for name in names if name)
        self._beginnings = frozenset(name[:size] for name in self.names for size in range(len(name) + 1)) | {""}

    def prefix_length(self, text: str) -> int:
        """Number of leading characters that form a prefix of a name.

        >>> DeclaredNames(["ls", "lsof"]).prefix_length("lsb")
        2
        """
        size = len(text)
        while text[:size] not in self._beginnings:
            size -= 1
        return size


def names_of(tools: Sequence[Tool] | None) -> frozenset[str] | None:
    """The names of these tools; None if the tools are unknown."""
    return None if tools is None else frozenset(tool.name for tool in tools)


def declared_names(tools: Sequence[Tool] | None) -> DeclaredNames | None:
    """The names of these tools, if there are any."""
    names = names_of(tools)
    return _build_names(names) if names else None


@lru_cache(maxsize=64)
def _build_names(names: frozenset[str]) -> DeclaredNames:
    """Cached, since it has no state."""
    return DeclaredNames(names)


def call_without_arguments(
    name: str, header: str, names: frozenset[str] | None, channel: Channel
) -> list[GrammarEvent]:
    """A name without arguments: a call with none, unless the tools are known and none has that name."""
    if not name or (names is not None and name not in names):
        return []
    return [CallStarted(channel, header, name), Notice("arguments_empty", name), CallDelta("{}"), CallEnded(True)]
