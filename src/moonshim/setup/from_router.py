"""A file of claude-code-router 2 -> a configuration, and what became of each of its settings.

The file is understood by the same reader that `moonshim serve` uses for it (`config.files.router_file`). What is here
writes its result as TOML, with variables as they are, and explains it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path as File
from typing import Any, Final

from moonshim.config.endpoints import dialect_of, endpoint_of
from moonshim.config.files.router_file import APIKEY, RouterSettings, is_router_file, read_router_keys
from moonshim.config.files.source_file import read_values
from moonshim.config.files.variables import has_variable, variable_of
from moonshim.config.load import config_of_values
from moonshim.config.model import ProviderConfig, TransformerUse
from moonshim.config.problems import ConfigError, Path, Problems
from moonshim.config.tables.table import Table, resolve_path
from moonshim.config.tables.transformers import OPENROUTER_HEADERS, OURS, PUTS_OPTIONS, foreign_transformer
from moonshim.engine.hosts.detect import host_of
from moonshim.setup.account import Account
from moonshim.setup.converted import Converted, add_gateway_key, known_targets, value_of
from moonshim.setup.document import Document, without_nulls

__all__ = ["convert_router"]

_ADDRESSES: Final = ("api_base_url", "base_url", "baseUrl")
_OWN_TABLES: Final = ("aliases", "routes", "keys", "gateway", "timeouts", "retries", "limits", "prices")
"""Moonshim's tables, which such a file may already have."""
_OWN_PATHS: Final = ("api_key_file", "ca_bundle")
_OWN_FIELDS: Final = ("api_keys", "api_key_env", "timeouts", "passes_client_key", "retry_empty_answer")
_ROUTE_KEYS: Final = {
    "background": "background",
    "think": "think",
    "longContext": "long_context",
    "webSearch": "web_search",
    "image": "image",
}
_PATTERNS: Final = {"default": "claude-*", "background": "claude-*haiku*"}
"""Routes that are also aliases for Claude Code's models."""
_THRESHOLD: Final = "longContextThreshold"
_NOT_NEEDED: Final = {
    "CLAUDE_PATH": "`moonshim launch claude` finds Claude Code on the PATH",
    "NON_INTERACTIVE_MODE": "the gateway never asks for input",
    "HOT_RELOAD": "a changed file is always reloaded",
    "forceUseImageAgent": "images are passed on to the model",
}
_NO_COUNTERPART: Final = {
    "LOG": "the gateway logs to standard error; `[gateway] log_dir` also records every stream",
    "CUSTOM_ROUTER_PATH": "JavaScript is not run; choose models with `[aliases]` and `[routes]`",
    "StatusLine": "Moonshim has no status line for Claude Code",
}
_PACKED: Final = re.compile(r"moonshimvariable([0-9a-f]+)end")
_REFERENCE: Final = re.compile(r"\$\{[^}]*\}|\A\$[A-Z_][A-Z0-9_]*(?=/|\Z)")
_UNKNOWN: Final = "generic"
_PLACEHOLDER: Final = "http://variable.invalid/"


def convert_router(text: str, *, source: str, folder: File, environ: Mapping[str, str]) -> Converted:
    """Convert the text of a file. `folder`: paths in it are relative to it. Raises `ConfigError`.

    The environment is only used for the gateway key, of which a digest is stored.
    """
    value, lines = read_values(text, suffix=".json", source=source)
    problems = Problems(source, lines)
    if not (
        isinstance(value, dict)
        and is_router_file(Table(value, (), problems, None))
        and (value.get("Providers") or value.get("providers"))
    ):
        raise ConfigError([f"{source}: not a configuration of claude-code-router 2: it has no `Providers`"])
    return _Conversion(value, problems, folder, environ).run()


