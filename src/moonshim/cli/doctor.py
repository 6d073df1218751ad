"""`moonshim doctor`: a configuration -> a line for each provider: whether it works, and what to do if it does not."""

from __future__ import annotations

import asyncio
import os
import sys
from argparse import ArgumentTypeError
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
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
    from moonshim.doctor.checkup import Checkup, Finding

__all__ = ["ADVICE", "advice", "main", "parser", "verdict"]

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
ADVICE: Final = {
    "cannot_prepare": "`moonshim config check` shows the chain and the cells",
    "unreachable": "is the address right, and the server up? HTTPS_PROXY, HTTP_PROXY and NO_PROXY count too",
    "nobody_here": "start the server, or put its port right in api_base_url",
    "other_scheme": "it answers under the other scheme: {hint}",
    "redirect": "if that is where it has moved to, put that address into api_base_url",
    "no_api": "look up the address of the API in the documentation of the host: api_base_url",
    "other_path": "it answers here: {hint}",
    "other_dialect": "{hint}",
    "authentication": "it must be a key of this very host, whole and not expired; "
    "api.moonshot.ai, api.moonshot.cn, api.kimi.com and api.kimi.ai do not take each other's",
    "permission": "the host knows the key, but does not let it do this: look at its account, or take another key",
    "agent_not_known": "this host answers only agents that it knows. The gateway passes on the User-Agent of your "
    "client: check with that (--user-agent)",
    "quota": "the key is known, but its account has nothing left: charge it, or take another key",
    "no_key": "set the variable that it is looked for in, or name one with api_key_env",
    "no_client_key": "this host is sent the client's own key, which is not known here: set api_key_env for the check",
    "one_of_the_keys": "take it out, or put it right: conversations that come to it fail",
    "no_such_model": "look up what the host calls it, or check another one (--model)",
    "other_models": "the host has these: {hint}",
    "model_not_served": "the host lists it, but does not serve it like this: look at its words, and at the account",
    "markers_not_read": "the chain of this model leaves them alone: set manualToolParsing, or leave `transformer` out",
    "cut_off": "try again, or check a model that thinks less (--model)",
    "not_called": "try again; if it stays so, the host does not offer tools to this model "
    "(vLLM: --enable-auto-tool-choice --tool-call-parser kimi_k2)",
    "called_otherwise": "try again; if it stays so, take another model, or this one at another host",
    "silent": "try again; --timeout lets it take longer",
    "page_before_it": "this is a proxy or a firewall before the host, not the host",
    "rate_limit": "the key has asked too often: try again in {hint} seconds",
    "overloaded": "the host has no room at the moment: try again in {hint} seconds",
    "timeout": "the host gave up on its own: try again later",
    "server": "the host is at fault: try again later, and tell its operator if it stays so",
    "request_refused": "if another server runs there than its address suggests, say so with `host` (docs/hosts.md)",
    "body_refused": "`{hint}` of your configuration is refused: remove it, or set a value that the host takes",
    "result_refused": "an agent would meet this at every call: tell the operator of the host",
    "empty_answer": "try again; `retry_empty_answer = true` lets the gateway do so",
}
"""By what is wrong: what to do next."""
_MARKS: Final = {"right": ("✓", "green"), "wrong": ("✗", "red"), "unknown": ("·", "dim")}


class _CannotCheck(Exception):
    """There is nothing to check; the message is for the person."""


def main(argv: Sequence[str]) -> int:
    """Run `moonshim doctor`; its exit code."""
    given = parser().parse_args(list(argv))
    if find_spec("aiohttp") is None:
        console.say(
            "moonshim doctor: asking hosts needs more than the engine does:\n"
            '  pip install "moonshim[gateway]"   or, in a checkout: pip install ".[gateway]"'
        )
        return console.BAD_USAGE
    try:
        config = _chosen(_configuration(given.config), given.provider)
    except _CannotCheck as error:
        console.say(f"moonshim doctor: {error}")
        return console.BAD_USAGE
    return asyncio.run(_check(config, given))


