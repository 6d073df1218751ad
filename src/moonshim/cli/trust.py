"""`moonshim trust`: a configuration in the current folder -> what it would do, and a record that you trust it."""

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

__all__ = ["main", "parser", "review_lines"]

_EPILOG: Final = """\
A configuration can run code and read your API keys, so a configuration in the
current folder is not used until you trust it. Trust covers its exact content:
if the file changes, or a plug-in file that it names, you have to trust it
again. Files that you name with --config or MOONSHIM_CONFIG, and files in your
configuration folder, need no trust.

examples:
  moonshim trust              review the configuration, then confirm
  moonshim trust --yes        trust it without a prompt, such as in CI
  moonshim trust --forget     stop trusting it

exit codes:
  0  done
  1  not trusted; the reason is printed
  2  invalid command line, or a file cannot be read or written"""
_TITLES: Final = {
    "code": "code that it runs",
    "variables": "environment variables that it reads",
    "addresses": "addresses that it sends requests to",
    "files": "files that it reads or writes",
    "access": "access to the gateway",
}


def parser() -> console.Parser:
    """The command's arguments."""
    made = console.Parser(
        prog="moonshim trust",
        usage="moonshim trust [--yes | --forget]",
        description="Show what the configuration in the current folder would run, read and contact,\n"
        "and trust it after you confirm.",
        epilog=_EPILOG,
    )
    choice = made.add_mutually_exclusive_group()
    choice.add_argument("--yes", action="store_true", help="trust it without asking for confirmation")
    choice.add_argument("--forget", action="store_true", help="stop trusting it")
    return made


def main(argv: Sequence[str]) -> int:
    """Run `moonshim trust`; return the exit code."""
    given = parser().parse_args(list(argv))
    environ = {name: value for name, value in os.environ.items() if name != VARIABLE}
    try:
        found = look_for_config(None, environ, Path.cwd())
        if found is None or not found.needs_trust:
            console.print_note(f"moonshim trust: {console.safe(_why_nothing(found))}")
            return console.FAILED
        if given.forget:
            forget(found.path, environ)
            console.print_note(f"moonshim trust: {console.safe(str(found.path))} is no longer trusted")
            return console.DONE
        return _trust(found, environ, asks=not given.yes)
    except ConfigError as error:
        for problem in error.problems:
            console.print_note(f"moonshim trust: {console.safe(problem)}")
        return console.BAD_USAGE


def _why_nothing(found: FoundConfig | None) -> str:
    if found is not None and found.path.parent == Path.cwd():
        return f"{found.path} is in your configuration folder and needs no trust"
    return f"there is no {' or '.join(NAMES)} in this folder"


def _trust(found: FoundConfig, environ: dict[str, str], *, asks: bool) -> int:
    shown = console.safe(str(found.path))
    try:
        trusted_snapshot(found.path, environ)
    except NotTrusted:
        pass
    else:
        console.print_note(f"moonshim trust: {shown} is already trusted")
        return console.DONE
    snapshot = take_snapshot(found.path, environ)
    print("\n".join([shown, *review_lines(snapshot.review, console.Paint(sys.stdout))]), flush=True)
    if asks and (sys.stdin is None or not sys.stdin.isatty()):
        console.print_note(
            "moonshim trust: not trusted: cannot ask for confirmation without a terminal (use `moonshim trust --yes`)"
        )
        return console.FAILED
    if asks and not _is_confirmed():
        console.print_note("moonshim trust: not trusted")
        return console.FAILED
    remember(snapshot, environ)  # the content that was shown, even if the file has changed since
    console.print_note(f"moonshim trust: {shown} is now trusted, until it changes")
    return console.DONE


def _is_confirmed() -> bool:
    try:
        return input("\nTrust this configuration? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def review_lines(review: Review, paint: console.Paint) -> Iterator[str]:
    """What a configuration would do, in sections."""
    for field, title in _TITLES.items():
        lines: list[str] = getattr(review, field)
        yield ""
        yield paint.bold(title) + ("" if lines else ": none" if field != "access" else ": this machine only (default)")
        yield from (f"  {console.safe(line)}" for line in lines)
