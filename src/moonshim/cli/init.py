"""`moonshim init`: answers, flags or another gateway's file -> a configuration file, tested before it is saved."""

from __future__ import annotations

import asyncio
import os
import sys
from argparse import ArgumentTypeError
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from moonshim.cli import console
from moonshim.cli.suggest import suggest
from moonshim.config import ConfigError, new_config_path, parse_config
from moonshim.config.files.find import user_folders
from moonshim.config.problems import nearest
from moonshim.config.tables.providers import address_fault
from moonshim.engine.hosts.table import HOSTS
from moonshim.setup.answers import HOSTS_BY_NAME, SMALL, KeyChoice, ProviderChoice, SetupAnswers, document_of
from moonshim.setup.document import Document, render
from moonshim.setup.questions import Cancelled, CheckResult, Dialogue, is_variable_name
from moonshim.setup.save import EXISTS, save

if TYPE_CHECKING:
    from moonshim.doctor.findings import ProviderReport
    from moonshim.setup.account import Account

__all__ = ["main", "parser"]

TOOLS: Final[dict[str, Any]] = {"claude-code-router": "~/.claude-code-router/config.json", "litellm": None}
"""Whose files can be converted, and where they usually are."""
_NOT_TOML: Final = (".json", ".jsonc", ".json5", ".yaml", ".yml")
_COMMENT: Final = """\
Written by `moonshim init`. Check it with `moonshim config check`, test it with `moonshim doctor`.
Every setting: `moonshim config example`."""
_USAGE: Final = """moonshim init [OPTION ...]
       moonshim init (--host NAME | --url URL) [--key-env VAR] [--model MODEL]
                     [--alias NAME=MODEL ...] [--yes]
       moonshim init --from TOOL [FILE] [--output FILE]"""
_EPILOG: Final = f"""\
Without options, you are asked for the host, the API key and the models. A test
request with a tool call shows whether they work, then the file is saved where
`moonshim serve` finds it. Only you can read it.

examples:
  moonshim init
  moonshim init --host moonshot --key-env MOONSHOT_API_KEY --yes
  moonshim init --url http://localhost:8000/v1 --host vllm --model kimi-k2.6
  moonshim init --host openrouter --yes --alias fast=kimi-k2.6
  AWS_REGION=us-east-1 moonshim init --host bedrock --yes
  moonshim init --from claude-code-router
  moonshim init --from litellm config.yaml --output moonshim.toml

hosts:
{fill(", ".join(HOSTS_BY_NAME), 78, initial_indent="  ", subsequent_indent="  ")}

An API key is best left in an environment variable: --key-env names it, and the
file contains no key. To store a key in the file, type it when you are asked;
there is no option for it, because other users can see command lines.

--from converts a file of claude-code-router 2 or LiteLLM, and lists what became
of each of its settings.

exit codes:
  0    saved
  1    not saved: the test failed, the file exists, or it cannot be written
  2    invalid command line, or a file that cannot be converted
  130  interrupted; nothing was saved"""


class _Stop(Exception):
    """Nothing is saved; the message says why."""

    def __init__(self, message: str, code: int = console.FAILED) -> None:
        super().__init__(message)
        self.code = code


def parser() -> console.Parser:
    """The command's arguments."""
    made = console.Parser(
        prog="moonshim init",
        usage=_USAGE,
        description="Create a configuration file: choose a host, a key and models, test them, save.",
        epilog=_EPILOG,
    )
    suggest(
        made.add_argument("--host", metavar="NAME", help="a known host (see below); with --url, its host profile"),
        names=lambda: dict.fromkeys((*HOSTS_BY_NAME, *HOSTS)),
    )
    made.add_argument("--url", type=_url, help="base URL of another server, such as vLLM or SGLang")
    suggest(
        made.add_argument(
            "--key-env",
            metavar="VAR",
            type=_variable,
            help="environment variable that has the API key (default with --url: no key)",
        ),
        "variables",
    )
    made.add_argument("--model", type=_model, help="model for Claude Code and Codex (default: depends on the host)")
    made.add_argument("--small-model", metavar="MODEL", type=_model, help=f"shorthand for --alias '{SMALL}=MODEL'")
    made.add_argument(
        "--alias",
        metavar="NAME=MODEL",
        type=_alias,
        action="append",
        default=[],
        help="another name for a model; NAME can be a pattern such as gpt-*; repeatable",
    )
    suggest(
        made.add_argument(
            "--from",
            dest="source",
            metavar=("TOOL", "FILE"),
            nargs="+",
            help="convert a file of claude-code-router or litellm",
        ),
        "files",
        names=lambda: TOOLS,
    )
    suggest(
        made.add_argument("--output", metavar="FILE", help="where to save (default: your configuration folder)"),
        "files",
    )
    made.add_argument("--yes", action="store_true", help="ask nothing: use the defaults for what is not given")
    made.add_argument("--no-check", action="store_true", help="send no test request")
    made.add_argument("--force", action="store_true", help="replace an existing file; a backup is saved")
    return made


