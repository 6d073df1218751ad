"""Client tool names -> unique names that the host accepts."""

from __future__ import annotations

import re
from functools import partial
from typing import Final

from moonshim.engine.ids.spelling import NAMELESS, UniqueIds, digest
from moonshim.errors import CannotExpress

__all__ = ["ToolNames"]

_OTHER: Final = re.compile(r"[^a-zA-Z0-9_-]")


class ToolNames:
    """Maps every tool name to the one sent to the host.

    Accepted names stay. Any other result depends only on the name and on names requested before it, so later tools
    and calls change nothing.

    >>> names = ToolNames(r"[A-Za-z][A-Za-z0-9_-]*", 16)
    >>> [names.resolve(name) for name in ("read", "fs.read file", "fs_read_file", "7zip", "")]
    ['read', 'fs_read_file', 'fs_read_file_2', 'tool_7zip', 'unknown']
    """

    def __init__(self, pattern: str | None, limit: int | None) -> None:
        self._pattern = None if pattern is None else re.compile(pattern)
        self._limit = limit
        self._distinct = UniqueIds()
        self._known: dict[str, str] = {}

    def resolve(self, name: str) -> str:
        """The name sent to the host. Raises `CannotExpress` if no candidate matches the host's pattern."""
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = self._distinct.take(partial(self._spell, name))
        return known

    def assign(self, name: str, host_name: str) -> None:
        """Map a name to one that the host defines itself."""
        self._known[name] = host_name
        self._distinct.taken.add(host_name)

    def accepts(self, name: str) -> bool:
        """Whether the host accepts the name as it is."""
        if not name or (self._limit is not None and len(name) > self._limit):
            return False
        return self._pattern is None or self._pattern.fullmatch(name) is not None

    def _spell(self, name: str, suffix: str) -> str:
        if self.accepts(name + suffix):
            return name + suffix
        # Without a pattern, the name is only too long or empty.
        plain = (name if self._pattern is None else _OTHER.sub("_", name)) or NAMELESS
        tail = f"_{digest(name)}{suffix}"
        for candidate in (
            plain + suffix,
            f"tool_{plain}{suffix}",
            f"{self._cut(plain, tail)}{tail}",
            f"{self._cut('tool_' + plain, tail)}{tail}",
            f"t{digest(name, suffix)}",
        ):
            if self.accepts(candidate):
                return candidate
        raise CannotExpress(f"no name that the host accepts can replace tool name {name!r}", field="tools")

    def _cut(self, name: str, tail: str) -> str:
        return name if self._limit is None else name[: max(self._limit - len(tail), 0)]
