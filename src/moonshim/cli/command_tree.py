"""All commands and their actions, each with its parser: the source of the completion scripts and the reference page."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from importlib import import_module
from typing import NamedTuple

from moonshim import cli
from moonshim.cli import console

__all__ = ["CommandParser", "command_tree", "subcommands_of"]


class CommandParser(NamedTuple):
    """A command, or an action of one, and its parser."""

    path: tuple[str, ...]
    """Its names after `moonshim`; empty for `moonshim` itself."""
    summary: str
    parser: argparse.ArgumentParser
    actions: tuple[CommandParser, ...] = ()

    def walk(self) -> Iterator[CommandParser]:
        """This command and everything below it."""
        yield self
        for action in self.actions:
            yield from action.walk()


def command_tree() -> CommandParser:
    """`moonshim` with all its commands. This imports every command."""
    commands = (_command(name, summary) for name, summary in cli.COMMANDS.items())
    return CommandParser((), "", cli.parser(), tuple(commands))


def _command(name: str, summary: str) -> CommandParser:
    module = import_module(f"moonshim.cli.{name}")
    parser: console.Parser = module.parser()
    parsers: dict[str, tuple[str, argparse.ArgumentParser]] = {}
    if subcommands := subcommands_of(parser):
        summaries = {choice.dest: choice.help or "" for choice in subcommands._choices_actions}
        parsers = {action: (summaries[action], inner) for action, inner in subcommands.choices.items()}
    elif hasattr(module, "action_parsers"):
        parsers = module.action_parsers()
    actions = (CommandParser((name, action), about, inner) for action, (about, inner) in parsers.items())
    return CommandParser((name,), summary, parser, tuple(actions))


def subcommands_of(parser: argparse.ArgumentParser) -> argparse._SubParsersAction[argparse.ArgumentParser] | None:
    """The argument that selects an action, if the parser has one."""
    return next((one for one in parser._actions if isinstance(one, argparse._SubParsersAction)), None)
