"""A configuration file -> a `Config`, or a `ConfigError` that lists everything that is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path as File
from typing import Any

import msgspec

from moonshim.config.environment import LOOKED_FOR, config_from_environment, with_overrides
from moonshim.config.files.router_file import (
    RouterSettings,
    is_router_file,
    read_router_keys,
    router_keys,
    with_variants,
)
from moonshim.config.files.source_file import read_text, read_values
from moonshim.config.missing import unused_keys
from moonshim.config.model import Config, GatewayKey, Limits, ProviderConfig, Retries, Timeouts
from moonshim.config.problems import ConfigError, Path, Problems
from moonshim.config.tables.aliases import check_targets, has_model, read_aliases
from moonshim.config.tables.claude_code import read_claude_code
from moonshim.config.tables.gateway_keys import read_gateway_keys
from moonshim.config.tables.otel import read_otel
from moonshim.config.tables.prices import read_prices
from moonshim.config.tables.providers import Defaults, read_provider, read_timeouts
from moonshim.config.tables.routes import read_routes
from moonshim.config.tables.settings import GATEWAY_KEYS, read_budgets, read_gateway, read_numbers, read_usage
from moonshim.config.tables.table import Table
from moonshim.config.tables.web_search import read_web_search

__all__ = ["config_of_values", "load_config", "load_keys", "parse_config"]

_NO_PROVIDER = (
    "no provider is configured, and no API key of a known host is set. Add `[[providers]]` (see `moonshim config "
    f"example`), or set one of {', '.join(LOOKED_FOR)}. To try Moonshim without a key, run `moonshim serve --demo` or "
    "`moonshim chat --demo`"
)


def load_config(path: File | str, environ: Mapping[str, str] | None) -> Config:
    """Load the configuration in a file. Paths in it are relative to its folder.

    Without an `environ` it is only parsed: variables, other files and plug-ins are not accessed.
    """
    file = File(path)
    text = read_text(path)
    return parse_config(text, suffix=file.suffix, environ=environ, source=str(path), folder=file.absolute().parent)


def load_keys(path: File | str, environ: Mapping[str, str], text: str) -> tuple[GatewayKey, ...]:
    """The gateway keys in the text of a file, whether or not the rest of it can be used; claude-code-router's key is
    the first."""
    value, lines = read_values(text, suffix=File(path).suffix, source=str(path))
    if not isinstance(value, dict):
        return ()
    problems = Problems(str(path), lines)
    root = Table(value, (), problems, environ)
    keys = router_keys(root) + read_gateway_keys(root.tables("keys") or [])
    if problems.errors:
        raise ConfigError(problems.errors)
    return keys


def parse_config(
    text: str,
    *,
    suffix: str,
    environ: Mapping[str, str] | None,
    source: str,
    folder: File | None = None,
    code: Mapping[File, bytes | None] | None = None,
) -> Config:
    """Parse a configuration. `suffix` selects the format (`.toml`, `.json`); for any other it is guessed. `code` has
    the plug-in files that may be run, and their content; None: any, as they are now.

    >>> text = '[{"name": "vllm", "api_base_url": "http://localhost:8000/v1"}]'
    >>> parse_config(text, suffix=".json", environ={}, source="moonshim.json").providers
    (Provider('vllm'),)
    """
    value, lines = read_values(text, suffix=suffix, source=source)
    problems = Problems(source, lines)
    config = _Reading(problems, environ, folder, code).config(value)
    if problems.errors:
        raise ConfigError(problems.errors, problems.notes)
    return config if environ is None else with_overrides(config, environ)


def config_of_values(value: Any, problems: Problems, *, folder: File | None = None) -> Config:
    """The configuration in values that were parsed already. Nothing is accessed: no variable, no file, no plug-in."""
    return _Reading(problems, None, folder, None).config(value)


class _Reading:
    """Converts one value to a configuration."""

    def __init__(
        self,
        problems: Problems,
        environ: Mapping[str, str] | None,
        folder: File | None,
        code: Mapping[File, bytes | None] | None,
    ) -> None:
        self._problems = problems
        self._environ = environ
        self._folder = folder
        self._code = code

    def config(self, value: Any) -> Config:
        if isinstance(value, list):
            return self._only_providers([self._table(one, (place,)) for place, one in enumerate(value)])
        root = self._table(value, ())
        if not isinstance(value, dict):
            return Config()
        if "providers" not in root and "Providers" not in root and _is_provider(root):
            return self._only_providers([root])
        return self._read_config(root)

    def _table(self, value: Any, path: Path) -> Table:
        return Table(value, path, self._problems, self._environ)

    def _only_providers(self, tables: list[Table]) -> Config:
        """A provider, or a list of them, and nothing else: the way documentation shows them."""
        providers = self._providers(tables, Defaults(folder=self._folder, code=self._code))
        if not tables:
            self._problems.add((), "no provider is configured")
        return Config(providers=providers, source=self._problems.source, notes=tuple(self._problems.notes))

    def _read_config(self, root: Table) -> Config:
        lenient = is_router_file(root)
        router = read_router_keys(root) if lenient else RouterSettings()
        timeouts = read_timeouts(root.table("timeouts"), Timeouts())
        if router.first_byte is not None and "timeouts" not in root:
            timeouts = msgspec.structs.replace(timeouts, first_byte=router.first_byte)
        defaults = Defaults(
            folder=self._folder,
            code=self._code,
            timeouts=timeouts,
            proxy=router.proxy,
            plug_ins=router.plug_ins,
            lenient=lenient,
            javascript=router.javascript,
        )
        if "providers" in root and "Providers" in root:
            root.error("Providers", "set only one of `providers` and `Providers`")
        tables = root.tables("providers", "Providers")
        providers = with_variants(self._providers(tables or [], defaults), router.aliases)
        keys = router.keys + read_gateway_keys(root.tables("keys") or [])
        own = read_aliases(root.table("aliases"))
        routes = read_routes(root.table("routes"), router.routes)
        settings: dict[str, Any] = {"host": router.host, "port": router.port, "log_level": router.log_level}
        settings |= read_gateway(root.table("gateway"), self._folder)
        limits = read_numbers(root.table("limits"), Limits())
        retries = read_numbers(root.table("retries"), Retries())
        prices = read_prices(root.table("prices"))
        budgets = read_budgets(root.table("budgets"))
        usage = read_usage(root.table("usage"), self._folder)
        otel = read_otel(root.table("otel"))
        web_search = read_web_search(root.table("web_search"))
        claude_code = read_claude_code(root.table("claude_code"))
        root.close(hints=dict.fromkeys(GATEWAY_KEYS, "; it belongs in `[gateway]`"))
        defaults_of_clients: dict[str, tuple[str, ...]] = {}
        from_outside: tuple[str, ...] = ()
        listed = [root.raw(name) for name in ("providers", "Providers") if name in root]
        if not tables and all(isinstance(value, list) for value in listed):  # any other value is reported already
            found = self._from_environment()
            providers, defaults_of_clients = found.providers, found.aliases
            from_outside = found.notes
        broken = _named_providers(tables or [], providers)
        if broken is not None:  # otherwise the names are not known
            check_targets(own, (*providers, *broken), root)
            check_targets(router.aliases, (*providers, *broken), root, soft=True)  # its routes are among them
            inherited = router.routes.targets
            named = {name: targets for name, targets in routes.targets.items() if targets != inherited.get(name)}
            check_targets(named, (*providers, *broken), root, table="routes")
            judge = claude_code.judge_model
            if judge is not None and not has_model(judge, (*providers, *broken), router.aliases | own):
                check_targets({"judge_model": (judge,)}, (*providers, *broken), root, table="claude_code")
        return Config(
            providers=providers,
            aliases=(router.aliases | own) or defaults_of_clients,
            routes=routes,
            keys=keys,
            keys_emptied=root.raw("keys") == [],
            prices=prices,
            budgets=budgets,
            usage=usage,
            otel=otel,
            web_search=web_search,
            claude_code=claude_code,
            limits=limits,
            retries=retries,
            source=self._problems.source,
            notes=(*self._problems.notes, *from_outside),
            **{name: value for name, value in settings.items() if value is not None},
        )

    def _from_environment(self) -> Config:
        """A file without providers takes them from the environment."""
        if self._environ is None:
            return Config()
        try:
            found = config_from_environment(self._environ)
        except ConfigError as error:
            for problem in error.problems:
                self._problems.add((), problem)
            return Config()
        if found is None:
            self._problems.add((), ". ".join([_NO_PROVIDER, *unused_keys(self._environ)]))
        return found or Config()

    def _providers(self, tables: list[Table], defaults: Defaults) -> tuple[ProviderConfig, ...]:
        providers: dict[str, ProviderConfig] = {}
        for table in tables:
            provider = read_provider(table, defaults)
            if provider is None:
                continue
            if provider.name.lower() in providers:
                table.error("name", f"duplicate provider name '{provider.name}'")
            else:
                providers[provider.name.lower()] = provider
        return tuple(providers.values())


def _named_providers(tables: list[Table], right: tuple[ProviderConfig, ...]) -> list[ProviderConfig] | None:
    """Providers with mistakes, as far as aliases need them: their names and those of their models.

    None: for one of them, not even these can be read.
    """
    if len(right) == len(tables) or not tables:
        return []
    known = {provider.name.lower() for provider in right}
    named: list[ProviderConfig] = []
    for table in tables:
        name, models = table.raw("name"), table.raw("models") or []
        if isinstance(name, str) and name.strip().lower() in known:
            continue
        listed = models if isinstance(models, list) else [None]
        texts = [name, *(model.get("id") if isinstance(model, dict) else model for model in listed)]
        if not all(isinstance(text, str) and "$" not in text for text in texts):
            return None
        named.append(ProviderConfig(name=texts[0], api_base_url="", models=tuple(texts[1:])))
    return named


def _is_provider(root: Table) -> bool:
    return any(key in root for key in ("api_base_url", "base_url", "baseUrl")) or (
        "name" in root and any(key in root for key in ("models", "api_key", "transformer"))
    )
