"""Output shared by all commands: exit codes, terminal-safe text, colours and help."""

from __future__ import annotations

import argparse
import io
import os
import re
import sys
import traceback
from typing import IO, Any, Final, NoReturn

__all__ = [
    "BAD_USAGE",
    "BROKEN_PIPE",
    "DONE",
    "FAILED",
    "INTERRUPTED",
    "Paint",
    "Parser",
    "debugging",
    "fault_line",
    "fit_columns",
    "prepare",
    "print_note",
    "report_error",
    "safe",
    "silence",
    "width_of",
]

DONE: Final = 0
FAILED: Final = 1
BAD_USAGE: Final = 2
INTERRUPTED: Final = 130
"""128 plus the signal, as shells do: SIGINT here, SIGPIPE below."""
BROKEN_PIPE: Final = 141

_DEFAULT_WIDTH: Final = 100
_reported: Final[list[BaseException]] = []
"""With MOONSHIM_DEBUG, the error whose traceback was printed last: several lines may report the same error."""
_NO_CHOICE: Final = re.compile(
    r"argument (?P<argument>.+?): invalid choice: '(?P<wrong>.*?)' \(choose from (?P<known>.*)\)"
)
_SELECTORS: Final = {"COMMAND": "unknown command", "ACTION": "unknown action"}
"""Arguments that select a command or an action, and the error for an unknown name."""
_NO_OPTION: Final = re.compile(r"unrecognized arguments: (--[\w-]+)")
_HEADING: Final = re.compile(r"^(?:usage(?=:)|\S[^\n]*:$)", re.MULTILINE)


def print_note(text: str) -> None:
    """A message to the user on standard error; with MOONSHIM_DEBUG, followed by the traceback of the error."""
    if sys.stderr is None:
        return
    print(text, file=sys.stderr, flush=True)
    error = sys.exception()
    if debugging() and error is not None and error not in _reported:
        _reported[:] = [error]
        error.__suppress_context__ = False  # the original exception has the location
        traceback.print_exception(error)


def prepare() -> None:
    """Write characters that the terminal's encoding lacks as escapes, instead of failing."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def silence(*streams: IO[str] | None) -> None:
    """Redirect streams whose reader is gone to the null device, so that the flush at exit cannot fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        if stream is not None:
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def report_error(error: Exception) -> int:
    """An internal error, in one line. `MOONSHIM_DEBUG=1` shows the traceback."""
    if debugging():
        raise error
    print_note(f"moonshim: {fault_line(error)}")
    return FAILED


def debugging() -> bool:
    return bool(os.environ.get("MOONSHIM_DEBUG"))


def fault_line(error: Exception) -> str:
    return safe(f"internal error: {type(error).__name__}: {error} (set MOONSHIM_DEBUG=1 for the traceback)")


