"""The top-level keys of a claude-code-router 2 file -> our settings, and notes on the rest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from moonshim.config.model import GatewayKey, LogLevel, ProviderConfig, RouteName, Routes, TransformerUse
from moonshim.config.tables.gateway_keys import gateway_key_of
from moonshim.config.tables.table import Table, kind_of

__all__ = ["APIKEY", "RouterSettings", "is_router_file", "read_router_keys", "router_keys", "with_variants"]

APIKEY: Final = "APIKEY"
_KNOWN: Final = frozenset({"Providers", "Router", "transformers", "StatusLine", "forceUseImageAgent", "fallback"})
_IGNORED: Final = ("StatusLine", "forceUseImageAgent", "plugins", "presets", "tokenizer")
_INSTEAD: Final = {
    "LOG": "use `moonshim serve --log-dir` to log each stream to a file",
    "CUSTOM_ROUTER_PATH": "use `[aliases]` and `[routes]` to choose models",
    "HOT_RELOAD": "a changed file is always reloaded",
}
_SCREAMING: Final = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*")
_LEVELS: Final[dict[str, LogLevel]] = {
    "trace": "debug",
    "debug": "debug",
    "info": "info",
    "warn": "warning",
    "warning": "warning",
    "error": "error",
    "fatal": "error",
}
_ROUTES: Final[dict[str, RouteName]] = {
    "background": "background",
    "think": "think",
    "longContext": "long_context",
    "webSearch": "web_search",
    "image": "image",
}
_PATTERNS: Final = {"default": ("claude-*",), "background": ("claude-*haiku*",)}
"""Aliases for Claude Code's model names. That of `background` is for files without `default`, and for `moonshim chat`,
which has no routes."""
_THRESHOLD: Final = "longContextThreshold"
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")


class RouterSettings(Struct):
    """The settings of such a file other than its providers."""

    aliases: dict[str, tuple[str, ...]] = field(default_factory=dict)
    routes: Routes = Routes()
    keys: tuple[GatewayKey, ...] = ()
    first_byte: float | None = None
    proxy: str | None = None
    plug_ins: dict[str, TransformerUse] = field(default_factory=dict)
    javascript: bool = False
    """Some plug-ins are skipped, since they are not Python."""
    host: str | None = None
    port: int | None = None
    log_level: LogLevel | None = None


def is_router_file(keys: Table) -> bool:
    """Whether this file was written by, or for, claude-code-router."""
    return any(key in _KNOWN or _SCREAMING.fullmatch(key) for key in keys)


def read_router_keys(root: Table) -> RouterSettings:
    """Take all its keys from the table. None of them is an error, whatever its value: what cannot be used is noted."""
    found = RouterSettings()
    found.keys = router_keys(root)
    if found.keys:
        root.note(
            APIKEY, "this key is stored in plain text; `moonshim keys new` creates one that is stored as a digest"
        )
    found.first_byte = _milliseconds(root)
    found.proxy = _text(root, "PROXY_URL")
    found.host = _host(root, has_key=bool(found.keys))
    port = root.any_value("PORT")
    found.port = int(port) if str(port).isdecimal() and 0 < int(port) < 65536 else None
    if found.port is None and port not in (None, ""):
        root.note("PORT", "expected an integer from 1 to 65535, ignored")
    level = _text(root, "LOG_LEVEL")
    found.log_level = _LEVELS.get(level.lower()) if level else None
    if level and found.log_level is None:
        root.note("LOG_LEVEL", f"expected one of {', '.join(_LEVELS)}, ignored")
    found.plug_ins, found.javascript = _plug_ins(root)
    found.aliases, found.routes = _read_router(root)
    for name in root:
        if name in _IGNORED or (_SCREAMING.fullmatch(name) and not root.was_read(name)):
            root.knows(name)
            root.note(name, f"not supported, ignored{f': {_INSTEAD[name]}' if name in _INSTEAD else ''}")
    return found


def router_keys(root: Table) -> tuple[GatewayKey, ...]:
    """The one key that claude-code-router requires of its clients."""
    key = _text(root, APIKEY) if is_router_file(root) else None
    return () if key is None else (gateway_key_of(APIKEY, key),)


def with_variants(
    providers: Iterable[ProviderConfig], aliases: Mapping[str, tuple[str, ...]]
) -> tuple[ProviderConfig, ...]:
    """The providers, also with the models that only `Router` names, if they are variants of a listed one.

    claude-code-router does not compare its routes with the lists, and its documentation says to add `:online` to a
    model of OpenRouter for `webSearch`.
    """
    targets = dict.fromkeys(target for found in aliases.values() for target in found)
    return tuple(replace(one, models=(*one.models, *_variants(one, targets))) for one in providers)


def _variants(provider: ProviderConfig, targets: Iterable[str]) -> Iterator[str]:
    listed = {model.lower() for model in provider.models}
    for target in targets:
        name, _, model = target.partition("/")
        base, colon, _ = model.lower().rpartition(":")
        if name.lower() == provider.name.lower() and colon and base in listed and model.lower() not in listed:
            yield model


def _text(root: Table, key: str) -> str | None:
    """A non-empty string; its user interface writes empty ones for fields that were not filled in."""
    if not root.raw(key):
        root.knows(key)
        return None
    value = root.any_value(key)
    if not isinstance(value, str):
        if value is not None:
            root.note(key, f"expected a string, got {kind_of(value)}; ignored")
        return None
    return value.strip() or None


def _milliseconds(root: Table) -> float | None:
    value = root.any_value("API_TIMEOUT_MS")
    try:
        seconds = float(value) / 1000
    except (TypeError, ValueError):
        seconds = 0.0
    if 0 < seconds < float("inf"):
        return seconds
    if value not in (None, ""):
        root.note("API_TIMEOUT_MS", "expected a number of milliseconds greater than 0, ignored")
    return None


def _host(root: Table, *, has_key: bool) -> str | None:
    host = _text(root, "HOST")
    if host and not has_key and host not in _LOOPBACK:
        root.note("HOST", "ignored without APIKEY: the gateway listens on 127.0.0.1 only, as claude-code-router does")
        return None
    return host


def _plug_ins(root: Table) -> tuple[dict[str, TransformerUse], bool]:
    """Its `transformers`, by the names that chains can use (a name, or the class after the colon); and whether some had
    to be skipped."""
    plug_ins: dict[str, TransformerUse] = {}
    javascript = False
    listed = root.elements("transformers") if isinstance(root.raw("transformers"), list) else []
    root.knows("transformers")
    for entry in listed:
        if not isinstance(entry, Table):
            continue
        path, name, options = _text(entry, "path"), _text(entry, "name"), entry.any_value("options")
        if path is None:
            continue
        if ".py" not in path:
            entry.note("path", "JavaScript plug-ins are not supported; write it in Python")
            javascript = True
            continue
        use = TransformerUse(path, options if isinstance(options, dict) else {})
        for known in (name, path.rpartition(":")[2], path):
            if known:
                plug_ins[known] = use
    return plug_ins, javascript


def _read_router(root: Table) -> tuple[dict[str, tuple[str, ...]], Routes]:
    """Each route as an alias, so that clients can request it by name, and the routes of requests."""
    routes = root.table("Router") if isinstance(root.raw("Router"), dict) else None
    root.knows("Router", "fallback")
    if root.raw("Router") and routes is None:
        root.note("Router", f"expected an object, got {kind_of(root.raw('Router'))}; ignored")
    others = root.any_value("fallback")
    aliases: dict[str, tuple[str, ...]] = {}
    found: dict[str, Any] = {}
    for name in routes or ():
        assert routes is not None
        if name == _THRESHOLD:
            found["long_context_tokens"] = _threshold(routes)
            continue
        if name != "default" and name not in _ROUTES:
            routes.note(name, "not supported, ignored")
            continue
        target = _text(routes, name)
        if target is None:
            continue
        fallbacks = others.get(name) if isinstance(others, dict) else None
        targets = (_target(target), *map(_target, _texts(fallbacks)))
        aliases |= dict.fromkeys((name, *_PATTERNS.get(name, ())), targets)
        if name in _ROUTES:
            found[_ROUTES[name]] = targets
    return aliases, Routes(**{name: value for name, value in found.items() if value is not None})


def _threshold(routes: Table) -> int | None:
    """Its user interface writes numbers as strings, too."""
    value = routes.any_value(_THRESHOLD)
    text = str(value).strip()
    if text.isdecimal() and int(text) > 0:
        return int(text)
    if value not in (None, ""):
        routes.note(
            _THRESHOLD, f"expected an integer greater than 0, ignored; the limit is {Routes().long_context_tokens}"
        )
    return None


def _texts(value: Any) -> list[str]:
    return [text for text in value if isinstance(text, str) and text] if isinstance(value, list) else []


def _target(text: str) -> str:
    """`provider,model` in our notation."""
    provider, comma, model = text.partition(",")
    return f"{provider.strip()}/{model.strip()}" if comma else text.strip()
