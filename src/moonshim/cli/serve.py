"""`moonshim serve`: arguments -> a running gateway, or a message that says what is missing."""

from __future__ import annotations

import argparse
import os
import socket
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from moonshim.cli import console, numbers
from moonshim.cli.suggest import suggest
from moonshim.errors import MoonshimError

if TYPE_CHECKING:
    from moonshim.config import Config, FoundConfig
    from moonshim.gateway.process.settings import ServeSettings

__all__ = ["main", "parser"]

MOST_WORKERS: Final = 256
LONGEST_GRACE: Final = 86_400
_NEEDED: Final = ("starlette", "uvicorn", "httptools", "aiohappyeyeballs", "prometheus_client")
_DEMO: Final = "moonshim.cli.demo_service:open_demo"
_EPILOG: Final = """\
examples:
  moonshim serve --demo
  moonshim serve --config moonshim.toml --port 9000
  MOONSHOT_API_KEY=sk-... moonshim serve

signals:
  SIGTERM, SIGINT  stop accepting requests, finish running responses and exit
                   with code 0; a second signal exits immediately
  SIGHUP           reload the configuration (file changes are also detected
                   without it); if its terminal was closed, same as SIGTERM
                   unless the gateway was started with nohup

exit codes:
  0  stopped by a signal
  1  cannot start: the port is in use, or the store file cannot be opened
  2  invalid command line, or a configuration that cannot be served"""


class _CannotServe(Exception):
    """The gateway cannot be served as requested; the message is for the user."""


def main(argv: Sequence[str]) -> int:
    """Run `moonshim serve`; return the exit code."""
    command = parser()
    given = command.parse_args(list(argv))
    if given.demo and given.config is not None:
        command.error("--demo cannot be combined with --config: the demo does not read a configuration")
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        console.print_note(
            f"moonshim serve: the gateway needs packages that are not installed ({', '.join(missing)}):\n"
            '  pip install ".[gateway]"   (in a checkout of Moonshim)'
        )
        return console.BAD_USAGE
    try:
        settings, config = _settings(given)
    except _CannotServe as error:
        console.print_note(f"moonshim serve: {error}")
        return console.BAD_USAGE
    except MoonshimError as error:
        console.print_note(f"moonshim serve: {console.safe(str(error))}")
        return console.BAD_USAGE
    try:
        return _serve(settings, config, given.lifeline)
    except MoonshimError as error:
        console.print_note(f"moonshim serve: {console.safe(str(error))}")
        return console.FAILED


def _serve(settings: ServeSettings, config: Config, lifeline: int | None) -> int:
    from moonshim.gateway.observe import logs
    from moonshim.gateway.process.settings import service_opener
    from moonshim.http_server.sockets import bind

    logs.configure(settings.log_level)
    try:
        with ExitStack() as stack:

            def ready(port: int) -> None:
                # Not earlier: a signal during the start would leave the run file behind.
                stack.enter_context(_announced(settings, config, port, temporary=lifeline is not None))
                _announce(settings, config, port)

            if settings.workers > 1:
                from moonshim.gateway.process.workers import supervise

                return supervise(settings, ready)
            from moonshim.http_server.server import run

            sockets = bind(settings.host, settings.port)
            port = sockets[0].getsockname()[1]
            return run(
                service_opener(settings),
                sockets,
                graceful_seconds=settings.graceful_seconds,
                ready=lambda: ready(port),
                lifeline=None if lifeline is None else socket.socket(fileno=lifeline),
            )
    finally:
        logs.close()


def _announced(
    settings: ServeSettings, config: Config, port: int, *, temporary: bool = False
) -> AbstractContextManager[None]:
    """While it runs, `moonshim launch` of the same user finds this gateway."""
    from moonshim.config.environment import LOCAL_KEY
    from moonshim.gateway.process.run_file import RunningGateway, announce_run
    from moonshim.http_server.sockets import reachable_host, url_of

    gateway = RunningGateway(
        pid=os.getpid(),
        url=url_of(reachable_host(settings.host), port),
        demo=config.source == "--demo",
        source=config.source,
        key=os.environ.get(LOCAL_KEY) or None,
        needs_key=config.needs_keys,
        temporary=temporary,
    )
    return announce_run(gateway, os.environ)


def _announce(settings: ServeSettings, config: Config, port: int) -> None:
    """The one line on standard output. It is written once the port accepts connections."""
    from moonshim.http_server.sockets import url_of

    paint = console.Paint(sys.stdout)
    providers = ", ".join(provider.name for provider in config.providers)
    if config.source == "--demo":
        providers += " (simulator, no model: responses are made up)"
    parts = [
        f"moonshim {_version()} on {paint.bold(url_of(settings.host, port))}",
        f"providers: {providers}",
        "models: /v1/models",
    ]
    if settings.workers > 1:
        parts.insert(1, f"{settings.workers} workers")
    try:
        print(" · ".join(parts), flush=True)
    except (OSError, ValueError, AttributeError):  # serve even if standard output is closed
        return


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("moonshim")
    except PackageNotFoundError:
        return "(from a folder)"