def safe(text: str) -> str:
    """The text on one line, unable to move the cursor, change colours or reverse the order of letters.

    >>> print(safe("a\\x1b[2Jb\\nc\\u202ed"))
    a\\x1b[2Jb\\nc\\u202ed
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def safe_lines(text: str) -> str:
    """The same for a text of several lines, which it keeps."""
    return "\n".join(map(safe, text.split("\n")))


def width_of(stream: IO[str] | None) -> int:
    """Number of columns: from COLUMNS, else from the terminal."""
    override = os.environ.get("COLUMNS", "")
    if override.isdecimal() and int(override) > 0:
        return int(override)
    try:
        columns = os.get_terminal_size(stream.fileno()).columns if stream is not None else 0
    except (OSError, ValueError):
        columns = 0
    return columns or _DEFAULT_WIDTH  # some terminals do not report it, dumb ones above all


def fit_columns(text: str, columns: int) -> str:
    """The text cut to this many columns; a Chinese character takes two.

    >>> fit_columns("finish_reason", 8), fit_columns("今天天气", 8), fit_columns("今天天气", 7)
    ('finish_…', '今天天气', '今天天…')
    """
    from unicodedata import east_asian_width

    used, room = 0, 0  # `room`: what still fits if an ellipsis follows
    for place, char in enumerate(text):
        used += 2 if east_asian_width(char) in "WF" else 1
        if used < columns:
            room = place + 1
        if used > columns:
            return text[:room] + "…"
    return text


class Paint:
    """Colours for a stream: only on a terminal, and not with NO_COLOR."""

    def __init__(self, stream: IO[str] | None) -> None:
        self._on = (
            stream is not None
            and stream.isatty()
            and not os.environ.get("NO_COLOR")
            and os.environ.get("TERM") != "dumb"
        )

    def bold(self, text: str) -> str:
        return self._paint("1", text)

    def dim(self, text: str) -> str:
        return self._paint("2", text)

    def red(self, text: str) -> str:
        return self._paint("31", text)

    def green(self, text: str) -> str:
        return self._paint("32", text)

    def yellow(self, text: str) -> str:
        return self._paint("33", text)

    def _paint(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._on and text else text


class Parser(argparse.ArgumentParser):
    """An argument parser whose help keeps its line breaks, and whose errors are one safe line."""

    def __init__(self, **given: Any) -> None:
        super().__init__(formatter_class=_Help, allow_abbrev=False, add_help=False, **given)
        self._positionals.title = "arguments"
        self.add_argument("-h", "--help", action="help", help="show this help and exit")
        if sys.version_info >= (3, 14):
            self.color = False  # we use our own colours, the same with every Python

    def print_help(self, file: Any = None) -> None:
        stream = sys.stdout if file is None else file
        paint = Paint(stream)
        if stream is not None:
            stream.write(_HEADING.sub(lambda found: paint.bold(found[0]), self.format_help()))
            stream.flush()

    def format_help(self) -> str:
        """The help, with `--help` after the groups of options, if there are any."""
        own, groups = self._optionals, self._action_groups
        grouped = any(group._group_actions for group in groups[2:])
        if not grouped or own._group_actions[1:]:
            return super().format_help()
        self._action_groups = [*(group for group in groups if group is not own), own]
        own.title = "other"
        try:
            return super().format_help()
        finally:
            self._action_groups = groups

    def error(self, message: str) -> NoReturn:
        print_note(f"{self.prog}: {safe(self._explain(message))}")
        print_note(f"Run `{self.prog} --help` for usage")
        raise SystemExit(BAD_USAGE)

    def _explain(self, message: str) -> str:
        """The message of argparse, with the closest valid name instead of all of them if one is close."""
        if found := _NO_CHOICE.search(message):
            known = [word.strip(" '\"") for word in found["known"].split(",")]
            what = _SELECTORS.get(found["argument"], f"argument {found['argument']}: invalid choice")
            hint = _did_you_mean(found["wrong"], known) or f" (choose from {', '.join(known)})"
            return f"{what} '{found['wrong']}'{hint}"
        if message.endswith(": ACTION"):
            *others, last = next(
                action.choices for action in self._actions if isinstance(action, argparse._SubParsersAction)
            )
            return f"choose an action: {', '.join(others)} or {last}"
        if found := _NO_OPTION.search(message):
            return message + _did_you_mean(found[1], self._options())
        return message

    def _options(self) -> list[str]:
        inner = (action.choices for action in self._actions if isinstance(action, argparse._SubParsersAction))
        parsers = [self, *(parser for choices in inner for parser in choices.values())]
        return [option for parser in parsers for option in parser._option_string_actions]


def _did_you_mean(wrong: str, known: list[str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(wrong, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


class _Help(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str, **given: Any) -> None:
        super().__init__(prog, max_help_position=24, width=max(60, min(width_of(sys.stdout), 110)))

    def _split_lines(self, text: str, width: int) -> list[str]:
        import textwrap

        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)  # `--base-url` stays in one piece

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        # `-p, --prompt PROMPT`, as Python 3.13 does; earlier versions repeat the placeholder.
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{', '.join(action.option_strings)} {value}"

    def _format_args(self, action: argparse.Action, default_metavar: str) -> str:
        # Names for each value: the command itself checks how many there are.
        if action.nargs == "+" and isinstance(action.metavar, tuple):
            first, *others = action.metavar
            return " ".join([first, *(f"[{name}]" for name in others)])
        return super()._format_args(action, default_metavar)

    def _format_action(self, action: argparse.Action) -> str:
        if isinstance(action, argparse._SubParsersAction):  # only the actions, without a line for their placeholder
            return "".join(self._format_action(inner) for inner in action._get_subactions())
        return super()._format_action(action)
