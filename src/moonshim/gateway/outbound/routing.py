"""A model's name, as a client writes it -> the models at providers that it stands for, in the order to try them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Final, NamedTuple, cast

from moonshim.config import Config, RouteName, Target
from moonshim.config.environment import CLIENTS_OWN
from moonshim.engine.exchange import RequestTarget
from moonshim.engine.formats import without_window
from moonshim.errors import Problem, Refused
from moonshim.gateway.outbound.routes import sees_images
from moonshim.transformers import Chain

__all__ = ["MODELS_LISTED", "PICKER_PREFIX", "Resolution", "Router", "request_target"]

PICKER_PREFIX: Final = "claude-"
_LONGEST_NAME: Final = 512
"""A longer name is unknown: it is neither searched for nor compared."""
_SHOWN: Final = 80
_ANY: Final = "*"
"""In an alias's target: replaced by the requested name."""
_SUGGESTED: Final = 3
MODELS_LISTED: Final = "GET /v1/models lists the models."
_FAULT: Final = "+"
"""Separates a simulator model from the name of a fault."""


def request_target(target: Target, chain: Chain) -> RequestTarget:
    """How requests are prepared for one model at one provider, with the transformers configured for it."""
    provider = target.provider
    return RequestTarget(
        # What is learned about a host is not known about another one under the same name.
        key=(provider.name, provider.dialect, provider.host, provider.api_base_url, target.model),
        upstream=provider.dialect,
        host=provider.host,
        base_url=provider.api_base_url,
        model=target.model,
        options=chain.options,
        overrides=provider.overrides_for(target.model),
        transformers=chain.transformers,
        extra_body=provider.body_for(target.model),
        retry_empty_answer=provider.retry_empty_answer,
    )


class _Found(NamedTuple):
    """What a name resolves to. `name`: its spelling in the configuration, which is what keys are granted."""

    name: str
    targets: list[Target]
    can_be_routed: bool = False
    """Found by a pattern: the client did not choose this very model."""


class Resolution(NamedTuple):
    """Where the requests for a name may go."""

    targets: list[Target]
    """What the name itself stands for, in the order to try them."""
    routes: dict[RouteName, list[Target]] | None
    """The routes that the client may use; None: the name is never routed."""