def main(argv: Sequence[str]) -> int:
    """Run `moonshim init`; return the exit code."""
    command = parser()
    given = command.parse_args(list(argv))
    _check_combination(command, given)
    try:
        return _run(given, os.environ)
    except (KeyboardInterrupt, EOFError, Cancelled) as stopped:
        if not isinstance(stopped, Cancelled):
            console.print_note("")  # the cursor is after a prompt
        console.print_note("moonshim init: cancelled; nothing was saved")
        return console.INTERRUPTED if isinstance(stopped, KeyboardInterrupt) else console.FAILED
    except _Stop as stopped:
        console.print_note(f"moonshim init: {stopped}")
        return stopped.code
    except ConfigError as error:
        for problem in error.problems:
            console.print_note(f"moonshim init: {console.safe(problem)}")
        return console.BAD_USAGE


def _check_combination(command: console.Parser, given: Any) -> None:
    if given.host is not None and given.url is None and given.host not in HOSTS_BY_NAME:
        self_hosted = "; a self-hosted server also needs --url"
        hint = self_hosted if given.host in HOSTS else nearest(given.host, HOSTS_BY_NAME)
        command.error(f"--host: expected one of {', '.join(HOSTS_BY_NAME)}, got {given.host!r}{hint}")
    if given.host is not None and given.url is not None and given.host not in HOSTS:
        command.error(
            f"--host: with --url, expected one of {', '.join(HOSTS)}, got {given.host!r}{nearest(given.host, HOSTS)}"
        )
    if given.source is not None:
        if given.source[0] not in TOOLS or len(given.source) > 2:
            command.error(f"--from: expected TOOL [FILE], where TOOL is {' or '.join(TOOLS)}")
        if len(given.source) == 1 and TOOLS[given.source[0]] is None:
            command.error(f"--from {given.source[0]}: the path of its file is missing")
        for option in ("host", "url", "key_env", "model", "small_model"):
            if getattr(given, option) is not None:
                command.error(f"--{option.replace('_', '-')} cannot be combined with --from")
    if given.output is not None and given.output.lower().endswith(_NOT_TOML):
        command.error("--output: the file is written as TOML, so its name must end in .toml")


def _run(given: Any, environ: Mapping[str, str]) -> int:
    path = new_config_path(given.output, environ, Path.cwd())
    terminal = _Terminal()
    asks = not given.yes and terminal.is_interactive
    dialogue = Dialogue(
        terminal,
        environ,
        lambda answers: _in_region(answers, environ, ask=not given.no_check),
        lambda answers: None if given.no_check else _check(answers, environ),
    )
    replaces = given.force
    if path.exists() and not replaces:
        shown = console.safe(str(path))
        if not asks:
            raise _Stop(f"{shown}: {EXISTS}")
        replaces = dialogue.confirm(f"{shown} exists. Replace it? A backup is saved.")
        if not replaces:
            raise Cancelled
    if given.source is not None:
        document, variables = _convert(given, environ)
    else:
        answers = _answers(given, environ, dialogue if asks else None)
        document, variables = document_of(answers), [answers.key.variable] if answers.key.variable else []
    text = render(document, comment=_COMMENT)
    parse_config(text, suffix=".toml", environ=None, source="the new configuration", folder=path.parent)
    try:
        backup = save(path, text, replace=replaces)
    except ConfigError as error:
        raise _Stop(console.safe(str(error))) from None
    for line in _next_steps(path, backup, [name for name in variables if not environ.get(name)], environ):
        print(line, flush=True)
    return console.DONE


# -- flags and questions ---------------------------------------------------------------------------------------------


def _answers(given: Any, environ: Mapping[str, str], dialogue: Dialogue | None) -> SetupAnswers:
    provider = None
    if given.url is not None:
        provider = ProviderChoice(url=given.url, profile=given.host)
    elif given.host is not None:
        provider = ProviderChoice.of_known(given.host, environ)
    key = KeyChoice(given.key_env) if given.key_env is not None else None
    aliases = dict(given.alias) | ({SMALL: given.small_model} if given.small_model else {})
    if dialogue is not None:
        return dialogue.run(provider, key, given.model, aliases)
    return _without_questions(given, environ, provider, key, aliases)