class _Conversion:
    """The conversion of one file."""

    def __init__(self, value: dict[str, Any], problems: Problems, folder: File, environ: Mapping[str, str]) -> None:
        self._value, self._problems, self._folder, self._environ = value, problems, folder, environ
        self._account = Account(value)
        packed = _pack(value)
        self._config = config_of_values(packed, problems, folder=folder)
        if problems.errors:
            raise ConfigError(problems.errors)
        self._settings: RouterSettings = read_router_keys(Table(packed, (), Problems("", {}), None))
        self._document: Document = {"providers": [], "aliases": {}}
        self._served: list[ProviderConfig] = []

    def run(self) -> Converted:
        listed = "Providers" if "Providers" in self._value else "providers"
        for name in _OWN_TABLES:
            if name in self._value:
                self._document[name] = without_nulls(self._value[name])
                self._account.taken((name,), name)
        for place, (raw, provider) in enumerate(
            zip(self._value.get(listed) or [], self._config.providers, strict=False)
        ):
            if (foreign := self._unsupported(raw, provider)) is None:
                self._provider(raw, provider, (listed, place), len(self._served))
                self._served.append(provider)
            else:
                why = f"left out: transformer '{foreign}' uses a protocol that is not supported"
                self._account.no_counterpart((listed, place), why)
        self._plug_ins()
        self._aliases_and_routes()
        self._gateway()
        self._rest()
        return Converted(self._document, self._account)

    # -- providers -----------------------------------------------------------------------

    def _provider(self, raw: dict[str, Any], provider: ProviderConfig, path: Path, place: int) -> None:
        to = f"providers[{place}]"
        made: dict[str, Any] = {"name": _unpack(provider.name)}
        self._account.taken((*path, "name"), f"{to}.name")
        address = next(key for key in _ADDRESSES if key in raw)
        replaced = _is_replaced(raw, provider)
        made["api_base_url"] = provider.api_base_url if replaced else _base_url(raw[address].strip(), provider)
        if replaced:
            self._account.taken((*path, "transformer"), f"{to}.api_base_url: Chat Completions of the same host")
        self._account.taken((*path, address), f"{to}.api_base_url")
        if provider.host is not None:
            made["host"] = provider.host
            self._account.taken((*path, "host"), f"{to}.host")
        if provider.dialect != dialect_of(made["api_base_url"]) or "dialect" in raw:
            made["dialect"] = provider.dialect
            self._account.taken((*path, "dialect"), f"{to}.dialect")
        made |= self._key(raw, path, to)
        made |= {key: raw[key] for key in _OWN_FIELDS if key in raw}
        made |= {key: resolve_path(raw[key], self._folder) for key in _OWN_PATHS if key in raw}
        for key in (*_OWN_FIELDS, *_OWN_PATHS):
            self._account.taken((*path, key), f"{to}.{key}")
        made["models"] = [_model(provider, model) for model in provider.models]
        self._account.taken((*path, "models"), f"{to}.models")
        made |= _unpack(provider.overrides)
        for name, fields in (("body", provider.body), ("headers", provider.headers)):
            if fields:
                made[name] = without_nulls(_unpack(fields))
        if (proxy := raw.get("proxy") or _unpack(provider.proxy)) is not None:
            made["proxy"] = proxy
        if chains := self._chains(provider):
            made["transformer"] = chains
        self._transformers(raw.get("transformer"), (*path, "transformer"), to, provider)
        if not raw.get("transformer"):
            self._account.not_needed((*path, "transformer"), "it is empty")
        for key in raw:
            if (*path, key) in self._problems.notes_by_path:
                self._account.no_counterpart((*path, key), self._note((*path, key)))
            self._account.taken((*path, key), f"{to}.{key}")
        self._document["providers"].append({key: one for key, one in made.items() if one != []})

    def _unsupported(self, raw: dict[str, Any], provider: ProviderConfig) -> str | None:
        """The transformer by which this provider has a protocol of its own; None if it can be used.

        A known host has Chat Completions or Messages at its address, and so has an address that was replaced.
        """
        if host_of(provider.api_base_url) != _UNKNOWN or _is_replaced(raw, provider) or provider.host is not None:
            return None
        chain = raw.get("transformer")
        uses = chain.get("use") if isinstance(chain, dict) else None
        names = [name for link in (uses if isinstance(uses, list) else ()) for name, *_ in _links(link, ())]
        for name in names:
            foreign = None if name in self._settings.plug_ins else foreign_transformer(name)
            if foreign is not None and foreign.outcome == "unsupported":
                return name
        return None

    def _key(self, raw: dict[str, Any], path: Path, to: str) -> dict[str, str]:
        field = "api_key" if "api_key" in raw else "apiKey"
        key = raw.get(field)
        if not isinstance(key, str) or not key.strip():
            self._account.not_needed((*path, field), "it is empty")
            return {}
        if (variable := variable_of(key.strip())) is not None and _is_plain(key.strip()):
            self._account.taken((*path, field), f"{to}.api_key_env")
            return {"api_key_env": variable}
        self._account.taken(
            (*path, field), f"{to}.api_key (better: store it in a variable, and name that in api_key_env)"
        )
        return {"api_key": key.strip()}

    def _chains(self, provider: ProviderConfig) -> dict[str, Any]:
        """The transformers that can be run, as they are written in a file."""
        chains: dict[str, Any] = {}
        if shared := self._runnable(provider.transformers or ()):
            chains["use"] = shared
        for model, uses in provider.model_transformers.items():
            if own := self._runnable(uses):
                chains[_unpack(model)] = {"use": own}
        return chains

    def _runnable(self, uses: tuple[TransformerUse, ...]) -> list[Any]:
        links = [
            (_plug_in_name(use.name), without_nulls(_unpack(use.options))) for use in uses if _is_runnable(use.name)
        ]
        return [[name, options] if options else name for name, options in links]

    def _transformers(self, raw: Any, path: Path, to: str, provider: ProviderConfig) -> None:
        """Account for the chains of a provider: the shared one, and those of single models."""
        for key, value in raw.items() if isinstance(raw, dict) else ():
            if key == "use":
                self._uses(value, (*path, key), to)
            elif key in provider.models or not provider.models:
                self._uses((value or {}).get("use"), (*path, key, "use"), f"{to}.models.{key}")
            else:
                self._account.no_counterpart((*path, key), f"the provider has no model '{key}'")

    def _uses(self, uses: Any, path: Path, to: str) -> None:
        for place, link in enumerate(uses if isinstance(uses, list) else ()):
            for name, options, name_path, options_path in _links(link, (*path, place)):
                self._use(name, options, options_path, to)
                self._named_use(name, name_path, to)

    def _use(self, name: str, options: Mapping[str, Any], path: Path, to: str) -> None:
        """Account for the options of a transformer, as far as they have their own places."""
        kind = name.lower()
        if kind in ("maxtoken", "maxcompletiontokens"):
            for option in ("max_tokens", "max_completion_tokens"):
                self._account.taken((*path, option), f"{to}.default_max_tokens and output_limit")
        if kind not in PUTS_OPTIONS or name in self._settings.plug_ins:
            return
        for option, value in options.items():
            where = (*path, option)
            notes = [note for notes in self._problems.notes_by_path.values() for note in notes]
            refused = next((note for note in notes if note.startswith(f"{name}.{option}: ")), None)
            if kind == "openrouter" and option in OPENROUTER_HEADERS:
                # Only the provider's own chain can set headers.
                if ".models." in to:
                    self._account.no_counterpart(where, "a header is set for all models of a provider: `headers`")
                self._account.taken(where, f"{to}.headers.{OPENROUTER_HEADERS[option]}")
            elif refused is not None:
                self._account.no_counterpart(where, refused)
            else:
                self._account.drop_nulls({option: value}, path)
                self._account.taken(where, f"{to}.body.{option}")

    def _named_use(self, name: str, path: Path, to: str) -> None:
        foreign = None if name in self._settings.plug_ins else foreign_transformer(name)
        if foreign is not None:
            text = f"transformer '{name}' {foreign.why}"
            if foreign.outcome == "replaced":
                self._account.taken(path, f"{to}: {text}")
            elif foreign.outcome == "not_needed":
                self._account.not_needed(path, text)
            else:
                self._account.no_counterpart(path, text)
        elif name in self._settings.plug_ins or _is_runnable(name):
            self._account.taken(path, f"{to}.transformer")
        else:
            why = "JavaScript plug-ins are not supported; write it in Python"
            self._account.no_counterpart(path, f"unknown transformer '{name}': {why}")

    def _plug_ins(self) -> None:
        listed = self._value.get("transformers")
        used = {use for provider in self._config.providers for use in _names_used(provider)}
        for place, entry in enumerate(listed if isinstance(listed, list) else ()):
            path: Path = ("transformers", place)
            file = entry.get("path") if isinstance(entry, dict) else None
            if not isinstance(file, str) or ".py" not in file:
                self._account.no_counterpart(path, "JavaScript plug-ins are not supported; write it in Python")
            elif any(name.endswith(file.rpartition("/")[2]) for name in used):
                self._account.taken(path, "transformer.use of the providers that use it")
            else:
                self._account.not_needed(path, "no provider uses it")

    # -- names ---------------------------------------------------------------------------

    def _aliases_and_routes(self) -> None:
        """`Router` and `fallback` -> `[aliases]` and `[routes]`."""
        routes = self._value.get("Router")
        routes = routes if isinstance(routes, dict) else {}
        written: dict[str, Any] = {}
        for name in routes:
            if name == _THRESHOLD:
                continue
            if name not in self._settings.aliases:
                path: Path = ("Router", name)
                if path in self._problems.notes_by_path:
                    self._account.no_counterpart(path, self._note(path))
                self._account.not_needed(path, "it is empty")
                continue
            targets = known_targets(self._settings.aliases[name], self._served)
            places = [f'aliases."{alias}"' for alias in (name, _PATTERNS.get(name)) if alias in self._config.aliases]
            if name in _ROUTE_KEYS:
                written |= {_ROUTE_KEYS[name]: _one_or_all(targets)} if targets else {}
                places.insert(0, f"routes.{_ROUTE_KEYS[name]}")
            self._account_for_targets(name, " and ".join(places))
        self._account.no_counterpart(("fallback",), "no route of this name is set")
        self._threshold(written)
        if written:
            self._document["routes"] = written | self._document.get("routes", {})
        known = {name: known_targets(found, self._served) for name, found in self._config.aliases.items()}
        self._document["aliases"] = {_unpack(name): _one_or_all(targets) for name, targets in known.items() if targets}

    def _account_for_targets(self, name: str, to: str) -> None:
        """A route and its fallbacks are the targets of an alias, in this order."""
        others = self._value.get("fallback")
        fallbacks = others.get(name) if isinstance(others, dict) else None
        texts = enumerate(fallbacks if isinstance(fallbacks, list) else ())
        paths: list[Path] = [("fallback", name, place) for place, text in texts if isinstance(text, str) and text]
        for path, target in zip([("Router", name), *paths], self._settings.aliases[name], strict=True):
            if known_targets([target], self._served):
                self._account.taken(path, to)
            else:
                left_out = known_targets([target], self._config.providers)
                self._account.no_counterpart(
                    path, "its provider is left out" if left_out else "no provider has this model"
                )
        self._account.no_counterpart(("fallback", name), "not the name of a model")

    def _threshold(self, written: dict[str, Any]) -> None:
        path: Path = ("Router", _THRESHOLD)
        if "long_context" not in written:
            self._account.not_needed(path, "no model for long contexts is set")
            return
        written["long_context_tokens"] = self._settings.routes.long_context_tokens
        if path in self._problems.notes_by_path:
            self._account.no_counterpart(path, self._note(path))
        self._account.taken(path, "routes.long_context_tokens")

    # -- the gateway ---------------------------------------------------------------------

    def _gateway(self) -> None:
        found, gateway = self._settings, {}
        if found.host is not None:
            gateway["host"] = _unpack(found.host)
        port = self._value.get("PORT")
        if found.port is not None:
            gateway["port"] = found.port
        elif isinstance(port, str) and has_variable(port):
            gateway["port"] = port
        if found.log_level is not None:
            gateway["log_level"] = found.log_level
        for key, name in (("HOST", "host"), ("PORT", "port"), ("LOG_LEVEL", "log_level")):
            if name in gateway:
                self._account.taken((key,), f"gateway.{name}")
        if found.first_byte is not None and "timeouts" not in self._value:
            seconds = found.first_byte
            self._document["timeouts"] = {"first_byte": int(seconds) if seconds.is_integer() else seconds}
            self._account.taken(("API_TIMEOUT_MS",), "timeouts.first_byte, in seconds")
        if found.proxy is not None:
            self._account.taken(("PROXY_URL",), "proxy of every provider that is not on this machine")
        self._gateway_key()
        if gateway:
            self._document["gateway"] = gateway | self._document.get("gateway", {})

    def _gateway_key(self) -> None:
        key = self._value.get(APIKEY)
        if not isinstance(key, str) or not key.strip():
            self._account.not_needed((APIKEY,), "it is empty")
            return
        variable = variable_of(key.strip())
        secret = value_of(variable, self._environ) if variable else key.strip()
        if secret:
            add_gateway_key(self._document, APIKEY, secret)
            self._account.taken((APIKEY,), "keys[0], as a digest: clients use the same key as before")
        else:
            self._document.setdefault("gateway", {}).setdefault("require_keys", True)
            why = f"environment variable {variable} is not set; create a key with `moonshim keys new NAME`"
            self._account.no_counterpart((APIKEY,), why)

    def _rest(self) -> None:
        for name, why in _NOT_NEEDED.items():
            self._account.not_needed((name,), why)
        if self._value.get("LOG") is False:
            self._account.not_needed(("LOG",), "nothing is logged to files unless `[gateway] log_dir` is set")
        for name, why in _NO_COUNTERPART.items():
            self._account.no_counterpart((name,), why)
        for name, value in self._value.items():
            if value in ("", None):
                self._account.not_needed((name,), "it is empty")
            elif name in ("PORT", "API_TIMEOUT_MS", "LOG_LEVEL"):
                self._account.no_counterpart((name,), "not a value that Moonshim can read")
            elif name != "Router" and (name,) in self._problems.notes_by_path:
                self._account.no_counterpart((name,), self._note((name,)))

    def _note(self, path: Path) -> str:
        return self._problems.notes_by_path[path][0]


