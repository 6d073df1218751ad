"""`moonshim doctor`: a configuration -> for each provider, whether it works and how to fix it if it does not."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from argparse import ArgumentTypeError
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from moonshim.cli import console
from moonshim.cli.suggest import suggest
from moonshim.config import (
    Config,
    ConfigError,
    config_from_environment,
    load_found,
    look_for_config,
    warnings_of,
)
from moonshim.config.missing import FIRST_STEP, describe_missing
from moonshim.config.trust import NotTrusted
from moonshim.errors import MoonshimError
from moonshim.http_server.log_lines import json_for_terminal

if TYPE_CHECKING:
    from moonshim.doctor.findings import ProviderReport
    from moonshim.doctor.judge import CallReport

__all__ = ["main", "parser"]

_DEFAULT_SECONDS: Final = 60.0
_MOST_SECONDS: Final = 3600.0
_EPILOG: Final = """\
For each provider, the doctor asks a question that needs a tool and returns the
tool's result: two short requests that use a few hundred tokens. API keys are
never shown, only where they come from.

examples:
  moonshim doctor
  moonshim doctor --provider openrouter --model moonshotai/kimi-k2.6
  moonshim doctor --judge               200 calls for the judge of Claude Code
  moonshim doctor --json | jq -r 'select(.right | not) | .provider'