class Router:
    """Resolves model names. The first match counts:

    1. an alias of exactly this name
    2. `provider/model` or `provider,model`; a provider without a list of models accepts any
    3. a model of this name: at every provider that lists it, in the order of the configuration
    4. one of these three, ignoring case
    5. `claude-NAME`, where NAME is one of these and a pattern such as `claude-*` exists: Claude Code's picker offers
       only names that contain `claude`
    6. an alias that is a pattern (`claude-*`), the longest first, then ignoring case; `provider/*` passes the name on

    `[1m]` after a name does not count, unless the configuration has the name with it.
    """

    def __init__(self, config: Config) -> None:
        self._providers = {provider.name: provider for provider in config.providers}
        self._provider_names = _Words(self._providers)
        self._models_of = {provider.name: _Words(provider.models) for provider in config.providers}
        self._listed: dict[str, list[Target]] = {}
        for provider in config.providers:
            for model in dict.fromkeys(provider.models):
                self._listed.setdefault(model, []).append(Target(provider, model))
        self._models = _Words(self._listed)
        self._with_window = {name for name in (*config.aliases, *self._listed) if name != without_window(name)}
        """Names that end in `[1m]` in the configuration itself."""
        # A target that leads nowhere was reported when the configuration was loaded; here it is skipped.
        led_to = {alias: self._targets_of(models) for alias, models in config.aliases.items()}
        self._aliases = {alias: targets for alias, targets in led_to.items() if targets}
        self._alias_names = _Words(self._aliases)
        patterns = [alias for alias in self._aliases if _is_pattern(alias)]
        self._patterns = sorted(patterns, key=lambda pattern: (-len(pattern), pattern))
        routes = {cast(RouteName, name): self._targets_of(models) for name, models in config.routes.targets.items()}
        if "image" in routes:
            routes["image"] = [one for one in routes["image"] if one.model == _ANY or sees_images(one)]
        self._routes = {route: targets for route, targets in routes.items() if targets}
        self._has_claude_pattern = any(fnmatchcase(f"{PICKER_PREFIX}x", pattern) for pattern in patterns)

    def targets(self, name: str, *, allowed: Sequence[str] = ()) -> list[Target]:
        """The targets to try, in order. Raises `Refused` (404) if there are none, or none that are allowed.

        `allowed`: the names or patterns of a gateway key; empty: all. A name that matches one of them is granted with
        everything it stands for. For any other name, only those models are tried that match one themselves, as `model`
        or `provider/model`: an alias never leads a key to a model that it may not use.
        """
        return self.resolve(name, allowed=allowed).targets

    def resolve(self, name: str, *, allowed: Sequence[str] = ()) -> Resolution:
        """The same, and the routes that requests for this name may take instead.

        Only a name that matched a pattern is routed, and not if the pattern passes it on (`provider/*`). A key reaches
        by a route only models that match one of `allowed` themselves, or that the name stands for.
        """
        found = self._find(name)
        targets = _filter_allowed(found, allowed) if found is not None else []
        if found is None or not targets:
            raise Refused(self._unknown_model(name, allowed))
        if not found.can_be_routed or not self._routes:
            return Resolution(targets, None)
        routes: dict[RouteName, list[Target]] = {}
        for route, of_route in self._routes.items():
            named = [_with_requested_name(target, name) for target in of_route]
            if usable := [one for one in named if not allowed or one in targets or _is_target_granted(one, allowed)]:
                routes[route] = usable
        return Resolution(targets, routes)

    def first_target(self, name: str) -> Target | None:
        """The first target for this name, without regard to keys."""
        found = self._find(name)
        return found.targets[0] if found is not None else None

    def names(self, allowed: Sequence[str] = (), *, for_claude: bool = False) -> list[str]:
        """The names to offer to a client: aliases that are not patterns, then models by their plain names.

        A model that several providers have, or whose plain name is an alias, is also listed as `provider/model`, so
        that each of them can be selected. `for_claude` adds `claude-NAME` for each.
        """
        names = [alias for alias in self._aliases if alias not in self._patterns]
        names += [model for model in self._listed if model not in self._aliases]
        for model, targets in self._listed.items():
            if len(targets) > 1 or model in self._aliases:
                names += [f"{target.provider.name}/{model}" for target in targets]
        if for_claude and self._has_claude_pattern:
            names += [PICKER_PREFIX + name for name in names if "claude" not in name.lower()]
        if not allowed:
            return names
        return [name for name in names if (found := self._find(name)) is not None and _filter_allowed(found, allowed)]

    # -- resolving ---------------------------------------------------------------------

    def _find(self, name: str) -> _Found | None:
        if len(name) > _LONGEST_NAME or not (name := self._without_window(name)):
            return None
        for any_case in (False, True):
            if (alias := self._alias_names.find(name, any_case)) is not None:
                return _Found(alias, self._aliases[alias])
            if (found := self._model(name, any_case)) is not None:
                return found
        if self._has_claude_pattern and name.startswith(PICKER_PREFIX):
            picked = name.removeprefix(PICKER_PREFIX)
            if (alias := self._alias_names.find(picked, False)) is not None:
                return _Found(alias, self._aliases[alias])
            if (found := self._model(picked, False)) is not None:
                return found
        for word, fold in ((name, str), (name.lower(), str.lower)):
            for pattern in self._patterns:
                if fnmatchcase(word, fold(pattern)):
                    targets = self._aliases[pattern]
                    chosen = [_with_requested_name(target, name) for target in targets]
                    return _Found(name, chosen, can_be_routed=all(target.model != _ANY for target in targets))
        return None

    def _without_window(self, name: str) -> str:
        return name if self._with_window and name.endswith(tuple(self._with_window)) else without_window(name)

    def _model(self, name: str, any_case: bool) -> _Found | None:
        found = self._at_provider(name, any_case)
        if found is None and (model := self._models.find(name, any_case)) is not None:
            return _Found(model, self._listed[model])
        return found

    def _at_provider(self, name: str, any_case: bool) -> _Found | None:
        """`provider/model`. Provider names may contain slashes too, so every slash is tried as the separator."""
        for at in (at for at, sign in enumerate(name) if sign in "/,"):
            provider = self._provider_names.find(name[:at].strip(), any_case)
            model = name[at + 1 :].strip()
            if provider is None or not model:
                continue
            models = self._models_of[provider]
            spelt = models.find(model, any_case) if models else model
            if spelt is not None:
                return _Found(f"{provider}/{spelt}", [Target(self._providers[provider], spelt)])
        return None

    def _targets_of(self, models: Iterable[str]) -> list[Target]:
        targets: list[Target] = []
        for model in models:
            name = self._without_window(model)
            found = self._model(name, False) or self._model(name, True)
            targets += [target for target in (found.targets if found else ()) if target not in targets]
        return targets

    # -- unknown names -----------------------------------------------------------------

    def _unknown_model(self, name: str, allowed: Sequence[str]) -> Problem:
        shown = name if len(name) <= _SHOWN else f"{name[:_SHOWN]}…"
        names = self.names(allowed)
        close = self._nearest(shown, names)
        takes_any = [provider for provider, models in self._models_of.items() if not models and not allowed]
        message = f"Model '{shown}' not found."
        if close:
            message += f" Did you mean {_quote(close)}? {MODELS_LISTED}"
        elif takes_any:
            # An agent's default, or a pattern, is not what a provider calls a model.
            own = _is_pattern(shown) or any(fnmatchcase(shown, pattern) for pattern in CLIENTS_OWN)
            ending = "/MODEL" if own else f"/{shown}"
            message += (
                f" {MODELS_LISTED} To send a name that is not listed, add its provider: {_quote(takes_any, ending)}."
            )
        elif names:
            message += f" Available models include {_quote(names)}. {MODELS_LISTED}"
        if _FAULT in shown:
            message += f" `{_FAULT}NAME` selects a fault, which only the simulator supports."
        return Problem(status=404, kind="not_found", message=message, code="model_not_found", param="model")

    def _nearest(self, shown: str, names: Sequence[str]) -> list[str]:
        """Likely intended names: those that match a pattern, or are spelt almost the same."""
        from difflib import get_close_matches

        word = shown.lower().partition(_FAULT)[0]
        at_providers = [
            f"{name}/{model}"
            for model in names
            for name, first_target in self._models_of.items()
            if model in first_target
        ]
        by_lower = {first_target.lower(): first_target for first_target in reversed([*names, *at_providers])}
        if _is_pattern(word):
            return [first_target for first_target in [*names, *at_providers] if fnmatchcase(first_target.lower(), word)]
        if "/" not in word:
            by_lower = {first_target.lower(): first_target for first_target in reversed(names)}
        return [by_lower[one] for one in get_close_matches(word, by_lower, n=_SUGGESTED, cutoff=0.5)]


