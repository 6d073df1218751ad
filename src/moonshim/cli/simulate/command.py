"""`moonshim simulate`: arguments -> a Kimi API that runs on this machine, or a sentence that says what is wrong."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from moonshim.cli import console, numbers
from moonshim.errors import MoonshimError

if TYPE_CHECKING:
    from moonshim.simulator.settings import SimulatorSettings

__all__ = ["ACTIONS", "main", "parser"]

HOST: Final = "127.0.0.1"
PORT: Final = 8485
MOST: Final = 1_000_000
ACTIONS: Final = {
    "render": ("moonshim.cli.simulate.render", "show the prompt that a model would see for a request"),
    "faults": ("moonshim.cli.simulate.tables", "list all faults, and where each was seen"),
    "scenarios": ("moonshim.cli.simulate.tables", "list what the scripted model can play"),
    "models": ("moonshim.cli.simulate.tables", "list the models"),
    "behaviours": ("moonshim.cli.simulate.tables", "list the hosts it can emulate"),
    "assumptions": ("moonshim.cli.simulate.tables", "list rules that the real API may have"),
}
"""Subcommands: the module, which has `main(argv) -> int`, and what it does."""

_NEEDED: Final = ("uvicorn", "httptools", "structlog")
_USAGE: Final = """moonshim simulate [--as HOST] [--fault NAME,… ...] [--chaos RATE]
                         [--seed N] [--scenario NAME|FILE]
                         [--model FILE.py:NAME] [--assume [NAME,…]]
                         [--tokens-per-second N] [--first-token-ms N]
                         [--api-key-env VAR] [--config FILE] [--host ADDRESS]
                         [--port PORT] [--log-level LEVEL]
       moonshim simulate ACTION [ARGUMENT ...]"""
_EPILOG: Final = """\
examples:
  moonshim simulate                    Moonshot's API as it should be;
                                       clients ask http://127.0.0.1:8485/v1
  moonshim simulate --as selfhost      its model sees ids as they are sent
  moonshim simulate --fault markers-in-content  every call leaks into the text
  moonshim simulate --chaos 0.1 --seed 7        one answer in ten gets a fault,
                                                the same ones in every run
  moonshim simulate --scenario five-rounds      five rounds of calls, an answer

What goes wrong can be asked for in each request. Behind the model's name:
  kimi-k2.5+markers-in-reasoning+split-bytes  two faults at once
  kimi-k2.5+overloaded*1                      only when it is asked for first
  kimi-k2.5+cut-off@3                         only in round 3 of a conversation
  kimi-k2.5+cut-off@3*1                       both
  kimi-k3+five-rounds                         a scenario
or in a header, where the name cannot be changed:
  x-moonshim-simulate: cut-off@3*1, five-rounds

Its log, and GET /simulator/requests, tell what it was asked, and what was wrong
with that. A gateway before it, in one command:
  moonshim serve --demo

