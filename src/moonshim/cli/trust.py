"""`moonshim trust`: a configuration in the current folder -> what it would do, and whether it may."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from moonshim.cli import console
from moonshim.config import ConfigError, FoundConfig, look_for_config
from moonshim.config.files.find import NAMES, VARIABLE
from moonshim.config.review import Review
from moonshim.config.trust import NotTrusted, forget, remember, take_snapshot, trusted_snapshot

__all__ = ["main", "review_lines"]

_EPILOG: Final = """\
A configuration that lies in the current folder is not used before it is trusted, since whoever wrote it could run code
and read your keys. It is trusted as it is now: after any change of it, or of a plug-in file that it names, it has to be
trusted again. Files named by --config or MOONSHIM_CONFIG, and those in your configuration folder, need no trust.

exit codes:
  0  done
  1  it is not trusted; a line says why
  2  the command was not understood, or a file cannot be read or written"""
_TITLES: Final = {
    "code": "code that it runs",
    "variables": "environment variables that it reads",
    "addresses": "addresses that it sends to",
    "files": "files that it reads or writes",
    "access": "who may use the gateway",
}


def main(argv: Sequence[str]) -> int:
    """Run `moonshim trust`; return the exit code."""
    parser = console.Parser(
        prog="moonshim trust",
        usage="moonshim trust [--yes | --forget]",
        description="Show what the configuration in the current folder would load, read and send where, and trust it.",
        epilog=_EPILOG,
    )
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--yes", action="store_true", help="trust it without asking, after you have read it")
    choice.add_argument("--forget", action="store_true", help="trust it no longer")
    given = parser.parse_args(list(argv))
    environ = {name: value for name, value in os.environ.items() if name != VARIABLE}
    try:
        found = look_for_config(None, environ, Path.cwd())
        if found is None or not found.needs_trust:
            console.print_note(
                f"moonshim trust: there is no {' or '.join(NAMES)} in the current folder that needs trust"
            )
            return console.FAILED
        if given.forget:
            forget(found.path, environ)
            console.print_note(f"moonshim trust: {console.safe(str(found.path))} is not trusted any more")
            return console.DONE
        return _trust(found, environ, asks=not given.yes)
    except ConfigError as error:
        for problem in error.problems:
            console.print_note(f"moonshim trust: {console.safe(problem)}")
        return console.BAD_USAGE


def _trust(found: FoundConfig, environ: dict[str, str], *, asks: bool) -> int:
    shown = console.safe(str(found.path))
    try:
        trusted_snapshot(found.path, environ)
    except NotTrusted:
        pass
    else:
        console.print_note(f"moonshim trust: {shown} is trusted already")
        return console.DONE
    snapshot = take_snapshot(found.path, environ)
    print("\n".join([shown, *review_lines(snapshot.review, console.Paint(sys.stdout))]), flush=True)
    if asks and (sys.stdin is None or not sys.stdin.isatty()):
        console.print_note(
            "moonshim trust: it is not trusted: there is no terminal to ask at; `moonshim trust --yes` trusts it"
        )
        return console.FAILED
    if asks and not _is_confirmed():
        console.print_note("moonshim trust: it is not trusted")
        return console.FAILED
    remember(snapshot, environ)  # the content that was shown, even if the file has changed since
    console.print_note(f"moonshim trust: {shown} is trusted until it changes")
    return console.DONE


def _is_confirmed() -> bool:
    try:
        return input("\nTrust it? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def review_lines(review: Review, paint: console.Paint) -> Iterator[str]:
    """What a configuration would do, for people."""
    for field, title in _TITLES.items():
        lines: list[str] = getattr(review, field)
        yield ""
        yield paint.bold(title) + ("" if lines else ": none" if field != "access" else ": as usual, this machine")
        yield from (f"  {console.safe(line)}" for line in lines)
