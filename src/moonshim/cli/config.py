"""`moonshim config`: a configuration file -> a summary, or everything that is wrong with it; and an example."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from moonshim.cli import console
from moonshim.cli.trust import review_lines
from moonshim.config import (
    EXAMPLE,
    LOOKED_FOR,
    Config,
    ConfigError,
    FoundConfig,
    GatewayKey,
    ProviderConfig,
    TransformerUse,
    config_from_environment,
    endpoint_of,
    load_config,
    load_found,
    look_for_config,
    warnings_of,
    without_secrets,
)
from moonshim.config.trust import NotTrusted, TrustRecordError, take_snapshot
from moonshim.engine.hosts.detect import profile_for
from moonshim.gateway.process.settings import HOST, PORT, ServeSettings, startup_problems
from moonshim.http_server.sockets import BindError

__all__ = ["main"]

_USAGE: Final = "moonshim config check [FILE]\n       moonshim config example"
_EPILOG: Final = """\
examples:
  moonshim config example > moonshim.toml
  moonshim config check
  moonshim config check ~/.claude-code-router/config.json

Without FILE it is what `moonshim serve` would read: MOONSHIM_CONFIG, moonshim.toml or moonshim.json here, the same in
your configuration folder, or else the usual environment variables. A file here that is not trusted (see `moonshim
trust --help`) is only read: what it would do is shown, and nothing of it is run.