class _Words:
    """Names, found by exact spelling or ignoring case; of two that differ in case only, the first."""

    def __init__(self, words: Iterable[str]) -> None:
        self._words = frozenset(words := list(words))
        self._lower = {word.lower(): word for word in reversed(words)}

    def __bool__(self) -> bool:
        return bool(self._words)

    def __contains__(self, word: object) -> bool:
        return word in self._words

    def find(self, word: str, any_case: bool) -> str | None:
        """The name as spelt in the list; None if it is not in it."""
        if any_case:
            return self._lower.get(word.lower())
        return word if word in self._words else None


def _is_pattern(name: str) -> bool:
    return any(sign in name for sign in "*?[")


def _with_requested_name(target: Target, name: str) -> Target:
    return Target(target.provider, name) if target.model == _ANY else target


def _filter_allowed(found: _Found, allowed: Sequence[str]) -> list[Target]:
    if not allowed or _is_granted(found.name, allowed):
        return list(found.targets)
    return [target for target in found.targets if _is_target_granted(target, allowed)]


def _is_target_granted(target: Target, allowed: Sequence[str]) -> bool:
    return _is_granted(target.model, allowed) or _is_granted(f"{target.provider.name}/{target.model}", allowed)


def _is_granted(name: str, allowed: Sequence[str]) -> bool:
    return any(name in (pattern, without_window(pattern)) or fnmatchcase(name, pattern) for pattern in allowed)


def _quote(names: Sequence[str], ending: str = "") -> str:
    return ", ".join(f"'{name}{ending}'" for name in names[:_SUGGESTED])