def _without_questions(
    given: Any,
    environ: Mapping[str, str],
    provider: ProviderChoice | None,
    key: KeyChoice | None,
    aliases: dict[str, str],
) -> SetupAnswers:
    if provider is None:
        raise _missing("--host NAME or --url URL", None)
    known = provider.known
    if missing := provider.missing_parts:
        (name, what), *_ = missing.items()
        raise _Stop(f"--host {provider.name}: set {name} to the {what}, or pass --url URL", console.BAD_USAGE)
    if key is None and known is not None and not given.yes:
        raise _missing("--key-env VAR", f"{known.variable}")
    if key is None:
        key = KeyChoice(known.variable) if known is not None else KeyChoice()
    default = known.default if known is not None else None
    if given.model is None and not (given.yes and (default or (known is None and not given.no_check))):
        raise _missing("--model MODEL", default)
    model = given.model or default
    answers = SetupAnswers(provider=provider, key=key, model=model, aliases=aliases)
    answers = _in_region(answers, environ, ask=not given.no_check)
    if given.no_check:
        return answers
    if key.variable is not None and not environ.get(key.variable, "").strip():
        raise _Stop(
            f"environment variable {key.variable} is not set, so the key cannot be tested. Set it, or pass --no-check"
        )
    result = _check(answers, environ)
    if result is not None and not result.right:
        raise _Stop("nothing was saved, because the test failed. Pass --no-check to save without a test")
    model = model or (result.model if result is not None else None)
    if model is None:
        raise _missing("--model MODEL", None)
    return replace(answers, model=model)


def _missing(flag: str, default: str | None) -> _Stop:
    instead = f", or --yes to use {default}" if default else ""
    return _Stop(f"there is no terminal to ask on: pass {flag}{instead}", console.BAD_USAGE)


class _Terminal:
    """Questions on standard output, answers from standard input."""

    @property
    def is_interactive(self) -> bool:
        return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))

    def show(self, text: str) -> None:
        print("\n".join(console.safe(line) for line in text.split("\n")), flush=True)

    def ask(self, prompt: str) -> str:
        # Line editing; and without it, `input` can miss a Ctrl-C that arrives just before it waits.
        with suppress(ImportError):  # Windows has none
            import readline  # noqa: F401
        return input(console.safe(prompt))

    def ask_hidden(self, prompt: str) -> str:
        from getpass import getpass

        return getpass(prompt)


# -- the test --------------------------------------------------------------------------------------------------------


def _in_region(answers: SetupAnswers, environ: Mapping[str, str], *, ask: bool) -> SetupAnswers:
    """The answers with the region that the key belongs to, as far as it is known or can be found out."""
    regions, key = answers.provider.regions, answers.key.value(environ)
    if not regions or key is None:
        return answers
    if ask and find_spec("aiohappyeyeballs") is not None:
        from moonshim.gateway.outbound.regions import region_of as find
    else:
        from moonshim.config.regions import remembered_region as find
    found = find(key, regions, environ)
    if found is None:
        return answers
    print(f"The key belongs to {found}.", flush=True)
    return replace(answers, provider=replace(answers.provider, url=found, regions=()))


def _check(answers: SetupAnswers, environ: Mapping[str, str]) -> CheckResult | None:
    """Send a test request, and print what it found. None: it cannot be sent."""
    variable = answers.key.variable
    if variable is not None and not environ.get(variable, "").strip():
        print("The key is not tested, because the variable is not set.", flush=True)
        return None
    if find_spec("aiohappyeyeballs") is None:
        console.print_note('The key is not tested: this needs `pip install ".[gateway]"` in a checkout of Moonshim.')
        return None
    document = document_of(answers)
    model = None if answers.model is None else answers.provider.model_id(answers.model)
    print(f"Testing {console.safe(answers.provider.name)} with a tool call …", flush=True)
    report = asyncio.run(_report(document, model, environ))
    for line in _report_lines(report):
        print(line, flush=True)
    return CheckResult(report.right, report.model)


async def _report(document: Document, model: str | None, environ: Mapping[str, str]) -> ProviderReport:
    from moonshim.doctor.check import check_providers

    config = parse_config(render(document), suffix=".toml", environ=environ, source="the new configuration")
    (report,) = [report async for report in check_providers(config, model=model)]
    return report


