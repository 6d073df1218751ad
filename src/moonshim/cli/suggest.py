"""Marks an argument with the values that shells can suggest for it; `moonshim completion` reads the marks."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import Final, Literal, NamedTuple, TypeAlias

__all__ = ["NOTHING", "Source", "Suggestions", "suggest", "suggestions_for"]

Source: TypeAlias = Literal["", "files", "folders", "variables"]
"""What the shell itself lists: files, folders, environment variables, or nothing."""


class Suggestions(NamedTuple):
    """The values that a shell can suggest for an argument."""

    source: Source = ""
    names: Callable[[], Iterable[str]] = tuple
    """Called only when a completion script is generated, so that it may import the module that defines the names."""
    in_list: bool = False
    """Whether the argument is a comma-separated list of the names."""


NOTHING: Final = Suggestions()


def suggest(
    action: argparse.Action,
    source: Source = "",
    *,
    names: Callable[[], Iterable[str]] = tuple,
    in_list: bool = False,
) -> None:
    """Set the suggestions for an argument. The choices of an argument need no mark.

    A name that ends with `=` is completed without a space after it.
    """
    action.suggestions = Suggestions(source, names, in_list)  # type: ignore[attr-defined]


def suggestions_for(action: argparse.Action) -> Suggestions:
    """The suggestions for an argument: those that were set, or else its choices."""
    if action.choices is not None:
        return Suggestions(names=lambda: map(str, action.choices or ()))
    found: Suggestions = getattr(action, "suggestions", NOTHING)
    return found
