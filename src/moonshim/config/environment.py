"""The usual environment variables -> a configuration, when there is no file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, cast

import msgspec

from moonshim.config.endpoints import dialect_of
from moonshim.config.known_hosts import KNOWN_HOSTS, KnownHost
from moonshim.config.model import Config, GatewayKey, KeySource, ProviderConfig, Secret, digest_of
from moonshim.config.problems import ConfigError
from moonshim.config.regions import remembered_region
from moonshim.config.tables.aliases import has_model, has_target
from moonshim.config.tables.provider_keys import key_fault
from moonshim.config.tables.providers import address_fault
from moonshim.config.tables.settings import secret_fault, store_fault
from moonshim.engine.hosts.detect import host_of
from moonshim.engine.hosts.profile import UpstreamDialect
from moonshim.engine.hosts.table import HOSTS

__all__ = [
    "CLIENTS_OWN",
    "JUDGE_MODEL",
    "LOCAL_KEY",
    "LOOKED_FOR",
    "config_from_environment",
    "with_overrides",
]

_UNKNOWN: Final = "generic"
LOOKED_FOR: Final = tuple(host.variable for host in KNOWN_HOSTS)
"""The variables, for the message that none of them is set."""

LOCAL_KEY: Final = "MOONSHIM_LOCAL_KEY"
"""A key that the gateway accepts in addition to those of its configuration; `moonshim launch` sets it."""
JUDGE_MODEL: Final = "MOONSHIM_JUDGE_MODEL"
"""The judge of `[claude_code]`; `moonshim launch claude --judge` sets it."""
CLIENTS_OWN: Final = ("claude-*", "gpt-*", "codex-*")
"""What Claude Code and Codex request when no model is configured."""
_ANY_KIMI: Final = "kimi-*"


def config_from_environment(environ: Mapping[str, str], hosts: Sequence[KnownHost] | None = None) -> Config | None:
    """All providers that the environment has a key for; None if there is no key at all. `hosts` are those that are
    looked for, if not all that need no file.

    Raises `ConfigError` for an invalid address or key, and for a `MOONSHIM_MODEL` that no provider has.

    >>> config = config_from_environment({"MOONSHOT_API_KEY": "sk-1"})
    >>> config.providers[0].name, config.aliases["claude-*"]
    ('moonshot', ('moonshot/kimi-k3',))
    """
    looked_for = KNOWN_HOSTS if hosts is None else hosts
    found = [(host, _provider(host, environ)) for host in looked_for if environ.get(host.variable, "").strip()]
    if not found:
        return None
    chosen = environ.get("MOONSHIM_MODEL", "").strip()
    if chosen and not has_target(chosen, [provider for _, provider in found]):
        raise ConfigError([f"environment: MOONSHIM_MODEL: no provider with a key has the model '{chosen}'"])
    themselves = [host for host, provider in found if _is_same_host(host, provider)]
    targets = (chosen,) if chosen else tuple(f"{host.name}/{host.default}" for host in themselves if host.default)
    notes = () if targets else (f"environment: set MOONSHIM_MODEL to choose the model for {CLIENTS_OWN[0]}",)
    config = Config(
        providers=tuple(provider for _, provider in found),
        aliases=_spelling_aliases(found, themselves) | _defaults([provider for _, provider in found], targets),
        source="environment",
        notes=notes,
    )
    return with_overrides(config, environ)


def _spelling_aliases(
    found: Sequence[tuple[KnownHost, ProviderConfig]], themselves: Sequence[KnownHost]
) -> dict[str, tuple[str, ...]]:
    """Aliases from Moonshot's model names to those of hosts with other names, unless a provider has a model of that
    name."""
    listed = {model for _, provider in found for model in provider.models}
    names = dict.fromkeys(name for host in themselves for name in host.spellings if name not in listed)
    return {
        name: tuple(f"{host.name}/{host.spellings[name]}" for host in themselves if name in host.spellings)
        for name in names
    }


def _defaults(providers: Sequence[ProviderConfig], targets: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Targets for the agents' own models, and for any other Kimi name if no provider lists its models."""
    patterns = CLIENTS_OWN if any(provider.models for provider in providers) else (*CLIENTS_OWN, _ANY_KIMI)
    return dict.fromkeys(patterns, targets) if targets else {}


def with_overrides(config: Config, environ: Mapping[str, str]) -> Config:
    """The configuration with the store, the secret and the judge of the environment, which take precedence."""
    problems: list[str] = []
    if store := environ.get("MOONSHIM_STORE", "").strip():
        problems += [f"environment: MOONSHIM_STORE: {wrong}"] if (wrong := store_fault(store)) else []
        config = msgspec.structs.replace(config, store=store)
    if secret := environ.get("MOONSHIM_SECRET", "").strip():
        problems += [f"environment: MOONSHIM_SECRET: {wrong}"] if (wrong := secret_fault(secret)) else []
        config = msgspec.structs.replace(config, secret=Secret(secret))
    if local := environ.get(LOCAL_KEY, "").strip():
        config = msgspec.structs.replace(config, keys=(*config.keys, GatewayKey(name="local", digest=digest_of(local))))
    if judge := environ.get(JUDGE_MODEL, "").strip():
        if not has_model(judge, config.providers, config.aliases):
            problems.append(f"environment: {JUDGE_MODEL}: no provider has the model '{judge}'")
        claude_code = msgspec.structs.replace(config.claude_code, judge_model=judge)
        config = msgspec.structs.replace(config, claude_code=claude_code)
    if problems:
        raise ConfigError(problems)
    return config


def _provider(host: KnownHost, environ: Mapping[str, str]) -> ProviderConfig:
    key = environ[host.variable].strip()
    if wrong := key_fault(key):
        raise ConfigError([f"environment: {host.variable}: not a valid key: {wrong}"])
    address = environ.get(host.address_variable, "").strip() or remembered_region(Secret(key), host.regions, environ)
    regions = () if address else host.regions
    address = address or host.api_base_url
    if wrong := address_fault(address):
        raise ConfigError([f"environment: {host.address_variable}: {wrong}"])
    provider = ProviderConfig(
        name=host.name,
        api_base_url=address,
        keys=(Secret(key),),
        key_sources=(KeySource(host.variable),),
        dialect=cast(UpstreamDialect, dialect_of(address)),
        regions=regions,
    )
    if not _is_same_host(host, provider):
        return provider
    # The variable's name determines the host behind an unknown address.
    known = host_of(address) != _UNKNOWN
    row = host_of(host.api_base_url)
    if provider.dialect == "anthropic" and f"{row}-anthropic" in HOSTS:
        row = f"{row}-anthropic"
    return msgspec.structs.replace(provider, models=host.models, host=None if known else row)


def _is_same_host(host: KnownHost, provider: ProviderConfig) -> bool:
    """Whether a custom address still leads to the same host, which has the same models."""
    found = host_of(provider.api_base_url).removesuffix("-anthropic")
    return found in (host_of(host.api_base_url), _UNKNOWN)