def _report_lines(report: ProviderReport) -> list[str]:
    from moonshim.doctor.report import advice, verdict

    paint = console.Paint(sys.stdout)
    mark = paint.green("✓") if report.right else paint.red("✗")
    lines = [f"{mark} {console.safe(f'{report.provider}/{report.model}')}  {console.safe(verdict(report))}"]
    hints = [advice(finding, of_doctor=False) for finding in report.findings if finding.state == "wrong"]
    return [*lines, *(f"  {paint.yellow('→')} {console.safe(hint)}" for hint in hints if hint is not None)]


# -- conversion and the end ------------------------------------------------------------------------------------------


def _convert(given: Any, environ: Mapping[str, str]) -> tuple[Document, list[str]]:
    """The converted document, and the variables that have its keys. Prints what became of every setting."""
    from moonshim.config.files.source_file import read_text

    tool = given.source[0]
    named: str = given.source[1] if len(given.source) == 2 else TOOLS[tool]
    try:
        path = Path(named).expanduser()
    except RuntimeError:
        raise _Stop(f"{named}: unknown user in a path with `~`; write the full path", console.BAD_USAGE) from None
    text = read_text(path)
    if tool == "litellm":
        from moonshim.setup.from_litellm import convert_litellm

        converted = convert_litellm(text, source=str(path), environ=environ)
    else:
        from moonshim.setup.from_router import convert_router

        folder = path.absolute().parent
        converted = convert_router(text, source=str(path), folder=folder, environ=environ)
    document, aliases = converted.document, converted.document["aliases"]
    # An alias cannot point to another one: it gets the same targets.
    document["aliases"] = aliases | {name: aliases.get(model, model) for name, model in given.alias}
    for line in _account_lines(converted.account):
        print(line, flush=True)
    return document, converted.variables


def _account_lines(account: Account) -> list[str]:
    from moonshim.setup.account import OUTCOMES

    paint = console.Paint(sys.stdout)
    lines: list[str] = []
    for outcome, title in OUTCOMES.items():
        entries = account.lines(outcome)
        width = min(44, max((len(path) for path, _ in entries), default=0))
        lines += ["", paint.bold(f"{title}:")] if entries else []
        arrow = "→ " if outcome == "taken" else ""
        for path, detail in entries:
            lines += _account_line(console.safe(path), width, f"{arrow}{console.safe(detail)}")
    return lines


def _account_line(path: str, width: int, detail: str) -> list[str]:
    """One line; on a terminal that is too narrow for it, the detail is below the path."""
    line = f"  {path.ljust(width)}  {detail}"
    columns = console.width_of(sys.stdout)
    if not sys.stdout.isatty() or len(line) <= columns:
        return [line]
    return [f"  {path}", fill(detail, columns - 1, initial_indent="      ", subsequent_indent="      ")]


def _next_steps(path: Path, backup: Path | None, unset: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    paint = console.Paint(sys.stdout)
    shown = console.safe(str(path))
    lines = ["", f"{paint.green('✓')} Saved {shown}"]
    if backup is not None:
        lines.append(f"  The previous file is now {console.safe(str(backup))}")
    # Elsewhere, it is found only by its name; in the current folder, it would also need `moonshim trust`.
    is_found = new_config_path(None, environ, Path.cwd()) == path
    config = "" if is_found else f" --config {shown}"
    nearer = [name for name in ("moonshim.toml", "moonshim.json") if is_found and Path(name).exists()]
    if nearer and path.parent in user_folders(environ) and path.parent != Path.cwd():
        lines.append(f"  In this folder, ./{nearer[0]} is used instead of it.")
    lines += ["", paint.bold("Next:")]
    lines += [f"  export {name}=…" for name in unset]
    lines.append(f"  moonshim serve{config}")
    lines.append(f"  moonshim launch claude{config}")
    return lines


# -- options ---------------------------------------------------------------------------------------------------------


def _url(text: str) -> str:
    if wrong := address_fault(text.strip()):
        raise ArgumentTypeError(wrong)
    return text.strip()


def _variable(text: str) -> str:
    if not is_variable_name(text):
        raise ArgumentTypeError("expected the name of an environment variable, not the key itself")
    return text


def _model(text: str) -> str:
    if not text.strip():
        raise ArgumentTypeError("expected the name of a model")
    return text.strip()


def _alias(text: str) -> tuple[str, str]:
    name, _, model = text.partition("=")
    if not name.strip() or not model.strip():
        raise ArgumentTypeError(f"expected NAME=MODEL, got {text!r}")
    return name.strip(), model.strip()
