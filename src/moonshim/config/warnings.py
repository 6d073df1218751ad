"""A valid configuration -> warnings about what might surprise its author."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from moonshim.config.endpoints import is_loopback
from moonshim.config.known_hosts import KNOWN_HOSTS
from moonshim.config.model import Config, ProviderConfig
from moonshim.config.tables.transformers import chain_warnings

__all__ = ["warnings_of"]


def warnings_of(config: Config, now: datetime | None = None) -> list[str]:
    """Lines for people, without secrets."""
    moment = now or datetime.now(UTC)
    lines = list(config.notes)
    for provider in config.providers:
        lines += [f"provider '{provider.name}': {line}" for line in _provider_warnings(provider, config)]
    lines += [
        f"key '{key.name}': expired on {key.expires:%Y-%m-%d}"
        for key in config.keys
        if key.expires is not None and key.expires <= moment
    ]
    if config.routes.targets and not any(sign in alias for alias in config.aliases for sign in "*?["):
        lines.append("routes: no alias is a pattern such as `claude-*`, so no request is routed")
    if config.require_keys and not config.keys:
        lines.append(
            "require_keys: there are no keys, so every request is rejected; create one with `moonshim keys new NAME`"
        )
    if config.open_without_keys and not config.needs_keys:
        lines.append("open_without_keys: anyone who can reach the gateway can use your API keys")
    return lines


def _provider_warnings(provider: ProviderConfig, config: Config) -> Iterator[str]:
    near = is_loopback(provider.api_base_url)
    if provider.api_base_url.startswith("http://") and not near:
        yield "uses http://, so keys and conversations are sent unencrypted"
    sends_key = any(name.lower() in ("authorization", "x-api-key", "api-key") for name in provider.headers)
    reported = any(not source.found for source in provider.key_sources)  # when the file was loaded
    if not provider.keys and not (near or sends_key or reported or provider.passes_client_key):
        yield "has no API key"
    if provider.regions:
        variable = next(host.address_variable for host in KNOWN_HOSTS if host.name == provider.name)
        others = " or ".join(region for region in provider.regions if region != provider.api_base_url)
        yield (
            f"the region of the key is not known yet, so {provider.api_base_url} is used. If the key is for {others}, "
            f"set {variable}"
        )
    if provider.passes_client_key and config.keys:
        yield "passes_client_key has no effect while gateway keys are configured"
    if not provider.models and not _is_named(provider, config):
        yield f"lists no models, and no alias or route points to it; request models as `{provider.name}/MODEL`"
    yield from chain_warnings(provider)


def _is_named(provider: ProviderConfig, config: Config) -> bool:
    prefixes = (f"{provider.name.lower()}/", f"{provider.name.lower()},")
    named = (*config.aliases.values(), *config.routes.targets.values())
    return any(target.lower().startswith(prefixes) for targets in named for target in targets)
