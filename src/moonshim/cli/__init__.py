"""The `moonshim` command: imports and runs the command named by the first argument, and no other."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

from moonshim.cli import console

__all__ = ["COMMANDS", "main", "parser"]

COMMANDS: Final = {
    "init": "create a configuration: choose a host, a key and models",
    "serve": "run the gateway: one API for all your clients and hosts",
    "launch": "start Claude Code, Codex or another client on Kimi models",
    "chat": "chat with a model that can use tools, or get one answer",
    "simulate": "run a simulated Kimi API that can inject faults, for tests",
    "config": "check a configuration, or print an example",
    "trust": "review and trust the configuration in the current folder",
    "keys": "create, list and revoke gateway keys",
    "usage": "show tokens and cost by key, session, model or day",
    "doctor": "send a test request to each provider and report problems",
    "completion": "print a completion script for bash, zsh or fish",
    "mend": "repair recorded streams of a Kimi model and report the repairs",
    "explain": "show the request that a host would receive, and why",
}
"""A command's name is its module's name; the module has `main(argv) -> int` and `parser() -> console.Parser`."""

_GROUPS: Final = {
    "run": ("serve", "launch", "chat", "simulate"),
    "observe": ("usage",),
    "set up": ("init", "config", "trust", "keys", "doctor", "completion"),
    "debug": ("mend", "explain"),
}
_EXAMPLES: Final = """\
examples:
  moonshim init                 create a configuration, step by step
  moonshim serve --demo         try the gateway without a key, on the simulator
  moonshim serve                serve ./moonshim.toml, or the keys you exported
  moonshim doctor               check every key, URL and model
  moonshim chat -p "What is in this folder?"
  moonshim config example > moonshim.toml
  moonshim mend leaked.sse > mended.sse
  moonshim explain request.json --host moonshot

Run `moonshim COMMAND --help` for the options of a command.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code. Exceptions never escape: users would see a traceback."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        console.prepare()
        return _run(arguments)
    except KeyboardInterrupt:
        return console.INTERRUPTED
    except BrokenPipeError:
        console.silence(sys.stdout, sys.stderr)
        return console.BROKEN_PIPE
    except SystemExit as stopped:  # argparse exits this way, after --help and after an error
        return stopped.code if isinstance(stopped.code, int) else console.DONE
    except OSError as error:
        if _working_folder_is_gone():
            console.print_note("moonshim: the current folder no longer exists; change to another folder")
            return console.BAD_USAGE
        if error.filename is not None:
            console.print_note(f"moonshim: {console.safe(str(error.filename))}: {error.strerror}")
            return console.FAILED
        console.silence(sys.stdout)
        console.print_note(f"moonshim: cannot write to standard output: {error.strerror}")
        return console.FAILED
    except Exception as error:
        return console.report_error(error)


def _run(arguments: list[str]) -> int:
    if arguments and arguments[0] in COMMANDS:
        code: int = import_module(f"moonshim.cli.{arguments[0]}").main(arguments[1:])
        return code
    command = parser()
    if command.parse_args(arguments).version:
        print(f"moonshim {_version()}", flush=True)
        return console.DONE
    command.print_help(sys.stderr)
    return console.BAD_USAGE


def parser() -> console.Parser:
    """The parser of the arguments before a command's own; it imports no command."""
    groups = [
        "\n".join([f"{title}:", *(f"  {name:<12}{COMMANDS[name]}" for name in names)])
        for title, names in _GROUPS.items()
    ]
    made = console.Parser(
        prog="moonshim",
        usage="moonshim COMMAND [ARGUMENT ...]",
        description="\n\n".join(["Reliable tool calling for Kimi models.", *groups]),
        epilog=_EXAMPLES,
    )
    made.add_argument("--version", action="store_true", help="show the version and exit")
    commands = made.add_subparsers(metavar="COMMAND", help=argparse.SUPPRESS)
    for name in COMMANDS:
        commands.add_parser(name)
    return made


def _working_folder_is_gone() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 - importing pathlib takes longer than running a small command
    except FileNotFoundError:
        return True
    return False


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("moonshim")
    except PackageNotFoundError:
        return "(version unknown: the package is not installed)"