def _links(link: Any, path: Path) -> Iterator[tuple[str, Mapping[str, Any], Path, Path]]:
    """The transformers of one element of `use`: name, options, and the paths that the two have in the file."""
    match link:
        case str():
            yield link, {}, path, path
        case [str() as name, *rest]:
            options = rest[0] if rest and isinstance(rest[0], dict) else {}
            yield name, options, path, (*path, 1)
        case dict():
            for name, options in link.items():
                yield name, options if isinstance(options, dict) else {}, (*path, name), (*path, name)


def _one_or_all(targets: list[str]) -> str | list[str]:
    """One target is written without a list."""
    names: list[str] = _unpack(targets)
    return names[0] if len(names) == 1 else names


def _names_used(provider: ProviderConfig) -> Iterator[str]:
    for uses in (provider.transformers or (), *provider.model_transformers.values()):
        yield from (_unpack(use.name) for use in uses)


def _is_runnable(name: str) -> bool:
    """Whether Moonshim has this transformer, or it is Python code; any other name is a JavaScript plug-in."""
    return name in OURS or ":" in name


def _plug_in_name(name: str) -> str:
    """The name of a plug-in. A path that starts with a variable was resolved as if it were relative."""
    found = _PACKED.search(name)
    return _unpack(name[found.start() :]) if found else name


