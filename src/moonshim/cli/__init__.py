"""The command `moonshim`: arguments -> the command that they name; only that one is imported."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

from moonshim.cli import console

__all__ = ["COMMANDS", "main"]

COMMANDS: Final = {
    "serve": "run the gateway: one address for every client",
    "simulate": "run a Kimi API without a model: strict, and with faults on a dial",
    "chat": "chat with a model that has tools, or get one answer for a script",
    "trust": "show what a configuration in the current folder would do, and trust it",
    "config": "check a configuration, or print an example of one",
    "keys": "make, list and revoke the keys of the gateway",
    "doctor": "ask every provider once, and tell what is right and what is not",
    "mend": "mend recorded streams of a Kimi model, and tell what was put right",
    "explain": "show what a host would be sent for a request, and why it differs",
}
"""A command's name is its module's name; the module has `main(argv) -> int`."""

_EXAMPLES: Final = """\
examples:
  moonshim serve                run the gateway on ./moonshim.toml, or on the keys in the environment
  moonshim serve --demo         the same without any key: on the simulator
  moonshim simulate             only the simulator, for tests of your own: a Kimi API at 127.0.0.1:8485
  moonshim simulate faults      every way in which it can go wrong
  moonshim chat                 an agent on this terminal; --demo needs no key
  moonshim chat -p "…"          one answer, for scripts
  moonshim doctor               is every key, address and model right? asks each host once
  moonshim config example > moonshim.toml           a file to begin with
  moonshim trust                let this folder's moonshim.toml be used, after a look at what it does
  moonshim config check         what a configuration means, or everything that is wrong with it
  moonshim keys new alice       a key for somebody else who uses this gateway
  moonshim mend leaked.sse      the mended stream; what was put right is told on standard error
  curl -sN … | moonshim mend    the same, while it arrives
  moonshim mend --help          all that it can do
  moonshim explain request.json --host moonshot     what that host would be sent, and why

Each command has a --help of its own. The pages are in docs/: configuration.md, operating.md, security.md, …
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
    except SystemExit as stopped:  # how argparse exits, after --help and after an error
        return stopped.code if isinstance(stopped.code, int) else console.DONE
    except OSError as error:
        if _working_folder_is_gone():
            console.print_note("moonshim: the current folder does not exist any more; change to another one (`cd`)")
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
    parser = console.Parser(
        prog="moonshim",
        usage="moonshim COMMAND [ARGUMENT ...]",
        description="Tool calling with Kimi models, made right.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("--version", action="store_true", help="show the version")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, summary in COMMANDS.items():
        commands.add_parser(name, help=summary)
    if parser.parse_args(arguments).version:
        print(f"moonshim {_version()}", flush=True)
        return console.DONE
    parser.print_help(sys.stderr)
    return console.BAD_USAGE


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
        return "(version unknown: it runs from a folder and is not installed)"
