"""Parsers -> what can be completed: commands, options and arguments, without anything that depends on a shell."""

from __future__ import annotations

import argparse
import re
from typing import Final, Literal, NamedTuple, TypeAlias

from moonshim.cli.command_tree import CommandParser, command_tree
from moonshim.cli.suggest import Source, suggestions_for

__all__ = ["Arity", "CompletionCommand", "Option", "Value", "completion_model"]

Arity: TypeAlias = Literal["one", "optional", "many"]
"""How many words a value takes: one; one or none; or any number."""

_ARITIES: Final[dict[object, Arity]] = {None: "one", "?": "optional", "*": "many", "+": "many"}
_NAME: Final = re.compile(r"[\w.,:=+@/-]+", re.ASCII)
"""Names that need no quoting in any shell."""


class Value(NamedTuple):
    """An argument, or the value of an option."""

    label: str
    arity: Arity
    names: tuple[str, ...]
    source: Source
    in_list: bool


class Option(NamedTuple):
    """An option under all its spellings."""

    spellings: tuple[str, ...]
    about: str
    value: Value | None
    """None: the option is a flag."""
    repeatable: bool
    excluded: tuple[str, ...]
    """Options that cannot be combined with it."""


class CompletionCommand(NamedTuple):
    """A command, or an action of one."""

    path: tuple[str, ...]
    about: str
    options: tuple[Option, ...]
    arguments: tuple[Value, ...]
    actions: tuple[CompletionCommand, ...]

    @property
    def name(self) -> str:
        return " ".join(self.path)

    def walk(self) -> list[CompletionCommand]:
        """This command and everything below it."""
        return [self, *(inner for action in self.actions for inner in action.walk())]


def completion_model() -> CompletionCommand:
    """`moonshim` and everything below it."""
    return _command(command_tree())


def _command(command: CommandParser) -> CompletionCommand:
    shown = [one for one in command.parser._actions if one.help != argparse.SUPPRESS]
    return CompletionCommand(
        command.path,
        command.summary,
        tuple(_option(one, command.parser) for one in shown if one.option_strings),
        tuple(_value(one) for one in shown if not one.option_strings and one.nargs != argparse.PARSER),
        tuple(map(_command, command.actions)),
    )


def _option(action: argparse.Action, parser: argparse.ArgumentParser) -> Option:
    excluded = [
        spelling
        for group in parser._mutually_exclusive_groups
        if action in group._group_actions
        for other in group._group_actions
        if other is not action
        for spelling in other.option_strings
    ]
    repeatable = isinstance(action, argparse._AppendAction | argparse._ExtendAction)
    about = (action.help or "").replace("%%", "%")
    value = None if action.nargs == 0 else _value(action)
    return Option(tuple(action.option_strings), about, value, repeatable, tuple(excluded))


def _value(action: argparse.Action) -> Value:
    known = suggestions_for(action)
    try:
        names = tuple(known.names())
    except ImportError:  # the names are in a module that needs an extra
        names = ()
    label = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    plain = tuple(name for name in names if _NAME.fullmatch(name))
    return Value(label, _ARITIES[action.nargs], plain, known.source, known.in_list)