async def _check(config: Config, given: Any) -> int:
    from moonshim.doctor.checkup import check_providers

    right, waiting = True, [provider.name for provider in config.providers]
    progress = _Progress()
    progress.show(waiting)
    paint = console.Paint(sys.stdout)
    async for checkup in check_providers(config, model=given.model, seconds=given.timeout, user_agent=given.user_agent):
        right = right and checkup.right
        waiting.pop(0)
        progress.clear()
        print(_as_json(checkup) if given.json else "\n".join(_report(checkup, paint)), flush=True)
        progress.show(waiting)
    for warning in () if given.json else warnings_of(config):
        print(paint.yellow("! ") + console.safe(warning), flush=True)
    return console.DONE if right else console.FAILED


class _Progress:
    """Who is still being asked: on a terminal only, on a line that is taken away again."""

    def __init__(self) -> None:
        self._on = sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    def show(self, names: Sequence[str]) -> None:
        if self._on and names:
            columns = console.width_of(sys.stderr)
            self._write(console.fitted(console.safe(f"asking {', '.join(names)} …"), columns - 1))

    def clear(self) -> None:
        if self._on:
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


# -- what is shown -----------------------------------------------------------------------------------------------


def verdict(checkup: Checkup) -> str:
    """All of it in one line."""
    wrong = next((finding for finding in checkup.findings if finding.state == "wrong"), None)
    if wrong is not None:
        return f"{wrong.topic}: {wrong.said}"
    words = _mended(checkup.repairs)
    return "key, address, model and dialect are right; " + (f"mended: {words}" if words else "nothing to mend")


def advice(finding: Finding) -> str | None:
    """What to do next."""
    if finding.cause is None:
        return None
    return ADVICE[finding.cause].format(hint="a few" if finding.hint is None else finding.hint)


def _as_json(checkup: Checkup) -> str:
    import msgspec

    fields = msgspec.to_builtins(checkup)
    for said, finding in zip(fields["findings"], checkup.findings, strict=True):
        said["advice"] = advice(finding)
    return json_for_terminal(msgspec.json.encode(fields | {"verdict": verdict(checkup)}).decode())


def _report(checkup: Checkup, paint: console.Paint) -> Iterator[str]:
    """The verdict in one line, and below it what it is made of."""
    mark, colour = _MARKS["right" if checkup.right else "wrong"]
    name = paint.bold(console.safe(f"{checkup.provider}/{checkup.model}"))
    yield f"{getattr(paint, colour)(mark)} {name}  {console.safe(verdict(checkup))}"
    for finding in checkup.findings:
        mark, colour = _MARKS[finding.state]
        yield f"  {getattr(paint, colour)(mark)} {paint.dim(finding.topic.ljust(9))} {console.safe(finding.said)}"
        if (then := advice(finding)) is not None:
            yield f"    {' ' * 9} {paint.yellow('→')} {console.safe(then)}"
    for title, said in _numbers(checkup):
        yield f"    {paint.dim(title.ljust(9))} {console.safe(said)}"


def _numbers(checkup: Checkup) -> Iterator[tuple[str, str]]:
    if checkup.call is not None:
        yield "mended", _mended(checkup.repairs) or "nothing"
    if checkup.changes:
        yield "adapted", " ".join(f"{rule}×{count}" for rule, count in checkup.changes.items())
    said = [] if checkup.first_token_seconds is None else [f"first token {checkup.first_token_seconds:.2f} s"]
    said.append(f"all {checkup.seconds:.2f} s")
    if checkup.input_tokens is not None or checkup.output_tokens is not None:
        counts = ("?" if number is None else f"{number:,}" for number in (checkup.input_tokens, checkup.output_tokens))
        said.append("{} tokens in, {} out".format(*counts))
    yield "took", ", ".join(said)


def _mended(repairs: Mapping[str, int]) -> str:
    """The rules in the words that people know them by.

    >>> _mended({"marker_call": 1, "id_missing": 2, "id_invalid": 1})
    'markers×1 ids×3'
    """
    from moonshim.gateway.observe.log_lines import WORDS

    words: Counter[str] = Counter()
    for rule, count in repairs.items():
        words[WORDS.get(rule, rule)] += count
    return " ".join(f"{word}×{count}" for word, count in words.items())


# -- what is asked for -------------------------------------------------------------------------------------------


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


def _chosen(config: Config, names: Sequence[str]) -> Config:
    """The configuration with only those providers that were named."""
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
    """What the command understands."""
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