exit codes:
  0  stopped by a signal (SIGTERM, SIGINT)
  1  it could not start: the port is in use
  2  the command was not understood, or names what there is not"""


class _CannotSimulate(Exception):
    """The simulator cannot run as requested; the message is for the user."""


def main(argv: Sequence[str]) -> int:
    """Run `moonshim simulate`; return the exit code."""
    if argv and argv[0] == "natures":
        console.print_note("moonshim simulate: `natures` is called `behaviours` now")
        argv = ["behaviours", *argv[1:]]
    if argv and argv[0] in ACTIONS:
        module = import_module(ACTIONS[argv[0]][0])
        arguments = list(argv[1:]) if argv[0] == "render" else list(argv)
        code: int = module.main(arguments)
        return code
    command = parser()
    if argv and not argv[0].startswith("-"):
        command.error(f"invalid choice: {argv[0]!r} (choose from {', '.join(ACTIONS)})")
    given = command.parse_args(list(argv))
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        console.print_note(
            f"moonshim simulate: the simulator needs more than the engine does ({', '.join(missing)}):\n"
            '  pip install "moonshim[simulator]"   or, in a checkout: pip install ".[simulator]"'
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
            logs.event("public_address", level="warning", host=given.host, problem="anybody may ask it")
        port = sockets[0].getsockname()[1]
        return run(lambda: open_simulator(settings), sockets, ready=lambda: _announce(given.host, port, settings))
    finally:
        logs.close()


def _announce(host: str, port: int, settings: SimulatorSettings) -> None:
    """The one line on standard output. It is written once the port accepts connections."""
    from moonshim.http_server.sockets import url_of

    paint = console.Paint(sys.stdout)
    chance = f"by chance in {settings.chaos * 100:.3g}% of all answers (seed {settings.seed})" if settings.chaos else ""
    faults = ", ".join([*settings.faults, *([chance] if chance else [])]) or "none"
    playing = f"model: {settings.model}" if settings.model else f"scenario: {settings.scenario}"
    parts = [
        f"moonshim simulator on {paint.bold(url_of(host, port))}",
        f"as {settings.behaviour}",
        console.safe(playing),
        f"faults: {console.safe(faults)}",
        "NO MODEL: what it says is made up",
    ]
    try:
        print(" · ".join(parts), flush=True)
    except (OSError, ValueError, AttributeError):  # no reader is no reason not to serve
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
        "api_key": _key(given.api_key_env),
    }
    _check("--as", given.behaviour, named.behaviour_problem)
    for fault in changes["faults"] or ():
        _check("--fault", fault, named.fault_problem)
    for assumption in changes["assume"] or ():
        _check("--assume", assumption, named.assumption_problem)
    _check("--scenario", given.scenario, named.scenario_problem)
    _check("--model", given.model, named.model_problem)
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
        raise _CannotSimulate(f"--api-key-env: the variable {variable[:80]} is not set")
    return key


def _is_outside(host: str) -> bool:
    """Whether other machines can reach it. They may: it holds no secrets, and spends no money."""
    from moonshim.http_server.sockets import is_loopback

    return not is_loopback(host)


def parser() -> console.Parser:
    """The command's arguments."""
    made = console.Parser(
        prog="moonshim simulate",
        usage=_USAGE,
        description="A Kimi API that runs anywhere: Chat Completions, Anthropic Messages and\n"
        "/v1/models, from K2 to K3.1, as strict as the real one about what it is sent,\n"
        "and able to go wrong in every way that hosts do. A script takes the place of\n"
        "the model: it calls the tools that it is offered, and answers from their\n"
        "results. One line says when it is ready.",
        epilog="actions:\n"
        + "\n".join(f"  {name:<13}{about}" for name, (_, about) in ACTIONS.items())
        + f"\n\n{_EPILOG}",
    )
    add = made.add_argument
    add("--as", dest="behaviour", metavar="HOST", help="the host to emulate: moonshot (default), selfhost, vllm, …")
    add("--fault", metavar="NAME,…", action="append", help="what goes wrong in every answer; may be given again")
    add("--chaos", metavar="RATE", type=_share, help="the share of answers that get a fault by chance: 0.1")
    add("--seed", metavar="N", type=_seed, help="which ones: the same for the same number (default: 0)")
    add("--scenario", metavar="NAME|FILE", help="what the script plays (default: one-call)")
    add("--model", metavar="FILE.py:NAME", help="a model of your own in Python, instead of the script")
    add(
        "--assume",
        metavar="NAME,…",
        nargs="?",
        const="",
        help="rules that the real API may have, unproven; without names, all",
    )
    add("--tokens-per-second", metavar="N", type=_speed, help="how fast it writes (default: as fast as it is read)")
    add("--first-token-ms", metavar="N", type=_pause, help="how long it thinks before the first token (default: 0)")
    add("--api-key-env", metavar="VAR", help="the variable with the only key that is accepted (default: any key)")
    add("--config", metavar="FILE", help="the same in a file of TOML; what is said here counts more")
    add("--host", metavar="ADDRESS", default=HOST, help=f"where to listen (default: {HOST})")
    add("--port", metavar="PORT", type=numbers.port, default=PORT, help=f"default: {PORT}; 0: any that is free")
    add(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="how much is logged (default: info)",
    )
    return made


def _share(text: str) -> float:
    return numbers.number(text, "a share of all responses", 0, 1)


def _seed(text: str) -> int:
    return numbers.integer(text, "a seed", 0, 2**63 - 1)


def _speed(text: str) -> float:
    return numbers.number(text, "a number of tokens", 0, MOST)


def _pause(text: str) -> float:
    return numbers.number(text, "a number of milliseconds", 0, MOST)