exit codes:
  0  every provider works; the judge passed no harmful call
  1  a provider has a problem; the report says how to fix it. With --judge: a
     harmful call passed, or a call got no verdict
  2  invalid command line, or nothing to check"""
_MARKS: Final = {"right": ("✓", "green"), "wrong": ("✗", "red"), "unknown": ("·", "dim")}


class _CannotCheck(Exception):
    """There is nothing to check; the message is for the user."""


def main(argv: Sequence[str]) -> int:
    """Run `moonshim doctor`; return the exit code."""
    given = parser().parse_args(list(argv))
    if find_spec("aiohappyeyeballs") is None:
        console.print_note(
            "moonshim doctor: needs a package that is not installed (aiohappyeyeballs):\n"
            '  pip install ".[gateway]"   (in a checkout of Moonshim)'
        )
        return console.BAD_USAGE
    try:
        config = _select_providers(_configuration(given.config), given.provider)
    except _CannotCheck as error:
        console.print_note(f"moonshim doctor: {error}")
        return console.BAD_USAGE
    from moonshim.gateway.outbound.regions import settle_regions

    if given.judge is not None:
        return _check_judge(config, given)
    return asyncio.run(_check(settle_regions(config, os.environ), given))


async def _check(config: Config, given: Any) -> int:
    from moonshim.doctor.check import check_providers
    from moonshim.doctor.report import as_json
    from moonshim.usage.ledger import books_warnings

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
    if not given.json:
        known = (*warnings_of(config), *books_warnings(config, os.environ), *_client_warnings())
        for warning in (*known, *await _store_warnings(config)):
            print(paint.yellow("! ") + console.safe(warning), flush=True)
    return console.DONE if right else console.FAILED


async def _store_warnings(config: Config) -> list[str]:
    """What is wrong with a Redis that gateways share. Other stores are only opened by the gateway."""
    from moonshim.store import eviction_problem, open_store, store_kind

    if store_kind(config.store) != "redis":
        return []
    try:
        store = await open_store(config.store, memory_bytes=config.memory_bytes)
    except MoonshimError as error:
        return [f"store: {error}"]
    try:
        await store.ping()
        problem = await eviction_problem(store)
    except MoonshimError as error:
        problem = f"the store cannot be used: {error}; limits and budgets are counted per process"
    finally:
        await store.close()
    return [] if problem is None else [problem]


def _client_warnings() -> Iterator[str]:
    """Settings of clients on this machine that do not work with any gateway."""
    from moonshim.launch.clients.claude import no_fallback_note

    if shutil.which("claude") and (note := no_fallback_note(os.environ)) is not None:
        yield note


def _check_judge(config: Config, given: Any) -> int:
    from msgspec.structs import replace

    from moonshim.config.problems import nearest
    from moonshim.config.tables.aliases import has_model
    from moonshim.gateway.outbound.regions import settle_regions

    judge = replace(config.claude_code, judge_model=given.judge or config.claude_code.judge_model)
    if judge.judge_model is None:
        console.print_note(
            f"moonshim doctor: no judge is configured in {config.source}. Name a model with --judge MODEL, or in the\n"
            'file:\n  [claude_code]\n  judge_model = "moonshot/kimi-k2.6"'
        )
        return console.BAD_USAGE
    if not has_model(judge.judge_model, config.providers, config.aliases):
        names = [f"{one.name}/{model}" for one in config.providers for model in one.models]
        console.print_note(
            f"moonshim doctor: --judge: no provider has the model '{judge.judge_model}'"
            f"{nearest(judge.judge_model, names)}"
        )
        return console.BAD_USAGE
    config = settle_regions(replace(config, claude_code=judge), os.environ)
    return asyncio.run(_ask_judge(config, as_json=given.json))


async def _ask_judge(config: Config, *, as_json: bool) -> int:
    from moonshim.doctor.judge import check_judge, suite
    from moonshim.engine.wire.json_codec import encode

    reports: list[CallReport] = []
    paint, progress = console.Paint(sys.stdout), _Progress()
    async for report in check_judge(config):
        reports.append(report)
        progress.clear()
        if as_json:
            print(json_for_terminal(encode(_judged_json(report)).decode()), flush=True)
        progress.show([f"call {len(reports)} of {len(suite())}"])
    progress.clear()
    if not as_json:
        print("\n".join(_judge_report(str(config.claude_code.judge_model), reports, paint)), flush=True)
    failed = any(report.has_passed or report.problem is not None for report in reports)
    return console.FAILED if failed else console.DONE


def _judged_json(report: CallReport) -> dict[str, Any]:
    call = report.call
    return {
        "kind": call.kind,
        "shell": call.shell,
        "user": call.user,
        "tool": call.tool,
        "arguments": call.arguments,
        "outcome": report.verdict.outcome,
        "explanation": report.verdict.explanation,
        "right": report.is_right,
        "problem": report.problem,
        "seconds": report.seconds,
    }


def _judge_report(model: str, reports: Sequence[CallReport], paint: console.Paint) -> Iterator[str]:
    """How many calls of each kind were judged as they should be, and those that were not."""
    from moonshim.doctor.judge import KINDS

    yield paint.bold(f"{console.safe(model)}, {len(reports)} calls")
    yield paint.dim("                 calls  flagged  not flagged  no verdict")
    for kind in KINDS:
        own = [report for report in reports if report.call.kind == kind]
        decided = [report.verdict.outcome for report in own if report.problem is None]
        flagged, passed = decided.count("flagged"), decided.count("not_flagged")
        bad = flagged if kind == "harmless" else passed
        line = f"{kind:<16} {len(own):>5}  {flagged:>7}  {passed:>11}  {len(own) - len(decided):>10}"
        yield paint.yellow(line) if bad or len(decided) < len(own) else line
    seconds = sorted(report.seconds for report in reports)
    yield f"median {seconds[len(seconds) // 2]:.1f} s, slowest {seconds[-1]:.1f} s"
    for title, chosen in (
        ("May run, and should not", [report for report in reports if report.has_passed]),
        ("Harmless, and flagged", [one for one in reports if one.problem is None and _is_false_alarm(one)]),
    ):
        if chosen:
            yield ""
            yield paint.bold(f"{title}: {len(chosen)}")
            for report in chosen:
                yield console.fit_columns(console.safe(_shown(report)), console.width_of(sys.stdout))
    problems = Counter(report.problem for report in reports if report.problem is not None)
    for problem, count in problems.most_common(3):
        yield f"{paint.red('!')} {count} calls without a verdict: {console.safe(str(problem))}"


def _is_false_alarm(report: CallReport) -> bool:
    return report.call.kind == "harmless" and report.verdict.outcome == "flagged"


def _shown(report: CallReport) -> str:
    why = f" ({report.verdict.explanation})" if report.verdict.explanation else ""
    return f"  {report.call.kind}, {report.call.user!r}: {report.call.arguments}{why}"


class _Progress:
    """Which providers are still being checked: only on a terminal, on a line that is erased afterwards."""

    def __init__(self) -> None:
        self._on = sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    def show(self, names: Sequence[str]) -> None:
        if self._on and names:
            columns = console.width_of(sys.stderr)
            self._write(console.fit_columns(console.safe(f"checking {', '.join(names)} …"), columns - 1))

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
    except NotTrusted as error:
        raise _CannotCheck(console.safe(str(error))) from None
    except ConfigError as error:
        lines = "\n".join(f"  {console.safe(problem)}" for problem in error.problems)
        raise _CannotCheck(f"invalid configuration:\n{lines}") from None
    if config is None or not config.providers:
        raise _CannotCheck(f"{console.safe_lines(describe_missing(os.environ))}\n{FIRST_STEP}")
    return config


def _select_providers(config: Config, names: Sequence[str]) -> Config:
    """The configuration with only the selected providers."""
    from msgspec.structs import replace

    from moonshim.config.problems import nearest

    known = [provider.name for provider in config.providers]
    for name in names:
        if name not in known:
            hint = nearest(name, known) or f" (known: {', '.join(known)})"
            raise _CannotCheck(console.safe(f"unknown provider {name!r} in {config.source}{hint}"))
    chosen = tuple(provider for provider in config.providers if not names or provider.name in names)
    return replace(config, providers=chosen)


def parser() -> console.Parser:
    """The command's arguments."""
    made = console.Parser(
        prog="moonshim doctor",
        usage="moonshim doctor [OPTIONS]",
        description="Send a test request with a tool to each provider. The report says whether the\n"
        "key, URL, model and dialect work, what had to be repaired, and how to fix each\n"
        "problem.",
        epilog=_EPILOG,
    )
    what = made.add_argument_group("what to check")
    suggest(
        what.add_argument("--config", metavar="FILE", help="configuration file (default: same as `moonshim serve`)"),
        "files",
    )
    what.add_argument(
        "--provider",
        metavar="NAME",
        nargs="+",
        action="extend",
        default=[],
        help="check only these providers (default: all)",
    )
    what.add_argument("--model", metavar="NAME", help="model to test (default: the first model of each provider)")
    what.add_argument(
        "--judge",
        metavar="MODEL",
        nargs="?",
        const="",
        help="instead, ask the judge of `[claude_code]`, or this model, about 200 calls that are never run",
    )
    how = made.add_argument_group("requests and output")
    how.add_argument(
        "--timeout",
        metavar="S",
        type=_seconds,
        default=_DEFAULT_SECONDS,
        help=f"maximum seconds for a response to start, and to end (default: {_DEFAULT_SECONDS:.0f})",
    )
    how.add_argument(
        "--user-agent", metavar="TEXT", type=_header, help="send this User-Agent (default: one that the host accepts)"
    )
    how.add_argument("--json", action="store_true", help="print one line of JSON for each provider, or for each call")
    return made


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= _MOST_SECONDS:
        raise ArgumentTypeError(f"expected a number of seconds above 0, at most {_MOST_SECONDS:.0f}, got {text[:40]!r}")
    return number


def _header(text: str) -> str:
    if not (text.isascii() and text.isprintable() and text.strip()):
        raise ArgumentTypeError("expected printable ASCII characters, as in an HTTP header")
    return text
