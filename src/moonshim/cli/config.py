"""`moonshim config`: a configuration file -> a summary, or every problem in it; and an example."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from moonshim.cli import console
from moonshim.cli.suggest import suggest
from moonshim.cli.trust import review_lines
from moonshim.config import (
    EXAMPLE,
    Config,
    ConfigError,
    FoundConfig,
    GatewayKey,
    ProviderConfig,
    Routes,
    TransformerUse,
    WebSearch,
    config_from_environment,
    endpoint_of,
    load_config,
    load_found,
    look_for_config,
    warnings_of,
    without_secrets,
)
from moonshim.config.missing import FIRST_STEP, describe_missing
from moonshim.config.trust import NotTrusted, TrustRecordError, take_snapshot
from moonshim.engine.hosts.detect import profile_for
from moonshim.gateway.process.settings import HOST, PORT, ServeSettings, startup_problems
from moonshim.http_server.sockets import BindError
from moonshim.usage.budgets import budget_warnings, describe_budget
from moonshim.usage.ledger import books_warnings

__all__ = ["main", "parser"]

_EPILOG: Final = """\
examples:
  moonshim config example > moonshim.toml
  moonshim config check
  moonshim config check ~/.claude-code-router/config.json

exit codes:
  0  the configuration is valid; its meaning and warnings are shown
  1  the configuration is invalid; every problem is listed
  2  invalid command line, or the record of trusted files cannot be read"""
_CHECK_ABOUT: Final = """\
Load a configuration the way `moonshim serve` does and show what it means, or
list every problem in it. Nothing is sent to a host.

Without FILE, check what `moonshim serve` would load: MOONSHIM_CONFIG, then
moonshim.toml or moonshim.json in this folder, then in your configuration
folder, then the API keys in the environment. A file in this folder that you do
not trust (see `moonshim trust --help`) is only parsed: the check shows what it
would do, and runs none of its code."""
_EXAMPLE_ABOUT: Final = "Print a commented configuration in TOML to start from."

_ACTIONS: Final = ("check", "example")
_SHOWN_MODELS: Final = 12


def parser() -> console.Parser:
    """The command's arguments."""
    made = console.Parser(
        prog="moonshim config",
        usage="moonshim config check [FILE]\n       moonshim config example",
        description="Check a configuration, or print an example to start from.",
        epilog=_EPILOG,
    )
    actions = made.add_subparsers(
        title="actions", prog="moonshim config", dest="action", metavar="ACTION", required=True
    )
    check = actions.add_parser(
        "check",
        help="check a configuration and show what it means",
        usage="moonshim config check [FILE]",
        description=_CHECK_ABOUT,
    )
    suggest(
        check.add_argument(
            "file", metavar="FILE", nargs="?", help="file to check (default: what `moonshim serve` would load)"
        ),
        "files",
    )
    actions.add_parser(
        "example",
        help="print an example configuration",
        usage="moonshim config example > moonshim.toml",
        description=_EXAMPLE_ABOUT,
    )
    return made


def main(argv: Sequence[str]) -> int:
    """Run `moonshim config`; return the exit code."""
    command = parser()
    if argv and argv[0] not in _ACTIONS and _is_file_name(argv[0]):
        command.error(f"unknown action; to check a file, run `moonshim config check {argv[0]}`")
    given = command.parse_args(list(argv))
    if given.action == "example":
        print(EXAMPLE, end="", flush=True)
        return console.DONE
    return _check(given.file)


def _is_file_name(text: str) -> bool:
    return not text.startswith("-") and (bool(Path(text).suffix) or Path(text).exists())


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
            f"moonshim config: {console.safe_lines(describe_missing(os.environ, 'the FILE argument'))}\n{FIRST_STEP}"
        )
        return console.FAILED
    if problems := _startup_problems(config, found):
        return _refuse([f"{config.source}: {problem}" for problem in problems], warnings_of(config))
    print("\n".join(_report(config, console.Paint(sys.stdout), in_file=found is not None)), flush=True)
    return console.DONE


def _show_untrusted(path: Path, problem: str) -> int:
    """An untrusted file is only parsed: plug-ins, variables and other files are not accessed."""
    try:
        load_config(path, None)
    except ConfigError as error:
        return _refuse([*error.problems, problem], error.notes)
    review = take_snapshot(path, os.environ).review
    lines = review_lines(review, console.Paint(sys.stdout))
    print(
        "\n".join([f"{console.safe(str(path))} is not trusted yet. This is what it would do:", *lines, ""]), flush=True
    )
    return _refuse([problem], [])


def _startup_problems(config: Config, found: FoundConfig | None) -> list[str]:
    """Why `moonshim serve` would refuse it although it can be loaded."""
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


