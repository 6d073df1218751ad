"""A valid configuration -> warnings about what might surprise its author."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from moonshim.config.endpoints import is_loopback
from moonshim.config.model import Config, ProviderConfig
from moonshim.config.tables.transformers import chain_warnings

__all__ = ["warnings_of"]


def warnings_of(config: Config, now: datetime | None = None) -> list[str]:
    """Lines for people, without secrets."""
    moment = now or datetime.now(UTC)
    lines = list(config.notes)
    for provider in config.providers:
        lines += [f"provider `{provider.name}`: {line}" for line in _provider_warnings(provider, config)]
    lines += [
        f"key `{key.name}`: it has expired ({key.expires:%Y-%m-%d})"
        for key in config.keys
        if key.expires is not None and key.expires <= moment
    ]
    if config.require_keys and not config.keys:
        lines.append("require_keys: there is no key, so every request is refused; `moonshim keys new NAME` makes one")
    if config.open_without_keys and not config.needs_keys:
        lines.append("open_without_keys: whoever reaches the gateway can spend your keys")
    return lines


def _provider_warnings(provider: ProviderConfig, config: Config) -> Iterator[str]:
    near = is_loopback(provider.api_base_url)
    if provider.api_base_url.startswith("http://") and not near:
        yield "its address is http://, so keys and conversations can be read on the way"
    sends_key = any(name.lower() in ("authorization", "x-api-key", "api-key") for name in provider.headers)
    reported = any(not source.found for source in provider.key_sources)  # when the file was loaded
    if not provider.keys and not (near or sends_key or reported or provider.passes_client_key):
        yield "it has no key"
    if provider.passes_client_key and config.keys:
        yield "passes_client_key does nothing while there are gateway keys"
    if not provider.models and not _is_named(provider, config):
        yield f"it names no models, and no alias leads to it: ask for `{provider.name}/MODEL`"
    yield from chain_warnings(provider)


def _is_named(provider: ProviderConfig, config: Config) -> bool:
    prefixes = (f"{provider.name.lower()}/", f"{provider.name.lower()},")
    return any(target.lower().startswith(prefixes) for targets in config.aliases.values() for target in targets)