# -- options ---------------------------------------------------------------------------------------------------------


def _settings(given: Any) -> tuple[ServeSettings, Config]:
    from moonshim.gateway.process.settings import ServeSettings, startup_problems

    found, config = _configuration(given)
    settings = ServeSettings.of(
        config,
        factory=_DEMO if given.demo else None,
        host=given.host,
        port=given.port,
        workers=given.workers,
        config=None if found is None else str(found.path),
        needs_trust=None if found is None else found.needs_trust,
        log_dir=given.log_dir,
        log_level=given.log_level,
        graceful_seconds=given.graceful_seconds,
    )
    if problems := startup_problems(config, settings):
        raise _CannotServe("\n".join(map(console.safe, problems)))
    if settings.log_dir is not None:
        try:
            Path(settings.log_dir).mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise _CannotServe(
                f"log_dir {console.safe(settings.log_dir)}: cannot create this folder: {error.strerror}"
            ) from None
    return settings, config


def _configuration(given: Any) -> tuple[FoundConfig | None, Config]:
    """Where the configuration is, if in a file, and the configuration."""
    from moonshim.config import ConfigError, config_from_environment, load_found, look_for_config
    from moonshim.config.missing import FIRST_STEP, describe_missing
    from moonshim.config.trust import NotTrusted

    if given.demo:
        from moonshim.cli.demo_service import demo_config

        return None, demo_config("http://127.0.0.1", os.environ)
    try:
        found = look_for_config(given.config, os.environ, Path.cwd())
        if found is not None:
            found = replace(found, path=found.path.absolute())
            return found, load_found(found, os.environ)
        config = config_from_environment(os.environ)
    except NotTrusted as error:
        raise _CannotServe(console.safe(str(error))) from error
    except ConfigError as error:
        lines = "\n".join(f"  {console.safe(problem)}" for problem in error.problems)
        raise _CannotServe(f"invalid configuration:\n{lines}") from error
    if config is None:
        raise _CannotServe(
            f"{console.safe_lines(describe_missing(os.environ))}\n"
            f"{FIRST_STEP}.\nTo try it out, add `--demo` to the command (simulator, no model)"
        )
    return None, config


def parser() -> console.Parser:
    """The command's arguments; `deploy/` is checked against them too."""
    from moonshim.gateway.process.settings import GRACEFUL_SECONDS, HOST, PORT

    made = console.Parser(
        prog="moonshim serve",
        usage="moonshim serve [OPTIONS]",
        description="Run the gateway. Clients use OpenAI Chat Completions, OpenAI Responses or\n"
        "Anthropic Messages; the gateway translates to each configured host and repairs\n"
        "the responses. It prints one line when it is ready. Options override the\n"
        "[gateway] table of the configuration.",
        epilog=_EPILOG,
    )
    what = made.add_argument_group("what to serve")
    suggest(
        what.add_argument(
            "--config",
            metavar="FILE",
            help="configuration file (default: MOONSHIM_CONFIG, then moonshim.toml or .json in this folder or your "
            "configuration folder, then API keys in the environment)",
        ),
        "files",
    )
    what.add_argument("--demo", action="store_true", help="serve the simulator: no model, no keys, no configuration")
    network = made.add_argument_group("network and processes")
    network.add_argument("--host", metavar="ADDRESS", help=f"address to listen on (default: {HOST})")
    network.add_argument("--port", metavar="PORT", type=numbers.port, help=f"port (default: {PORT}; 0: any free port)")
    network.add_argument(
        "--workers", metavar="N", type=_workers, help="number of processes that share the port (default: 1)"
    )
    network.add_argument(
        "--graceful-seconds",
        metavar="S",
        type=_seconds,
        default=GRACEFUL_SECONDS,
        help=f"seconds for running responses to finish after SIGTERM (default: {GRACEFUL_SECONDS:.0f})",
    )
    logging = made.add_argument_group("logging")
    logging.add_argument("--log-level", choices=("debug", "info", "warning", "error"), help="log level (default: info)")
    suggest(
        logging.add_argument(
            "--log-dir", metavar="DIR", help="save the raw bytes of every stream in this folder, for `moonshim mend`"
        ),
        "folders",
    )
    # A descriptor of the launcher: the gateway ends when it is closed.
    made.add_argument("--lifeline", type=int, help=argparse.SUPPRESS)
    return made


def _workers(text: str) -> int:
    return numbers.integer(text, 1, MOST_WORKERS)


def _seconds(text: str) -> float:
    return numbers.number(text, 0, LONGEST_GRACE)
