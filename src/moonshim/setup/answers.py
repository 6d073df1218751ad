"""Which host, key and models to use -> a configuration document."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from moonshim.config.endpoints import is_loopback
from moonshim.config.environment import CLIENTS_OWN, config_from_environment
from moonshim.config.known_hosts import INIT_HOSTS, KNOWN_HOSTS, KnownHost
from moonshim.config.model import Secret
from moonshim.engine.formats import without_window
from moonshim.engine.hosts.detect import host_of
from moonshim.setup.document import Document

__all__ = ["HOSTS_BY_NAME", "SMALL", "KeyChoice", "ProviderChoice", "SetupAnswers", "document_of"]

HOSTS_BY_NAME: Final = {host.name: host for host in (*KNOWN_HOSTS, *INIT_HOSTS)}
SMALL: Final = "claude-*haiku*"
"""What Claude Code requests for titles and summaries. A longer pattern takes precedence over `claude-*`."""
_GENERIC: Final = "generic"
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9._-]+")


class ProviderChoice(Struct, frozen=True, kw_only=True):
    """A known host, or any server and the host profile for it."""

    url: str
    known: KnownHost | None = None
    profile: str | None = None
    regions: tuple[str, ...] = ()
    """Addresses that the key may belong to, as long as that is not known; `url` is the default one of them."""

    @classmethod
    def of_known(cls, name: str, environ: Mapping[str, str]) -> ProviderChoice:
        """A known host, at the address that the environment sets for it, or else its own, which may lack parts."""
        host = HOSTS_BY_NAME[name]
        own = environ.get(host.address_variable, "").strip()
        return cls(url=own or host.address(environ), known=host, regions=() if own else host.regions)

    @property
    def missing_parts(self) -> dict[str, str]:
        """What the address depends on and nobody said yet: the usual variables, and what they are."""
        return {} if self.known is None else self.known.missing_parts(self.url)

    def with_parts(self, parts: Mapping[str, str]) -> ProviderChoice:
        return self if self.known is None else replace(self, url=self.known.address(parts))

    @property
    def name(self) -> str:
        if self.known is not None:
            return self.known.name
        host = host_of(self.url)
        if self.profile or host != _GENERIC:
            return self.profile or host.removesuffix("-anthropic")
        if is_loopback(self.url):
            return "local"
        return _NOT_IN_NAMES.sub("-", urlsplit(self.url).hostname or "host")

    def model_id(self, model: str) -> str:
        """The host's name of a model: without the provider's name, and in the host's spelling."""
        plain = without_window(model.strip()).removeprefix(f"{self.name}/")
        return plain if self.known is None else self.known.spellings.get(plain, plain)


class KeyChoice(Struct, frozen=True):
    """Where the key is: in an environment variable (recommended) or in the file. Neither: no key is needed."""

    variable: str | None = None
    literal: Secret | None = None

    def fields(self) -> dict[str, str]:
        if self.variable is not None:
            return {"api_key_env": self.variable}
        return {} if self.literal is None else {"api_key": self.literal.reveal().replace("$", "$$")}

    def value(self, environ: Mapping[str, str]) -> Secret | None:
        """The key itself; None: there is none, or its variable is not set."""
        if self.variable is None:
            return self.literal
        text = environ.get(self.variable, "").strip()
        return Secret(text) if text else None


class SetupAnswers(Struct, frozen=True, kw_only=True):
    """Everything that a first configuration needs."""

    provider: ProviderChoice
    key: KeyChoice
    model: str | None = None
    """For Claude Code and Codex; None: not known yet."""
    aliases: dict[str, str] = {}
    """Further names, and other models for the names above."""


def document_of(answers: SetupAnswers) -> Document:
    """The configuration.

    >>> host = ProviderChoice.of_known("nvidia", {})
    >>> answers = SetupAnswers(provider=host, key=KeyChoice("NVIDIA_API_KEY"), model="kimi-k3")
    >>> document_of(answers)["aliases"]["claude-*"]
    'nvidia/moonshotai/kimi-k3'
    """
    choice = answers.provider
    provider: dict[str, Any] = {"name": choice.name, "api_base_url": choice.url}
    aliases: dict[str, str] = {}
    listed: tuple[str, ...] = ()
    profile, takes_any = choice.profile if host_of(choice.url) == _GENERIC else None, False
    if choice.known is not None:
        # What `serve` would use without a file, so that a file changes nothing but what was chosen.
        known = choice.known
        usual = config_from_environment({known.variable: "key", known.address_variable: choice.url}, [known])
        assert usual is not None
        listed, profile = usual.providers[0].models, usual.providers[0].host
        takes_any = not listed
        aliases = {name: targets[0] for name, targets in usual.aliases.items()}
    if answers.model is not None:
        aliases |= dict.fromkeys(
            (*CLIENTS_OWN, *(name for name in aliases if "*" in name)), _target(choice, answers.model)
        )
    aliases |= {name: _target(choice, model) for name, model in answers.aliases.items()}
    provider |= {"host": profile} if profile is not None else {}
    provider |= answers.key.fields()
    chosen = [choice.model_id(model) for model in (answers.model, *answers.aliases.values()) if model]
    if chosen and not takes_any:
        provider["models"] = list(dict.fromkeys([*listed, *chosen]))
    return {"providers": [provider], "aliases": aliases}


def _target(choice: ProviderChoice, model: str) -> str:
    return f"{choice.name}/{choice.model_id(model)}"
