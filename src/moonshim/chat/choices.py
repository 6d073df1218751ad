"""A configuration -> the models and providers available for a chat, by the names that the gateway uses too."""

from __future__ import annotations

from typing import Any, Final

from moonshim.agent.provider import Provider
from moonshim.config import Config, Price, Target
from moonshim.config import ProviderConfig as Host
from moonshim.config.environment import CLIENTS_OWN
from moonshim.engine.formats import without_window
from moonshim.errors import MoonshimError, Refused
from moonshim.gateway.outbound.routing import MODELS_LISTED, Router
from moonshim.http_client import UpstreamClient
from moonshim.transformers import load_chain
from moonshim.usage.prices import PriceList

__all__ = ["Choices", "NoSuchModel"]

_DEFAULT: Final = "default"
"""An alias of this name is the default model; claude-code-router's files create one."""


class NoSuchModel(MoonshimError):
    """No configured model has this name; the message lists those that exist.

    Shares its code with the simulator's `PluginError`, which is about a model written in Python.
    """

    code = "no_such_model"


class Choices:
    """The available models. Providers made here share their connections."""

    def __init__(self, config: Config, upstream: UpstreamClient | None = None) -> None:
        self.config = config
        self._router = Router(config)
        self._prices = PriceList(config.prices)
        self._upstream = upstream if upstream is not None else UpstreamClient()

    @property
    def hosts(self) -> tuple[Host, ...]:
        return self.config.providers

    def names(self) -> list[str]:
        """The models that are configured by name, aliases first."""
        return self._router.names()

    def host(self, name: str) -> Host:
        """The provider of this name, ignoring case."""
        found = next((host for host in self.hosts if host.name.lower() == name.lower()), None)
        if found is None:
            raise NoSuchModel(
                f"unknown provider `{name}`; configured: {_quote_names([host.name for host in self.hosts])}"
            )
        return found

    def find(self, name: str, *, near: str = "", only: bool = False) -> Target:
        """Resolve a name. If several providers have the model, `near` is preferred; with `only`, no other is
        accepted."""
        if only:
            return self._target_at(self.host(near), name)
        try:
            targets = self._router.targets(name)
        except Refused as refused:
            host = next((host for host in self.hosts if host.name == near), None)
            if host is not None and not host.models and self.config.source != "--demo":  # all of whose names are known
                return Target(host, without_window(name))
            raise NoSuchModel(refused.problem.message.replace(f" {MODELS_LISTED}", "").rstrip(".")) from None
        return next((target for target in targets if target.provider.name == near), targets[0])

    def first(self, provider: str = "") -> Target:
        """The default model."""
        if provider:
            return self._first_of(self.host(provider))
        for name in (_DEFAULT, *(pattern.replace("*", _DEFAULT) for pattern in CLIENTS_OWN)):
            if (target := self._router.first_target(name)) is not None and target.model != name:
                return target
        host = next((host for host in self.hosts if host.models), self.hosts[0])
        return self._first_of(host)

    def provider_for(self, target: Target, **changes: Any) -> Provider:
        """The provider for a target, set up as the gateway would."""
        host = target.provider
        chain = load_chain(host.uses_for(target.model), log=lambda level, name, fields: None)
        return Provider(
            host.api_base_url,
            model=target.model,
            api_key=host.keys[0].reveal() if host.keys else None,
            dialect=host.dialect,
            host=host.host,
            options=chain.options,
            transformers=chain.transformers,
            cells=host.overrides_for(target.model),
            extra_body=host.body_for(target.model),
            headers=host.headers,
            timeouts=host.timeouts,
            attempts=self.config.retries.attempts,
            longest_wait=self.config.retries.longest_wait,
            proxy=host.proxy,
            ca_bundle=host.ca_bundle,
            name=host.name,
            upstream=self._upstream,
            **changes,
        )

    def price(self, provider: Provider) -> Price | None:
        """Its price, if it is known."""
        return self._prices.find(provider.model, provider=provider.name, base_url=provider.base_url)

    async def close(self) -> None:
        await self._upstream.close()

    def _target_at(self, host: Host, model: str) -> Target:
        spelt = {known.lower(): known for known in host.models}
        model = model if model.lower() in spelt else without_window(model)
        if host.models and model.lower() not in spelt:
            raise NoSuchModel(f"provider `{host.name}` has no model `{model}`; it has {_quote_names(host.models)}")
        return Target(host, spelt.get(model.lower(), model))

    def _first_of(self, host: Host) -> Target:
        if host.models:
            return Target(host, host.models[0])
        targets = (self._router.first_target(name) for name in (*self.config.aliases, _DEFAULT))
        found = next((one for one in targets if one is not None and one.provider == host and one.model != "*"), None)
        if found is None:
            raise NoSuchModel(f"provider `{host.name}` lists no models; use --model NAME or /model {host.name}/NAME")
        return found


def _quote_names(names: Any) -> str:
    return ", ".join(f"`{name}`" for name in names)
