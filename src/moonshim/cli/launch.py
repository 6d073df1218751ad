"""`moonshim launch`: arguments -> a client running against a gateway, or the list of clients."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from moonshim.cli import console
from moonshim.cli.suggest import suggest
from moonshim.errors import MoonshimError

if TYPE_CHECKING:
    from moonshim.launch.gateway import GatewayAccess
    from moonshim.launch.plan import Client, ClientPlan, LaunchContext
    from moonshim.launch.run import LaunchOptions

__all__ = ["main", "parser"]

NOT_INSTALLED: Final = 127
_EPILOG: Final = """\
examples:
  moonshim launch                       choose a client (in a pipe: list them)
  moonshim launch claude                start Claude Code on Kimi
  moonshim launch claude --demo         the same on the simulator, without a key
  moonshim launch codex --model kimi-k3.1-pro -- exec "fix the tests"
  moonshim launch codex --print-env     print the settings, start nothing

It uses the gateway that you started last (`moonshim serve`, not a demo), or
starts one for as long as the client runs; with --config, always its own.
Your own settings of the client do not change: Moonshim passes everything in
environment variables, flags and temporary files.

exit codes: those of the client, and
    1  there is no gateway, or the host refuses the test request
    2  invalid arguments
  127  the client is not installed"""


def main(argv: Sequence[str]) -> int:
    """Run `moonshim launch`; return the exit code."""
    own, client_arguments = _split(argv)
    command = parser()
    given = command.parse_args(own)
    from moonshim.launch.clients import CLIENTS
    from moonshim.launch.foreground import exit_like
    from moonshim.launch.run import LaunchOptions, NotInstalled, launch

    if given.client is None:
        chosen = _choose_client(CLIENTS)
        if chosen is None:
            return console.DONE
        own, given.client = [chosen, *own], chosen
    client = CLIENTS[given.client]
    options = LaunchOptions(
        model=given.model,
        small_model=given.small_model if client.has_small_model else None,
        provider=given.provider,
        config=given.config,
        demo=given.demo,
        judge=given.judge,
        check=not given.no_check,
        keep_gateway=given.keep_gateway,
        command=tuple(own),
    )
    if given.judge is not None and client.name != "claude":
        command.error("--judge is about the auto mode of Claude Code: use it with `moonshim launch claude`")
    if given.small_model and not client.has_small_model:
        console.print_note(f"moonshim launch: {client.title} has no small model, so --small-model has no effect.")
    try:
        if given.print_env:
            _print_environment(client, options, show_keys=given.show_keys)
            return console.DONE
        return exit_like(launch(client, options, client_arguments, os.environ, _note))
    except NotInstalled as error:
        console.print_note(f"moonshim launch: {error}")
        return NOT_INSTALLED
    except MoonshimError as error:
        console.print_note(f"moonshim launch: {console.safe_lines(str(error))}")
        return console.FAILED


def _note(text: str) -> None:
    console.print_note(f"moonshim launch: {console.safe(text)}")


def _split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """What is for the launcher, and what comes after `--` and is for the client."""
    arguments = list(argv)
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:at], arguments[at + 1 :]


def parser() -> console.Parser:
    """The command's arguments."""
    from moonshim.launch.clients import CLIENTS, client_name

    made = console.Parser(
        prog="moonshim launch",
        usage="moonshim launch [CLIENT] [OPTION ...] [-- ARGUMENT ...]",
        description="Start a client that uses Kimi models through Moonshim.",
        epilog=_EPILOG,
    )
    made.add_argument(
        "client",
        metavar="CLIENT",
        nargs="?",
        type=client_name,
        choices=list(CLIENTS),
        help=", ".join(CLIENTS) + " (default: choose one from a list)",
    )
    made.add_argument("--model", metavar="NAME", help="the model (default: the one that `claude-*` is an alias of)")
    made.add_argument(
        "--small-model",
        metavar="NAME",
        help="the model for titles and summaries (default: that of the alias `claude-*haiku*`, else --model); "
        f"{_without_small_model(CLIENTS.values())} have none",
    )
    made.add_argument("--provider", metavar="NAME", help="the provider whose models to use")
    made.add_argument("--demo", action="store_true", help="use the simulator: no key, no model")
    made.add_argument(
        "--judge",
        metavar="MODEL",
        nargs="?",
        const="",
        help="in Claude Code's auto mode, this model decides what may run (default: --model); starts a gateway",
    )
    suggest(
        made.add_argument("--config", metavar="FILE", help="start a gateway with this configuration"),
        "files",
    )
    made.add_argument("--no-check", action="store_true", help="do not send a test request before the client starts")
    made.add_argument("--keep-gateway", action="store_true", help="leave the gateway running for the next launch")
    made.add_argument("--print-env", action="store_true", help="print what would be set, with keys masked")
    made.add_argument("--show-keys", action="store_true", help="do not mask keys in --print-env")
    return made


