"""`moonshim completion`: the parsers of all commands -> a completion script for a shell."""

from __future__ import annotations

from moonshim.cli.completion.command import main, parser

__all__ = ["main", "parser"]
