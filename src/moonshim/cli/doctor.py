"""`moonshim doctor`: a configuration -> a line for each provider: whether it works, and what to do if it does not."""

from __future__ import annotations

import asyncio
import os
import sys
from argparse import ArgumentTypeError
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from moonshim.cli import console
from moonshim.config import (
    LOOKED_FOR,
    Config,
    ConfigError,
    config_from_environment,
    load_found,
    look_for_config,
    warnings_of,
)
from moonshim.http_server.log_lines import json_for_terminal

if TYPE_CHECKING:
    from moonshim.doctor.check import ProviderReport

__all__ = ["main", "parser"]

_DEFAULT_SECONDS: Final = 60.0
_MOST_SECONDS: Final = 3600.0
_USAGE: Final = """moonshim doctor [--config FILE] [--provider NAME ...] [--model MODEL]
                       [--timeout S] [--user-agent TEXT] [--json]"""
_EPILOG: Final = """\
examples:
  moonshim doctor                                  every provider that `moonshim serve` would use
  moonshim doctor --provider openrouter --model moonshotai/kimi-k2.6
  moonshim doctor --json | jq -r 'select(.right | not) | .provider'

It asks each provider a question that needs a tool, and hands back what the tool gave: two short requests, which cost
a few hundred tokens. Keys are never shown, only where they are from.

exit codes:
  0  all is right
  1  something is wrong with a provider; what to do about it is told
  2  the command was not understood, or there is nothing to check"""
_MARKS: Final = {"right": ("✓", "green"), "wrong": ("✗", "red"), "unknown": ("·", "dim")}


class _CannotCheck(Exception):
    """There is nothing to check; the message is for the user."""


def main(argv: Sequence[str]) -> int:
    """Run `moonshim doctor`; return the exit code."""
    given = parser().parse_args(list(argv))
    if find_spec("aiohttp") is None:
        console.print_note(
            "moonshim doctor: asking hosts needs more than the engine does:\n"
            '  pip install "moonshim[gateway]"   or, in a checkout: pip install ".[gateway]"'
        )
        return console.BAD_USAGE
    try:
        config = _select_providers(_configuration(given.config), given.provider)
    except _CannotCheck as error:
        console.print_note(f"moonshim doctor: {error}")
        return console.BAD_USAGE
    return asyncio.run(_check(config, given))


async def _check(config: Config, given: Any) -> int:
    from moonshim.doctor.check import check_providers
    from moonshim.doctor.report import as_json

    right, waiting = True, [provider.name for provider in config.providers]
    progress = _Progress()
    progress.show(waiting)
    paint = console.Paint(sys.stdout)
    async for report in check_providers(config, model=given.model, seconds=given.timeout, user_agent=given.user_agent):
        right = right and report.right
        waiting.pop(0)
        progress.clear()
        print(json_for_terminal(as_json(report)) if given.json else "\n".join(_report(report, paint)), flush=True)
        progress.show(waiting)
    for warning in () if given.json else warnings_of(config):
        print(paint.yellow("! ") + console.safe(warning), flush=True)
    return console.DONE if right else console.FAILED


class _Progress:
    """Which providers are still being checked: only on a terminal, on a line that is erased afterwards."""

    def __init__(self) -> None:
        self._on = sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    def show(self, names: Sequence[str]) -> None:
        if self._on and names:
            columns = console.width_of(sys.stderr)
            self._write(console.fit_columns(console.safe(f"asking {', '.join(names)} …"), columns - 1))

    def clear(self) -> None:
        if self._on:
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


# -- output ----------------------------------------------------------------------------------------------------------


def _report(report: ProviderReport, paint: console.Paint) -> Iterator[str]:
    """The verdict in one line, and the findings and figures below it."""
    from moonshim.doctor.report import advice, figures, verdict

    mark, colour = _MARKS["right" if report.right else "wrong"]
    name = paint.bold(console.safe(f"{report.provider}/{report.model}"))
    yield f"{getattr(paint, colour)(mark)} {name}  {console.safe(verdict(report))}"
    for finding in report.findings:
        mark, colour = _MARKS[finding.state]
        yield f"  {getattr(paint, colour)(mark)} {paint.dim(finding.topic.ljust(9))} {console.safe(finding.said)}"
        if (then := advice(finding)) is not None:
            yield f"    {' ' * 9} {paint.yellow('→')} {console.safe(then)}"
    for title, text in figures(report):
        yield f"    {paint.dim(title.ljust(9))} {console.safe(text)}"


# -- options ---------------------------------------------------------------------------------------------------------


def _configuration(file: str | None) -> Config:
    try:
        found = look_for_config(file, os.environ, Path.cwd())
        config = config_from_environment(os.environ) if found is None else load_found(found, os.environ)
    except ConfigError as error:
        lines = "\n".join(f"  {console.safe(problem)}" for problem in error.problems)
        raise _CannotCheck(f"the configuration cannot be used:\n{lines}") from None
    if config is None or not config.providers:
        raise _CannotCheck(
            "nothing is configured. Looked for:\n"
            "  a file: --config FILE, MOONSHIM_CONFIG, moonshim.toml or .json here or in your configuration folder\n"
            f"  a key in the environment: {', '.join(LOOKED_FOR)}\n"
            "`moonshim config example` prints a file to begin with"
        )
    return config


def _select_providers(config: Config, names: Sequence[str]) -> Config:
    """The configuration with only the selected providers."""
    from msgspec.structs import replace

    from moonshim.config.problems import nearest

    known = [provider.name for provider in config.providers]
    for name in names:
        if name not in known:
            hint = nearest(name, known) or f"; there are {', '.join(known)}"
            raise _CannotCheck(console.safe(f"there is no provider `{name}` in {config.source}{hint}"))
    chosen = tuple(provider for provider in config.providers if not names or provider.name in names)
    return replace(config, providers=chosen)


def parser() -> console.Parser:
    """The command's arguments."""
    made = console.Parser(
        prog="moonshim doctor",
        usage=_USAGE,
        description="Ask every provider once, with a tool: tell whether key, address, model and dialect are right,\n"
        "what had to be mended, and what to do where something is wrong.",
        epilog=_EPILOG,
    )
    made.add_argument("--config", metavar="FILE", help="the configuration; if not given: what `moonshim serve` reads")
    made.add_argument(
        "--provider", metavar="NAME", nargs="+", action="extend", default=[], help="only these (default: all)"
    )
    made.add_argument("--model", help="ask for this model (default: the first of each provider)")
    made.add_argument(
        "--timeout",
        metavar="S",
        type=_seconds,
        default=_DEFAULT_SECONDS,
        help=f"how long a host may take to begin an answer, and to end it (default: {_DEFAULT_SECONDS:.0f})",
    )
    made.add_argument("--user-agent", metavar="TEXT", type=_header, help="ask as this client; some hosts look at it")
    made.add_argument("--json", action="store_true", help="one line of JSON for each provider")
    return made


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= _MOST_SECONDS:
        raise ArgumentTypeError(f"{text!r} is no number of seconds from above 0 to {_MOST_SECONDS:.0f}")
    return number


def _header(text: str) -> str:
    if not (text.isascii() and text.isprintable() and text.strip()):
        raise ArgumentTypeError("it cannot be sent as a header")
    return text
