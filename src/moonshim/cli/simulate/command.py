"""`moonshim simulate`: arguments -> a simulated Kimi API on this machine, or a message that says what is wrong."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from moonshim.cli import console, numbers
from moonshim.cli.suggest import suggest
from moonshim.errors import MoonshimError

if TYPE_CHECKING:
    from moonshim.simulator.settings import SimulatorSettings

__all__ = ["ACTIONS", "action_parsers", "main", "parser"]

HOST: Final = "127.0.0.1"
PORT: Final = 8485
MOST: Final = 1_000_000
ACTIONS: Final = {
    "render": ("moonshim.cli.simulate.render", "show the prompt that a model would see for a request"),
    "faults": ("moonshim.cli.simulate.tables", "list the faults, and where each was observed"),
    "scenarios": ("moonshim.cli.simulate.tables", "list the scenarios of the scripted model"),
    "models": ("moonshim.cli.simulate.tables", "list the models"),
    "behaviours": ("moonshim.cli.simulate.tables", "list the hosts that it can emulate"),
    "assumptions": ("moonshim.cli.simulate.tables", "list unproven rules that the real API may have"),
}
"""Actions: the module, which has `main(argv) -> int` and `parser(action)`, and a summary."""

_NEEDED: Final = ("uvicorn", "httptools")
_EPILOG: Final = """\
examples:
  moonshim simulate                     Moonshot's API without faults; clients
                                        use http://127.0.0.1:8485/v1
  moonshim simulate --as selfhost       the model sees tool call ids as sent
  moonshim simulate --fault markers-in-content
                                        every tool call leaks into the text
  moonshim simulate --chaos 0.1 --seed 7
                                        one response in ten gets a fault, the
                                        same ones in every run
  moonshim simulate --scenario five-rounds
                                        five rounds of calls, then an answer

faults for one request, after the model name:
  kimi-k2.5+markers-in-reasoning+split-bytes  two faults
  kimi-k3+overloaded*1                        only the first request
  kimi-k3+cut-off@3                           only round 3 of a conversation
  kimi-k3+cut-off@3*1                         both
  kimi-k3+five-rounds                         a scenario
or in a header, if the client cannot change the model name:
  x-moonshim-simulate: cut-off@3*1, five-rounds

The log and GET /simulator/requests show every request and what was wrong with
it. To put a gateway in front of the simulator, run `moonshim serve --demo`.

