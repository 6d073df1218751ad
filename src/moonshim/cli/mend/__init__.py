"""`moonshim mend`: recorded streams and responses -> mended ones, and a report of the repairs."""

from __future__ import annotations

from moonshim.cli.mend.command import main, parser

__all__ = ["main", "parser"]