def _without_small_model(clients: Iterable[Client]) -> str:
    return " and ".join(client.name for client in clients if not client.has_small_model)


def _choose_client(clients: Mapping[str, Client]) -> str | None:
    """The client that the user chooses on a terminal; None if there is no terminal, or no choice."""
    listed = sorted(clients.values(), key=lambda client: shutil.which(client.program) is None)
    is_asked = sys.stdin is not None and sys.stdin.isatty() and sys.stdout is not None and sys.stdout.isatty()
    paint, width = console.Paint(None), max(map(len, clients))
    for number, client in enumerate(listed, 1):
        found = shutil.which(client.program)
        state = "installed" if found else f"not installed: {client.install}"
        start = f"{number:>3}  " if is_asked else "  "
        print(f"{start}{paint.bold(client.name.ljust(width))}  {client.title.ljust(14)} {state}")
    if not is_asked:
        print("\nmoonshim launch CLIENT starts one; moonshim launch --help shows the options.", flush=True)
        return None
    names = {str(number): client.name for number, client in enumerate(listed, 1)} | {name: name for name in clients}
    while True:
        try:
            answer = input("\nWhich one? (number or name, Enter to leave) ").strip()
        except (EOFError, KeyboardInterrupt):
            print()
            return None
        if not answer or answer in names:
            return names.get(answer)
        print(f"There is no {console.safe(answer)} in this list.")


def _print_environment(client: Client, options: LaunchOptions, *, show_keys: bool) -> None:
    from moonshim.launch.run import prepared

    with prepared(client, options, os.environ) as (context, plan, gateway):
        for line in _environment_lines(client, context, plan, _temporary(gateway, plan), show_keys=show_keys):
            print(line, flush=True)


def _temporary(gateway: GatewayAccess, plan: ClientPlan) -> list[str]:
    """What of the settings exists only while a client runs, as a comment."""
    things = [] if gateway.was_running else ["the gateway"]
    things += ["the settings file" if len(plan.files) == 1 else "the settings files"] if plan.files else []
    exist = "exist" if len(things) > 1 or len(plan.files) > 1 else "exists"
    return [f"# To read, not to run: {' and '.join(things)} {exist} only while a client runs."] if things else []


def _environment_lines(
    client: Client, context: LaunchContext, plan: ClientPlan, comments: Sequence[str] = (), *, show_keys: bool
) -> list[str]:
    def shown(text: str) -> str:
        return text if show_keys else text.replace(context.key, "***") if context.key != "none" else text

    lines = [] if client.has_small_model else [f"# {client.title} has no small model: it uses {context.model.id} only."]
    lines += comments
    lines += [f"unset {name}" for name in plan.unset]
    lines += [f"export {name}={shlex.quote(shown(value))}" for name, value in plan.env.items()]
    for name, text in plan.files.items():
        lines += [f"# {context.folder / name}:", *(f"#   {line}" for line in shown(text).splitlines())]
    return [*lines, shlex.join([client.program, *plan.arguments])]