exit codes:
  0  stopped by a signal (SIGTERM, SIGINT)
  1  cannot start: the port is in use
  2  invalid command line, or an unknown name"""


class _CannotSimulate(Exception):
    """The simulator cannot run as requested; the message is for the user."""


def main(argv: Sequence[str]) -> int:
    """Run `moonshim simulate`; return the exit code."""
    if argv and argv[0] == "natures":
        console.print_note("moonshim simulate: `natures` is now called `behaviours`")
        argv = ["behaviours", *argv[1:]]
    if argv and argv[0] in ACTIONS:
        module = import_module(ACTIONS[argv[0]][0])
        arguments = list(argv[1:]) if argv[0] == "render" else list(argv)
        code: int = module.main(arguments)
        return code
    command = parser()
    if argv and not argv[0].startswith("-"):
        command.error(f"argument ACTION: invalid choice: {argv[0]!r} (choose from {', '.join(ACTIONS)})")
    given = command.parse_args(list(argv))
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        console.print_note(
            f"moonshim simulate: the simulator needs packages that are not installed ({', '.join(missing)}):\n"
            '  pip install ".[simulator]"   (in a checkout of Moonshim)'
        )
        return console.BAD_USAGE
    try:
        settings = _settings(given)
        outside = _is_outside(given.host)
    except (_CannotSimulate, MoonshimError) as error:
        lines = [console.safe(line) for line in str(error).splitlines()]
        console.print_note("moonshim simulate: " + "\n  ".join(lines))
        return console.BAD_USAGE
    try:
        return _simulate(given, settings, outside=outside)
    except MoonshimError as error:
        console.print_note(f"moonshim simulate: {console.safe(str(error))}")
        return console.FAILED


def _simulate(given: Any, settings: SimulatorSettings, *, outside: bool) -> int:
    from moonshim.http_server import logs
    from moonshim.http_server.server import run
    from moonshim.http_server.sockets import bind
    from moonshim.simulator.http.log import human_line
    from moonshim.simulator.http.service import open_simulator

    logs.configure(given.log_level, human=human_line)
    try:
        sockets = bind(given.host, given.port)
        if outside:
            logs.event(
                "public_address", level="warning", host=given.host, problem="other machines can send requests to it"
            )
        port = sockets[0].getsockname()[1]
        return run(lambda: open_simulator(settings), sockets, ready=lambda: _announce(given.host, port, settings))
    finally:
        logs.close()


def _announce(host: str, port: int, settings: SimulatorSettings) -> None:
    """The one line on standard output. It is written once the port accepts connections."""
    from moonshim.http_server.sockets import url_of

    paint = console.Paint(sys.stdout)
    chance = f"random in {settings.chaos * 100:.3g}% of responses (seed {settings.seed})" if settings.chaos else ""
    faults = ", ".join([*settings.faults, *([chance] if chance else [])]) or "none"
    playing = f"model: {settings.model}" if settings.model else f"scenario: {settings.scenario}"
    parts = [
        f"moonshim simulator on {paint.bold(url_of(host, port))}",
        f"as {settings.behaviour}",
        console.safe(playing),
        f"faults: {console.safe(faults)}",
        "no model: responses are made up",
    ]
    try:
        print(" · ".join(parts), flush=True)
    except (OSError, ValueError, AttributeError):  # serve even if standard output is closed
        return


# -- options ---------------------------------------------------------------------------------------------------------


def _settings(given: Any) -> SimulatorSettings:
    """Settings from the command line, else from the file, else the defaults."""
    from msgspec.structs import replace

    from moonshim.simulator import names as named
    from moonshim.simulator.config_file import load_settings
    from moonshim.simulator.settings import ASSUMPTIONS, SimulatorSettings

    settings = SimulatorSettings() if given.config is None else load_settings(given.config, os.environ)
    changes: dict[str, Any] = {
        "behaviour": given.behaviour,
        "faults": _names(given.fault),
        "chaos": given.chaos,
        "seed": given.seed,
        "scenario": given.scenario,
        "model": given.model,
        "assume": tuple(ASSUMPTIONS)
        if given.assume == ""
        else _names(None if given.assume is None else [given.assume]),
        "tokens_per_second": given.tokens_per_second,
        "first_token_ms": given.first_token_ms,
        "thinking_tokens": given.thinking_tokens,
        "tokenizer": given.tokenizer,
        "api_key": _key(given.api_key_env),
    }
    _check("--as", given.behaviour, named.behaviour_problem)
    for fault in changes["faults"] or ():
        _check("--fault", fault, named.fault_problem)
    for assumption in changes["assume"] or ():
        _check("--assume", assumption, named.assumption_problem)
    _check("--scenario", given.scenario, named.scenario_problem)
    _check("--model", given.model, named.model_problem)
    _check("--tokenizer", given.tokenizer, named.tokenizer_problem)
    return replace(settings, **{name: value for name, value in changes.items() if value is not None})


def _names(lists: Sequence[str] | None) -> tuple[str, ...] | None:
    """Names from comma-separated lists; None: the option was not used."""
    if lists is None:
        return None
    return tuple(name for text in lists for one in text.split(",") if (name := one.strip()))


def _check(option: str, name: str | None, wrong: Any) -> None:
    if name is not None and (problem := wrong(name)) is not None:
        raise _CannotSimulate(f"{option}: {problem}")


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise _CannotSimulate(f"--api-key-env: environment variable {variable[:80]} is not set")
    return key


def _is_outside(host: str) -> bool:
    """Whether other machines can reach it. That is allowed: it has no secrets and costs nothing."""
    from moonshim.http_server.sockets import is_loopback

    return not is_loopback(host)


def parser() -> console.Parser:
    """The arguments of `moonshim simulate` without an action."""
    made = console.Parser(
        prog="moonshim simulate",
        usage="moonshim simulate [OPTIONS]\n       moonshim simulate ACTION [ARGUMENT ...]",
        description="Run a simulated Kimi API: Chat Completions, Anthropic Messages and /v1/models,\n"
        "for K2 to K3.1. It validates requests as strictly as the real API and can inject\n"
        "every known fault. A script takes the place of the model: it calls the tools of\n"
        "the request and answers from their results. It prints one line when it is ready.\n\n"
        "actions:\n" + "\n".join(f"  {name:<13}{about}" for name, (_, about) in ACTIONS.items()),
        epilog=_EPILOG,
    )
    _add_behaviour_options(made)
    add = made.add_argument_group("network and logging").add_argument
    add("--host", metavar="ADDRESS", default=HOST, help=f"address to listen on (default: {HOST})")
    add("--port", metavar="PORT", type=numbers.port, default=PORT, help=f"port (default: {PORT}; 0: any free port)")
    suggest(
        add(
            "--api-key-env",
            metavar="VAR",
            help="environment variable that holds the only API key to accept (default: accept any key)",
        ),
        "variables",
    )
    suggest(
        add("--config", metavar="FILE", help="TOML file with these settings; options override it"),
        "files",
    )
    add(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="log level (default: info)",
    )
    return made


def action_parsers() -> dict[str, tuple[str, console.Parser]]:
    """The summary and the parser of every action."""
    return {name: (about, import_module(module).parser(name)) for name, (module, about) in ACTIONS.items()}


def _add_behaviour_options(made: console.Parser) -> None:
    add = made.add_argument_group("behaviour").add_argument
    suggest(
        add(
            "--as",
            dest="behaviour",
            metavar="HOST",
            help="host to emulate: moonshot, selfhost, vllm, … (default: moonshot)",
        ),
        names=lambda: _registered("behaviours"),
    )
    suggest(
        add("--fault", metavar="NAME,…", action="append", help="inject these faults into every response (repeatable)"),
        names=lambda: _registered("faults"),
        in_list=True,
    )
    add("--chaos", metavar="RATE", type=_share, help="share of responses that get a random fault, such as 0.1")
    add("--seed", metavar="N", type=_seed, help="seed of --chaos; the same seed gives the same faults (default: 0)")
    suggest(
        add("--scenario", metavar="NAME|FILE", help="what the script does (default: one-call)"),
        "files",
        names=lambda: _registered("scenarios"),
    )
    suggest(
        add("--model", metavar="FILE.py:NAME", help="use your own model, written in Python, instead of the script"),
        "files",
    )
    suggest(
        add(
            "--assume",
            metavar="NAME,…",
            nargs="?",
            const="",
            help="enforce unproven rules that the real API may have (without names: all)",
        ),
        names=lambda: _registered("assumptions"),
        in_list=True,
    )
    add("--tokens-per-second", metavar="N", type=_speed, help="output speed (default: as fast as the client reads)")
    add("--first-token-ms", metavar="N", type=_pause, help="delay before the first token (default: 0)")
    add(
        "--thinking-tokens",
        metavar="N",
        type=_thinking,
        help="tokens that a thinking model thinks at least; they share max_tokens (default: what the script says)",
    )
    suggest(
        add(
            "--tokenizer",
            metavar="PATH",
            help="count tokens with this vocabulary: tiktoken.model of a Kimi model, or its folder (default: estimate)",
        ),
        "files",
    )


def _registered(table: str) -> list[str]:
    from moonshim.cli.simulate.tables import names_in

    return names_in(table)


def _share(text: str) -> float:
    return numbers.number(text, 0, 1)


def _seed(text: str) -> int:
    return numbers.integer(text, 0, 2**63 - 1)


def _speed(text: str) -> float:
    return numbers.number(text, 0, MOST)


def _thinking(text: str) -> int:
    return numbers.integer(text, 0, 2**20)


def _pause(text: str) -> float:
    return numbers.number(text, 0, MOST)
