"""`moonshim simulate`: a Kimi API on this machine, and its subcommands."""

from __future__ import annotations

from moonshim.cli.simulate.command import action_parsers, main, parser

__all__ = ["action_parsers", "main", "parser"]