def _report(config: Config, paint: console.Paint, *, in_file: bool) -> Iterator[str]:
    warnings = [*warnings_of(config), *budget_warnings(config), *books_warnings(config, os.environ)]
    count = len(config.providers)
    counts = (
        f"{count} provider{'s' if count != 1 else ''}, "
        f"{len(warnings) or 'no'} warning{'s' if len(warnings) != 1 else ''}"
    )
    if in_file:
        yield f"{paint.green('✓')} {paint.bold(console.safe(config.source))} is valid: {counts}"
    else:
        yield f"{paint.green('✓')} configured from the environment: {counts} (keys not tested; run `moonshim doctor`)"
    for provider in config.providers:
        yield ""
        yield paint.bold(console.safe(provider.name)) + "  " + console.safe(without_secrets(endpoint_of(provider)))
        yield from _rows(_describe_provider(provider), paint, {"key": _describe_keys(provider, paint)})
    yield from _section("aliases", [(name, ", then ".join(targets)) for name, targets in config.aliases.items()], paint)
    yield from _section("routes", _describe_routes(config.routes), paint)
    yield from _section("gateway keys", [(key.name, _describe_gateway_key(key)) for key in config.keys], paint)
    yield from _section("gateway", _describe_gateway(config), paint)
    if warnings:
        yield ""
        yield paint.bold("warnings")
        for warning in warnings:
            yield "  " + paint.yellow("! ") + console.safe(warning)


def _describe_routes(routes: Routes) -> list[tuple[str, str]]:
    about = {
        "long_context": f" (over {routes.long_context_tokens} tokens)",
        "background": f" (for {', '.join(routes.background_models)})",
    }
    return [(name, ", then ".join(targets) + about.get(name, "")) for name, targets in routes.targets.items()]


def _describe_provider(provider: ProviderConfig) -> list[tuple[str, str]]:
    model = provider.models[0] if provider.models else ""
    row = profile_for(model=model, host=provider.host, base_url=provider.api_base_url, upstream=provider.dialect)
    found = "set by `host`" if provider.host else "detected from the URL"
    if row.host == "generic" and row.generation != "other" and not provider.host:
        found += '; set it if you know which server it is: host = "vllm"'
    shown = ", ".join(provider.models[:_SHOWN_MODELS])
    more = len(provider.models) - _SHOWN_MODELS
    rows = [
        ("dialect", provider.dialect),
        ("host", f"{row.host} ({found})"),
        ("key", ""),
        ("models", (shown + (f" and {more} more" if more > 0 else "")) or f"any ({provider.name}/NAME)"),
        ("transformers", _chain(provider.transformers)),
    ]
    rows += [(f"transformers for {name}", _chain(chain)) for name, chain in provider.model_transformers.items()]
    if provider.overrides:
        rows.append(("overrides", ", ".join(provider.overrides)))
    rows += [(f"overrides for {name}", ", ".join(fields)) for name, fields in provider.model_overrides.items()]
    if provider.body:
        rows.append(("body", ", ".join(provider.body)))
    rows += [(f"body for {name}", ", ".join(fields)) for name, fields in provider.model_bodies.items()]
    if provider.headers:
        rows.append(("headers", ", ".join(provider.headers)))
    if provider.proxy:
        rows.append(("proxy", without_secrets(provider.proxy)))
    timeouts = provider.timeouts
    rows.append(
        (
            "timeouts",
            (
                f"connect {timeouts.connect:g} s, first byte {timeouts.first_byte:g} s, "
                f"between bytes {timeouts.between_bytes:g} s"
            ),
        )
    )
    return rows


def _describe_keys(provider: ProviderConfig, paint: console.Paint) -> str:
    """Where its API keys come from; never the keys themselves."""
    if not provider.key_sources:
        return "from the client" if provider.passes_client_key else "none"
    return ", ".join(
        f"{paint.green('set')} ({'from ' * source.place.startswith('the ')}{console.safe(source.place)})"
        if source.found
        else f"{paint.red('missing')} ({console.safe(source.place)})"
        for source in provider.key_sources
    )


def _chain(uses: tuple[TransformerUse, ...] | None) -> str:
    if uses is None:
        return "default (all repairs for Kimi models)"
    return ", then ".join(use.name for use in uses) or "none"


def _describe_gateway_key(key: GatewayKey) -> str:
    limits = {
        "requests/min": key.requests_per_minute,
        "tokens/min": key.tokens_per_minute,
        "concurrent streams": key.concurrent_streams,
    }
    parts = [", ".join(key.models) or "all models"]
    parts += [f"{number:,} {unit}" for unit, number in limits.items() if number is not None]
    parts += map(describe_budget, key.budgets)
    if key.rights:
        parts.append(f"rights: {', '.join(key.rights)}")
    if key.expires is not None:
        parts.append(f"expires {key.expires:%Y-%m-%d %H:%M %Z}")
    return "; ".join(parts)


def _describe_gateway(config: Config) -> list[tuple[str, str]]:
    generated = "generated at each start" if config.store == "memory:" else "generated, and saved in the store"
    rows = [
        ("address", f"{config.host or HOST}, port {config.port or PORT}"),
        ("store", without_secrets(config.store)),
        ("secret", "set" if config.secret is not None else generated),
    ]
    if config.web_search is not None:
        rows.append(("search", _describe_search(config.web_search)))
    if config.claude_code.judge_model is not None:
        rows.append(("judge", f"{config.claude_code.judge_model}, {config.claude_code.judge_seconds:g} s"))
    if config.workers:
        rows.append(("workers", str(config.workers)))
    if config.log_dir:
        rows.append(("logs", config.log_dir))
    return rows


def _describe_search(search: WebSearch) -> str:
    """Who searches. The arguments of a command may have secrets."""
    place = search.command[0] if search.command else search.base_url
    return search.provider + (f" ({without_secrets(place)})" if place else "")


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
