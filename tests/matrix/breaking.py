"""The faults that no client survives without Moonshim, by name: the matrix shows for each of them that it breaks."""

from __future__ import annotations

from typing import Final

__all__ = ["BREAKS"]

BREAKS: Final[frozenset[str]] = frozenset()
