"""`moonshim serve`: arguments -> a running gateway, or a sentence that says what is missing."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from moonshim.cli import console, numbers
from moonshim.errors import MoonshimError

if TYPE_CHECKING:
    from moonshim.config import Config, FoundConfig
    from moonshim.gateway.process.settings import ServeSettings

__all__ = ["main", "parser"]

MOST_WORKERS: Final = 256
LONGEST_GRACE: Final = 86_400
_NEEDED: Final = ("starlette", "uvicorn", "httptools", "aiohttp", "structlog", "prometheus_client")
_DEMO: Final = "moonshim.cli.demo_service:open_demo"
_USAGE: Final = """moonshim serve [--config FILE] [--host ADDRESS] [--port PORT] [--workers N]
                      [--log-dir DIR] [--log-level LEVEL] [--graceful-seconds S] [--demo]"""
_EPILOG: Final = """\
signals:
  SIGTERM, SIGINT  nothing new is taken, running answers finish, exit code 0; a second one ends at once
  SIGHUP           the configuration is loaded again (a change of the file is noticed without it);
                   when its terminal was closed: as SIGTERM, unless it was started with nohup

exit codes:
  0  stopped by a signal
  1  it could not start: the port is in use, the file of the store cannot be opened
  2  the command was not understood, or the configuration cannot be served"""


class _CannotServe(Exception):
    """The gateway cannot be served as requested; the message is for the user."""


def main(argv: Sequence[str]) -> int:
    """Run `moonshim serve`; return the exit code."""
    command = parser()
    given = command.parse_args(list(argv))
    if given.demo and given.config is not None:
        command.error("--demo and --config cannot both be given: the demo reads no configuration")
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        console.print_note(
            f"moonshim serve: the gateway needs more than the engine does ({', '.join(missing)}):\n"
            '  pip install "moonshim[gateway]"   or, in a checkout: pip install ".[gateway]"'
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
        return _serve(settings, config)
    except MoonshimError as error:
        console.print_note(f"moonshim serve: {console.safe(str(error))}")
        return console.FAILED


def _serve(settings: ServeSettings, config: Config) -> int:
    from moonshim.gateway.observe import logs
    from moonshim.gateway.process.settings import service_opener
    from moonshim.http_server.sockets import bind

    logs.configure(settings.log_level)
    try:
        if settings.workers > 1:
            from moonshim.gateway.process.workers import supervise

            return supervise(settings, lambda port: _announce(settings, config, port))
        from moonshim.http_server.server import run

        sockets = bind(settings.host, settings.port)
        port = sockets[0].getsockname()[1]
        return run(
            service_opener(settings),
            sockets,
            graceful_seconds=settings.graceful_seconds,
            ready=lambda: _announce(settings, config, port),
        )
    finally:
        logs.close()


def _announce(settings: ServeSettings, config: Config, port: int) -> None:
    """The one line on standard output. It is written once the port accepts connections."""
    from moonshim.http_server.sockets import url_of

    paint = console.Paint(sys.stdout)
    providers = ", ".join(provider.name for provider in config.providers)
    if config.source == "--demo":
        providers += " (the simulator, NO MODEL: what it says is made up)"
    parts = [
        f"moonshim {_version()} on {paint.bold(url_of(settings.host, port))}",
        f"providers: {providers}",
        "/v1/models lists the models, docs/operating.md tells the rest",
    ]
    if settings.workers > 1:
        parts.insert(1, f"{settings.workers} workers")
    try:
        print(" · ".join(parts), flush=True)
    except (OSError, ValueError, AttributeError):  # no reader is no reason not to serve
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
                f"log_dir {console.safe(settings.log_dir)}: this folder cannot be created: {error.strerror}"
            ) from None
    return settings, config


def _configuration(given: Any) -> tuple[FoundConfig | None, Config]:
    """Where the configuration is, if in a file, and the configuration."""
    from moonshim.config import LOOKED_FOR, ConfigError, config_from_environment, load_found, look_for_config
    from moonshim.config.files.find import user_folders

    if given.demo:
        from moonshim.cli.demo_service import demo_config

        return None, demo_config("http://127.0.0.1", os.environ)
    try:
        found = look_for_config(given.config, os.environ, Path.cwd())
        if found is not None:
            found = replace(found, path=found.path.absolute())
            return found, load_found(found, os.environ)
        config = config_from_environment(os.environ)
    except ConfigError as error:
        lines = "\n".join(f"  {console.safe(problem)}" for problem in error.problems)
        raise _CannotServe(f"the configuration cannot be used:\n{lines}") from error
    if config is None:
        folders = "".join(
            f", {console.safe(str(folder))}/moonshim.toml or .json" for folder in user_folders(os.environ)
        )
        raise _CannotServe(
            "nothing is configured. Looked for:\n"
            f"  a file: --config FILE, MOONSHIM_CONFIG, ./moonshim.toml or .json{folders}\n"
            f"  a key in the environment: {', '.join(LOOKED_FOR)}\n"
            "`moonshim config example` prints a file to begin with; --demo serves the simulator instead, no model"
        )
    return None, config


def parser() -> console.Parser:
    """The command's arguments; `deploy/` is checked against them too."""
    from moonshim.gateway.process.settings import GRACEFUL_SECONDS, HOST, PORT

    made = console.Parser(
        prog="moonshim serve",
        usage=_USAGE,
        description="Serve one address for every client: OpenAI Chat and Responses, and Anthropic Messages,\n"
        "over every host that is configured. One line says when it is ready. What is not said here is as\n"
        "the configuration says under [gateway].",
        epilog=_EPILOG,
    )
    made.add_argument(
        "--config", metavar="FILE", help="the configuration; if not given: MOONSHIM_CONFIG, ./moonshim.toml or .json, …"
    )
    made.add_argument("--host", metavar="ADDRESS", help=f"where to listen (default: {HOST})")
    made.add_argument("--port", metavar="PORT", type=numbers.port, help=f"default: {PORT}; 0: any that is free")
    made.add_argument("--workers", metavar="N", type=_workers, help="processes that share the port (default: 1)")
    made.add_argument("--log-dir", metavar="DIR", help="keep the raw bytes of every stream here, for `moonshim mend`")
    made.add_argument(
        "--log-level", choices=("debug", "info", "warning", "error"), help="how much is logged (default: info)"
    )
    made.add_argument(
        "--graceful-seconds",
        metavar="S",
        type=_seconds,
        default=GRACEFUL_SECONDS,
        help=f"how long running answers may take after SIGTERM (default: {GRACEFUL_SECONDS:.0f})",
    )
    made.add_argument("--demo", action="store_true", help="serve the simulator, no model; configuration is not read")
    return made


def _workers(text: str) -> int:
    return numbers.integer(text, "how many workers there are", 1, MOST_WORKERS)


def _seconds(text: str) -> float:
    return numbers.number(text, "how many seconds", 0, LONGEST_GRACE)