exit codes:
  0  the configuration can be used; what it means is shown, and what may surprise
  1  it cannot; every problem is told
  2  the command was not understood, or what you trust cannot be looked up"""

_ACTIONS: Final = ("check", "example")
_SHOWN_MODELS: Final = 12


def main(argv: Sequence[str]) -> int:
    """Run `moonshim config`; return the exit code."""
    parser = console.Parser(
        prog="moonshim config",
        usage=_USAGE,
        description="Check a configuration, or print one to begin with.",
        epilog=_EPILOG,
    )
    parser.add_argument("action", choices=_ACTIONS, type=_action, help="check a file, or print an example")
    parser.add_argument("file", metavar="FILE", nargs="?", help="the file to check")
    given = parser.parse_args(list(argv))
    if given.action == "example":
        if given.file is not None:
            parser.error("example prints to standard output: moonshim config example > moonshim.toml")
        print(EXAMPLE, end="", flush=True)
        return console.DONE
    return _check(given.file)


def _action(text: str) -> str:
    if text not in _ACTIONS and (Path(text).suffix or Path(text).exists()):
        raise argparse.ArgumentTypeError(f"a file is checked by `moonshim config check {text}`")
    return text


def _check(file: str | None) -> int:
    try:
        found = look_for_config(file, os.environ, Path.cwd())
        config = config_from_environment(os.environ) if found is None else load_found(found, os.environ)
    except NotTrusted as error:
        assert found is not None
        return _show_untrusted(found.path, str(error))
    except TrustRecordError as error:
        _refuse(error.problems, error.notes)
        return console.BAD_USAGE
    except ConfigError as error:
        return _refuse(error.problems, error.notes)
    if config is None:
        console.print_note(
            "moonshim config: there is no configuration: no moonshim.toml or moonshim.json here or in your "
            f"configuration folder, and none of {', '.join(LOOKED_FOR)} in the environment. "
            "`moonshim config example` prints one to begin with"
        )
        return console.FAILED
    if problems := _startup_problems(config, found):
        return _refuse([f"{config.source}: {problem}" for problem in problems], warnings_of(config))
    print("\n".join(_report(config, console.Paint(sys.stdout))), flush=True)
    return console.DONE


def _show_untrusted(path: Path, problem: str) -> int:
    """An untrusted file is only parsed: plug-ins, variables and other files are not accessed."""
    try:
        load_config(path, None)
    except ConfigError as error:
        return _refuse([*error.problems, problem], error.notes)
    review = take_snapshot(path, os.environ).review
    lines = review_lines(review, console.Paint(sys.stdout))
    print("\n".join([f"{console.safe(str(path))} would do this:", *lines, ""]), flush=True)
    return _refuse([problem], [])


def _startup_problems(config: Config, found: FoundConfig | None) -> list[str]:
    """Why `moonshim serve` would refuse it, although it can be loaded."""
    given = {} if found is None else {"config": str(found.path), "needs_trust": found.needs_trust}
    try:
        return startup_problems(config, ServeSettings.of(config, **given))
    except BindError as error:
        return [str(error)]


def _refuse(problems: Sequence[str], notes: Sequence[str]) -> int:
    paint = console.Paint(sys.stderr)
    for problem in problems:
        console.print_note(paint.red("✗ ") + console.safe(problem))
    for note in notes:
        console.print_note(paint.yellow("! ") + console.safe(note))
    console.print_note(f"moonshim config: {len(problems)} problem{'s' if len(problems) > 1 else ''}")
    return console.FAILED


def _report(config: Config, paint: console.Paint) -> Iterator[str]:
    warnings = warnings_of(config)
    count = len(config.providers)
    yield (
        paint.green("✓ ")
        + paint.bold(console.safe(config.source))
        + (
            f" can be used: {count} provider{'s' if count != 1 else ''}, "
            f"{len(warnings) or 'no'} warning{'s' if len(warnings) != 1 else ''}"
        )
    )
    for provider in config.providers:
        yield ""
        yield paint.bold(console.safe(provider.name)) + "  " + console.safe(without_secrets(endpoint_of(provider)))
        yield from _rows(_describe_provider(provider), paint, {"key": _describe_keys(provider, paint)})
    yield from _section("aliases", [(name, " then ".join(targets)) for name, targets in config.aliases.items()], paint)
    yield from _section("gateway keys", [(key.name, _describe_gateway_key(key)) for key in config.keys], paint)
    yield from _section("gateway", _describe_gateway(config), paint)
    if warnings:
        yield ""
        yield paint.bold("warnings")
        for warning in warnings:
            yield "  " + paint.yellow("! ") + console.safe(warning)


def _describe_provider(provider: ProviderConfig) -> list[tuple[str, str]]:
    model = provider.models[0] if provider.models else ""
    row = profile_for(model=model, host=provider.host, base_url=provider.api_base_url, upstream=provider.dialect)
    found = "named" if provider.host else "from its address"
    if row.host == "generic" and row.generation != "other" and not provider.host:
        found += '; if you know what runs there, name it: host = "vllm", …'
    shown = ", ".join(provider.models[:_SHOWN_MODELS])
    more = len(provider.models) - _SHOWN_MODELS
    rows = [
        ("dialect", provider.dialect),
        ("host row", f"{row.host} ({found})"),
        ("key", ""),
        ("models", (shown + (f" and {more} more" if more > 0 else "")) or f"any, as {provider.name}/NAME"),
        ("chain", _chain(provider.transformers)),
    ]
    rows += [(f"chain of {name}", _chain(chain)) for name, chain in provider.model_transformers.items()]
    if provider.overrides:
        rows.append(("cells", ", ".join(provider.overrides)))
    rows += [(f"cells of {name}", ", ".join(cells)) for name, cells in provider.model_overrides.items()]
    if provider.body:
        rows.append(("body", ", ".join(provider.body)))
    rows += [(f"body of {name}", ", ".join(fields)) for name, fields in provider.model_bodies.items()]
    if provider.headers:
        rows.append(("headers", ", ".join(provider.headers)))
    if provider.proxy:
        rows.append(("proxy", without_secrets(provider.proxy)))
    waits = provider.timeouts
    rows.append(("waits", f"{waits.connect:g} s, first byte {waits.first_byte:g} s, between {waits.between_bytes:g} s"))
    return rows


def _describe_keys(provider: ProviderConfig, paint: console.Paint) -> str:
    """Where its keys come from; never the keys."""
    if not provider.key_sources:
        return "the client's own" if provider.passes_client_key else "none"
    return ", ".join(
        f"{paint.green('set')} ({console.safe(source.place)})"
        if source.found
        else f"{paint.red('missing')} ({console.safe(source.place)})"
        for source in provider.key_sources
    )


def _chain(uses: tuple[TransformerUse, ...] | None) -> str:
    if uses is None:
        return "everything is mended for a Kimi"
    return " then ".join(use.name for use in uses) or "none"


def _describe_gateway_key(key: GatewayKey) -> str:
    limits = {
        "requests a minute": key.requests_per_minute,
        "tokens a minute": key.tokens_per_minute,
        "streams at once": key.concurrent_streams,
    }
    parts = [", ".join(key.models) or "all models"]
    parts += [f"{number:,} {unit}" for unit, number in limits.items() if number is not None]
    if key.expires is not None:
        parts.append(f"until {key.expires:%Y-%m-%d %H:%M %Z}")
    return "; ".join(parts)


def _describe_gateway(config: Config) -> list[tuple[str, str]]:
    rows = [
        ("address", f"{config.host or HOST}, port {config.port or PORT}"),
        ("store", without_secrets(config.store)),
        ("secret", "set" if config.secret is not None else "made once, and kept in the store"),
    ]
    if config.workers:
        rows.append(("workers", str(config.workers)))
    if config.log_dir:
        rows.append(("logs", config.log_dir))
    return rows


def _section(title: str, rows: list[tuple[str, str]], paint: console.Paint) -> Iterator[str]:
    if rows:
        yield ""
        yield paint.bold(title)
        yield from _rows(rows, paint, {})


def _rows(rows: list[tuple[str, str]], paint: console.Paint, painted: dict[str, str]) -> Iterator[str]:
    """Names and descriptions in two columns; `painted` is ready to be shown."""
    width = max(len(console.safe(name)) for name, _ in rows)
    for name, text in rows:
        yield f"  {paint.dim(console.safe(name).ljust(width))}  {painted.get(name) or console.safe(text)}"