def _model(provider: ProviderConfig, model: str) -> Any:
    fields: dict[str, Any] = _unpack(provider.model_overrides.get(model, {}))
    body = without_nulls(_unpack(provider.model_bodies.get(model, {})))
    own = fields | ({"body": body} if body else {})
    return {"id": _unpack(model), **own} if own else _unpack(model)


def _is_replaced(raw: dict[str, Any], provider: ProviderConfig) -> bool:
    """Whether the reader has put another address in place of the one in the file."""
    address = next(str(raw[key]).strip() for key in _ADDRESSES if key in raw)
    return not has_variable(address) and provider.api_base_url != address


def _base_url(address: str, provider: ProviderConfig) -> str:
    """The address without the path of the endpoint, where that can be left out."""
    short = address.removesuffix("/chat/completions")
    if has_variable(address) or short == address:
        return address
    same = ProviderConfig(name="", api_base_url=short, dialect=provider.dialect)
    return short if endpoint_of(same) == endpoint_of(provider) else address


# -- variables ---------------------------------------------------------------------------------------------------------
# The reader sees words in place of variables: it neither needs their values nor writes them into the new file.


def _pack(value: Any, key: str = "") -> Any:
    match value:
        case dict():
            return {name: _pack(one, name) for name, one in value.items()}
        case list():
            return [_pack(one) for one in value]
        case str() if has_variable(value):
            if key in (*_ADDRESSES, "proxy"):
                return _PLACEHOLDER  # checked as a URL; the file's own text is written
            return _REFERENCE.sub(lambda found: f"moonshimvariable{found[0].encode().hex()}end", value)
    return value


def _unpack(value: Any) -> Any:
    match value:
        case dict():
            return {_unpack(name): _unpack(one) for name, one in value.items()}
        case list() | tuple():
            return [_unpack(one) for one in value]
        case str():
            return _PACKED.sub(lambda found: bytes.fromhex(found[1]).decode(), value)
    return value


def _is_plain(reference: str) -> bool:
    """Whether this is a variable without a default."""
    return ":-" not in reference
