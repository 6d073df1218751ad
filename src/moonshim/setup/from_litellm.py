"""A config.yaml of LiteLLM -> a configuration, and what became of each of its settings."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Final

from msgspec import Struct, field

from moonshim.config import ProviderConfig
from moonshim.config.endpoints import base_of, endpoint_of
from moonshim.config.problems import ConfigError, Path
from moonshim.engine.hosts.detect import host_of
from moonshim.engine.request.extra_body import RESERVED_FIELDS
from moonshim.setup.account import Account
from moonshim.setup.answers import HOSTS_BY_NAME
from moonshim.setup.converted import Converted, add_gateway_key, value_of
from moonshim.setup.document import Document, without_nulls
from moonshim.setup.litellm_tables import (
    BODY_FIELDS,
    DEFAULT_WHY,
    NO_COUNTERPART,
    NOT_NEEDED,
    PROVIDERS,
    LiteLLMProvider,
    model_at,
)

__all__ = ["convert_litellm"]

_VARIABLE: Final = "os.environ/"
_MILLION: Final = 1_000_000
_COSTS: Final = {
    "input_cost_per_token": "input",
    "output_cost_per_token": "output",
    "cache_read_input_token_cost": "cached",
    "cache_creation_input_token_cost": "cache_write",
    "cache_creation_input_token_cost_above_1hr": "cache_write_1h",
}
_MODEL_LIMITS: Final = {"max_input_tokens": "context_window", "max_output_tokens": "output_limit"}
_TOKENS: Final = ("max_tokens", "max_completion_tokens")
_TIMEOUTS: Final = ("timeout", "stream_timeout", "request_timeout")
_ADDRESSES: Final = ("base_url", "api_base")
"""LiteLLM uses the first of them that is set."""
_SETTINGS: Final = ("router_settings", "litellm_settings")
"""Both may have fallbacks, retries and timeouts."""


def convert_litellm(text: str, *, source: str, environ: Mapping[str, str]) -> Converted:
    """Convert the text of a file. Raises `ConfigError`, also if PyYAML is missing.

    The environment is used for the master key, of which a digest is stored, and to see which hosts have a key.
    """
    value = _read_yaml(text, source)
    if not isinstance(value, dict) or not isinstance(value.get("model_list"), list):
        raise ConfigError([f"{source}: not a configuration of LiteLLM: it has no `model_list`"])
    converted = _Conversion(value, environ).run()
    if not converted.document["providers"]:
        raise ConfigError([f"{source}: no entry of `model_list` uses a protocol that Moonshim supports"])
    return converted


def _read_yaml(text: str, source: str) -> Any:
    try:
        yaml = import_module("yaml")
    except ImportError:
        raise ConfigError(["reading YAML needs PyYAML, which is not installed: pip install pyyaml"]) from None
    try:
        return _with_text_keys(yaml.safe_load(text))
    except RecursionError:
        raise ConfigError([f"{source}: nested too deeply"]) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f":{mark.line + 1}:{mark.column + 1}" if mark is not None else ""
        raise ConfigError([f"{source}{place}: {getattr(error, 'problem', None) or 'not valid YAML'}"]) from None


def _with_text_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _with_text_keys(one) for key, one in value.items()}
    return [_with_text_keys(one) for one in value] if isinstance(value, list) else value


class _Deployment(Struct):
    """One entry of `model_list`."""

    kind: LiteLLMProvider
    model: str
    fields: dict[str, Any]
    """Of the provider: address, key, headers."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Of the model: limits, `body`."""
    order: float = math.inf
    """LiteLLM prefers a deployment with an order to one without."""

    @property
    def takes_any(self) -> bool:
        return "*" in self.model


class _Credential(Struct, frozen=True):
    """An entry of `credential_list`: parameters for the deployments that name it."""

    values: dict[str, Any]
    path: Path


class _Conversion:
    """The conversion of one file."""

    def __init__(self, value: dict[str, Any], environ: Mapping[str, str]) -> None:
        self._value, self._environ = value, environ
        self._account = Account(value)
        self._document: Document = {"providers": [], "aliases": {}, "prices": {}}
        self._signatures: list[str] = []
        self._targets: dict[str, list[tuple[float, str]]] = {}
        """By the name that clients request."""
        self._names: list[tuple[Path, str]] = []
        """Where these names are in the file."""
        inner = value.get("environment_variables")
        self._own_variables: dict[str, Any] = inner if isinstance(inner, dict) else {}

    def run(self) -> Converted:
        for place, entry in enumerate(self._value["model_list"]):
            self._entry(entry if isinstance(entry, dict) else {}, ("model_list", place))
        targets = {
            name: [target for _, target in sorted(found, key=lambda one: one[0])]
            for name, found in self._targets.items()
        }
        for section in _SETTINGS:
            self._aliases(section, targets)
        for section in _SETTINGS:
            self._fallbacks(section, targets)
            self._numbers(section)
        self._general()
        self._document["aliases"] = {
            name: found[0] if len(found) == 1 else found
            for name, found in targets.items()
            if found and not self._is_listed(name, found)
        }
        for path, name in self._names:
            has_alias = name in self._document["aliases"]
            self._account.taken(path, f'aliases."{name}"' if has_alias else "the name of the model itself")
        self._rest()
        return Converted(self._document, self._account)

    def _is_listed(self, name: str, targets: list[str]) -> bool:
        """Whether the name works without an alias: it is that of the only target."""
        having = [one["name"] for one in self._document["providers"] if name in map(_id_of, one.get("models", ()))]
        return [f"{provider}/{name}" for provider in having] == targets

    # -- model_list ----------------------------------------------------------------------

    def _entry(self, entry: dict[str, Any], path: Path) -> None:
        own = entry.get("litellm_params")
        credential = self._credential(own if isinstance(own, dict) else {})
        params = dict(_items(credential and credential.values)) | dict(_items(own))
        found = self._deployment(params, (*path, "litellm_params"))
        name = entry.get("model_name")
        if isinstance(found, str) or not isinstance(name, str):
            self._account.no_counterpart(path, found if isinstance(found, str) else "`model_name` is missing")
            return
        info = entry.get("model_info")
        info = info if isinstance(info, dict) else {}
        for key, limit in _MODEL_LIMITS.items():
            if isinstance(info.get(key), int) and info[key] > 0:
                found.settings[limit] = info[key]
        provider, place = self._provider(found)
        to = f"providers[{place}]"
        if credential is not None:
            self._account_for_credential(credential, dict(_items(own)), (*path, "litellm_params"), to)
        self._account_for_params(found, params, (*path, "litellm_params"), to)
        self._prices(f"{provider}/{found.model}", params, (*path, "litellm_params"))
        self._prices(f"{provider}/{found.model}", info, (*path, "model_info"))
        for key, limit in _MODEL_LIMITS.items():
            if limit in found.settings:
                self._account.taken((*path, "model_info", key), f"{to}.models: {limit}")
        self._account.not_needed((*path, "model_info"), "Moonshim knows the models of each host")
        self._name(name, found, provider, (*path, "model_name"))

    def _name(self, name: str, found: _Deployment, provider: str, path: Path) -> None:
        """The name that clients request -> an alias."""
        if not found.takes_any:
            self._targets.setdefault(name, []).append((found.order, f"{provider}/{found.model}"))
            self._names.append((path, name))
        elif name == f"{provider}/*":
            self._account.not_needed(path, f"any model can be requested as `{provider}/MODEL`")
        elif "/" not in name and found.model in ("*", name):
            self._targets.setdefault(name, []).append((found.order, f"{provider}/*"))
            self._names.append((path, name))
        else:
            self._account.no_counterpart(path, f"request these models as `{provider}/MODEL`")

    def _credential(self, params: dict[str, Any]) -> _Credential | None:
        """The entry of `credential_list` that a deployment names. Its own parameters go before those."""
        for place, one in enumerate(_list(self._value.get("credential_list"))):
            name = one.get("credential_name") if isinstance(one, dict) else None
            if name is not None and name == params.get("litellm_credential_name"):
                values = dict(_items(one.get("credential_values")))
                known: dict[str, Any] = {key: values[key] for key in ("api_key", *_ADDRESSES) if key in values}
                return _Credential(known, ("credential_list", place))
        return None

    def _account_for_credential(self, credential: _Credential, own: dict[str, Any], path: Path, to: str) -> None:
        self._account.taken((*path, "litellm_credential_name"), f"{to}: the key and address of the credential")
        self._account.not_needed((*credential.path, "credential_name"), "each provider has its own key")
        for key in credential.values:
            if key not in own:
                where = "api_key" if key == "api_key" else "api_base_url"
                self._account.taken(
                    (*credential.path, "credential_values", key), f"{where} of the providers that use it"
                )

    def _deployment(self, params: dict[str, Any], path: Path) -> _Deployment | str:
        """The deployment, or the reason why it has no counterpart."""
        whole = params.get("model")
        if not isinstance(whole, str) or not whole.strip():
            return "`litellm_params.model` is missing"
        prefix, _, model = whole.strip().partition("/")
        if isinstance(custom := params.get("custom_llm_provider"), str):
            prefix, model = custom, model if prefix == custom else whole.strip()
        kind = PROVIDERS.get(prefix) if model else None
        if kind is None:
            return f"the protocol of `{prefix}` is not supported" if model else "its provider is not named"
        address = next((params[key] for key in _ADDRESSES if params.get(key)), kind.url)
        if not address or not isinstance(address, str):
            return "`api_base` is missing"
        address = _text(address if kind.dialect is not None else _exact_address(address))
        fields: dict[str, Any] = {"api_base_url": address}
        if kind.host is not None and host_of(address) == "generic":
            fields["host"] = kind.host
        if kind.dialect is not None:
            fields["dialect"] = kind.dialect
        fields |= self._key(params.get("api_key"), kind)
        headers = {key: one for name in ("headers", "extra_headers") for key, one in _items(params.get(name))}
        if isinstance(organization := params.get("organization"), str):
            headers["OpenAI-Organization"] = organization
        if headers:
            fields["headers"] = {key: _text(str(one)) for key, one in headers.items()}
        if (seconds := next((params[key] for key in _TIMEOUTS if _is_positive(params.get(key))), None)) is not None:
            fields["timeouts"] = {"first_byte": seconds}
        order = params.get("order")
        rank = float(order or 0) if _is_positive(order) else math.inf
        deployment = _Deployment(kind, model_at(prefix, model), fields, order=rank)
        if (tokens := next((params[key] for key in _TOKENS if _is_positive(params.get(key))), None)) is not None:
            deployment.settings["default_max_tokens"] = int(tokens)
        body = {key: params[key] for key in BODY_FIELDS if params.get(key) is not None}
        body |= {key: one for key, one in _items(params.get("extra_body")) if key not in RESERVED_FIELDS}
        if body:
            deployment.settings["body"] = _text(without_nulls(body))
        return deployment

    def _key(self, key: Any, kind: LiteLLMProvider) -> dict[str, str]:
        if not isinstance(key, str) or not key.strip():
            name = kind.variable
            is_set = name in self._own_variables or bool(value_of(name, self._environ))
            if name is None or not (kind.needs_key or is_set):
                return {}
        elif key.startswith(_VARIABLE):
            name = key.removeprefix(_VARIABLE)
        else:
            return {"api_key": _text(key.strip())}
        own = self._own_variables.get(name)
        if isinstance(own, str) and not own.startswith(_VARIABLE):
            self._account.taken(("environment_variables", name), "api_key of the providers that use it")
            return {"api_key": _text(own)}
        return {"api_key_env": name}

    def _provider(self, found: _Deployment) -> tuple[str, int]:
        """The provider with these fields; a new one if there is none, or if it has the model with other settings."""
        base = _name_of(found)
        signature = json.dumps([base, found.takes_any, found.fields], sort_keys=True, default=str)
        entry: Any = {"id": found.model, **found.settings} if found.settings else found.model
        for place, provider in enumerate(self._document["providers"]):
            if self._signatures[place] != signature:
                continue
            same = [model for model in provider.get("models", ()) if _id_of(model) == found.model]
            if same and same != [entry]:
                continue
            if not same and not found.takes_any:
                provider["models"].append(entry)
            return provider["name"], place
        taken = {provider["name"] for provider in self._document["providers"]}
        names = (base if number == 1 else f"{base}-{number}" for number in range(1, 10_000))
        name = next(name for name in names if name not in taken)
        made = {"name": name} | found.fields
        if found.takes_any:
            made |= found.settings
        else:
            made["models"] = [entry]
        self._document["providers"].append(made)
        self._signatures.append(signature)
        return name, len(self._signatures) - 1

    def _account_for_params(self, found: _Deployment, params: dict[str, Any], path: Path, to: str) -> None:
        taken = self._account.taken
        taken((*path, "model"), f"{to}, which takes any model" if found.takes_any else f"{to}.models")
        taken((*path, "custom_llm_provider"), f"{to}.name")
        for key in _ADDRESSES:
            if key == next((one for one in _ADDRESSES if params.get(one)), None):
                taken((*path, key), f"{to}.api_base_url")
            else:
                self._account.no_counterpart((*path, key), "LiteLLM uses `base_url` instead")
        if "api_key_env" in found.fields:
            taken((*path, "api_key"), f"{to}.api_key_env")
        elif "api_key" in found.fields:
            taken((*path, "api_key"), f"{to}.api_key (better: store it in a variable, and name that in api_key_env)")
        else:
            self._account.not_needed((*path, "api_key"), "it is empty")
        for key in ("headers", "extra_headers", "organization"):
            taken((*path, key), f"{to}.headers")
        for keys, where in ((_TIMEOUTS, f"{to}.timeouts.first_byte"), (_TOKENS, f"{to}.models: default_max_tokens")):
            used = next((key for key in keys if _is_positive(params.get(key))), None)
            for key in keys:
                if key == used:
                    taken((*path, key), where)
                elif key in params:
                    self._account.no_counterpart((*path, key), f"`{used}` is used instead" if used else "not a number")
        for key in BODY_FIELDS:
            if params.get(key) is not None:
                taken((*path, key), f"{to}.models: body.{key} (overrides what clients send)")
        for key, one in _items(params.get("extra_body")):
            if key in RESERVED_FIELDS:
                self._account.no_counterpart((*path, "extra_body", key), "it comes from the client's request")
            self._account.drop_nulls({key: one}, (*path, "extra_body"))
            taken((*path, "extra_body", key), f"{to}.models: body.{key}")
        taken((*path, "order"), "the order of the targets in [aliases]")

    def _prices(self, target: str, values: Mapping[str, Any], path: Path) -> None:
        price = {
            name: round(cost * _MILLION, 6)
            for key, name in _COSTS.items()
            if (cost := _cost(values.get(key))) is not None
        }
        complete = "input" in price and "output" in price
        if complete:
            self._document["prices"].setdefault(target, price)
        for key, name in _COSTS.items():
            if complete and name in price:
                self._account.taken((*path, key), f'prices."{target}".{name}, per million tokens')
            else:
                self._account.no_counterpart((*path, key), "a price needs both input and output")

    # -- names ---------------------------------------------------------------------------

    def _aliases(self, section: str, targets: dict[str, list[str]]) -> None:
        """`model_group_alias` and `model_alias_map`: another name for a name."""
        for key in ("model_group_alias", "model_alias_map"):
            for name, one in _items(self._in(section, key)):
                path: Path = (section, key, name)
                model = one.get("model") if isinstance(one, dict) else one
                if isinstance(model, str) and model in targets:
                    targets.setdefault(name, list(targets[model]))
                    if isinstance(one, dict):
                        self._account.no_counterpart((*path, "hidden"), "every alias is listed")
                    self._account.taken(path, f'aliases."{name}"')
                else:
                    self._account.no_counterpart(path, "`model_list` has no model of this name that could be converted")

    def _fallbacks(self, section: str, targets: dict[str, list[str]]) -> None:
        before = {name: list(found) for name, found in targets.items()}
        for place, entry in enumerate(_list(self._in(section, "fallbacks"))):
            for name, others in _items(entry):
                for number, other in enumerate(_list(others)):
                    path: Path = (section, "fallbacks", place, name, number)
                    names = list(targets) if name == "*" else [name]
                    self._fall_back(names, other, before, targets, path)
        for number, other in enumerate(_list(self._in(section, "default_fallbacks"))):
            self._fall_back(list(targets), other, before, targets, (section, "default_fallbacks", number))

    def _fall_back(
        self, names: list[str], other: Any, before: dict[str, list[str]], targets: dict[str, list[str]], path: Path
    ) -> None:
        if not isinstance(other, str) or other not in before or not all(name in targets for name in names):
            self._account.no_counterpart(path, "`model_list` has no model of this name that could be converted")
            return
        for name in names:
            targets[name] += [target for target in before[other] if target not in targets[name]]
        what = f'aliases."{names[0]}"' if len(names) == 1 else "all aliases"
        self._account.taken(path, f"{what}: another target, tried if the ones before fail")

    # -- other settings ------------------------------------------------------------------

    def _numbers(self, section: str) -> None:
        retries = self._in(section, "num_retries")
        if isinstance(retries, int) and not isinstance(retries, bool) and retries >= 0:
            self._put("retries", "attempts", retries + 1, (section, "num_retries"), "; the first attempt counts too")
        if _is_positive(fails := self._in(section, "allowed_fails")):
            self._put("retries", "breaker_failures", int(fails), (section, "allowed_fails"))
        if _is_positive(seconds := self._in(section, "cooldown_time")):
            self._put("retries", "breaker_seconds", seconds, (section, "cooldown_time"))
        for key in _TIMEOUTS:
            if _is_positive(seconds := self._in(section, key)):
                self._put("timeouts", "first_byte", seconds, (section, key))
        if self._in(section, "set_verbose") is True:
            self._put("gateway", "log_level", "debug", (section, "set_verbose"))

    def _put(self, table: str, key: str, value: Any, path: Path, remark: str = "") -> None:
        settings = self._document.setdefault(table, {})
        if settings.setdefault(key, value) == value:
            self._account.taken(path, f"{table}.{key}{remark}")
        else:
            self._account.no_counterpart(path, f"{table}.{key} is already set by another setting of the file")

    def _general(self) -> None:
        key = self._in("general_settings", "master_key")
        path: Path = ("general_settings", "master_key")
        if isinstance(key, str) and key.strip():
            name = key.removeprefix(_VARIABLE) if key.startswith(_VARIABLE) else None
            own = self._own_variables.get(name or "")
            if isinstance(own, str) and own:
                self._account.taken(("environment_variables", name or ""), "keys[0], as a digest")
            secret = (own if isinstance(own, str) else value_of(name, self._environ)) if name else key.strip()
            if secret:
                add_gateway_key(self._document, "master", secret)
                self._account.taken(path, "keys[0], as a digest: clients use the same key as before")
            else:
                self._document.setdefault("gateway", {})["require_keys"] = True
                why = f"environment variable {name} is not set; create a key with `moonshim keys new NAME`"
                self._account.no_counterpart(path, why)
        if _is_positive(size := self._in("general_settings", "max_request_size_mb")):
            self._put("limits", "body_bytes", int(size * 1024 * 1024), ("general_settings", "max_request_size_mb"))

    def _rest(self) -> None:
        """Settings that are not taken over, by their names, wherever they are."""
        for entry in self._account.entries():
            for depth, step in enumerate(entry.path, 1):
                if step in NOT_NEEDED:
                    self._account.not_needed(entry.path[:depth], NOT_NEEDED[str(step)])
                elif step in NO_COUNTERPART:
                    self._account.no_counterpart(entry.path[:depth], NO_COUNTERPART[str(step)])
        for section, why in DEFAULT_WHY.items():
            self._account.no_counterpart((section,), why)

    def _in(self, section: str, key: str) -> Any:
        inner = self._value.get(section)
        return inner.get(key) if isinstance(inner, dict) else None


def _exact_address(address: str) -> str:
    """The address with the path that LiteLLM posts to, if Moonshim would complete it in another way.

    >>> _exact_address("http://lab.test/v1"), _exact_address("http://lab.test"), _exact_address("https://api.groq.com")
    ('http://lab.test/v1', 'http://lab.test/chat/completions', 'https://api.groq.com')
    """
    if address.startswith(_VARIABLE) or host_of(address) != "generic" or base_of(address) != address:
        return address
    exact = f"{address.rstrip('/')}/chat/completions"
    return address if endpoint_of(ProviderConfig(name="", api_base_url=address)) == exact else exact


def _name_of(found: _Deployment) -> str:
    """The name of the provider: that of the host, if it is known."""
    host = host_of(found.fields["api_base_url"]).removesuffix("-anthropic")
    return found.kind.name if found.kind.name in HOSTS_BY_NAME or host == "generic" else host


def _id_of(model: Any) -> Any:
    return model["id"] if isinstance(model, dict) else model


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    yield from value.items() if isinstance(value, dict) else ()


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _cost(value: Any) -> float | None:
    """A price per token; YAML reads `3e-06` as text.

    >>> _cost("3e-06"), _cost(0), _cost("free"), _cost("nan"), _cost(-1)
    (3e-06, 0.0, None, None, None)
    """
    try:
        cost = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return cost if 0 <= cost < math.inf else None


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _text(value: Any) -> Any:
    """Strings as a configuration writes them: `os.environ/NAME` is a variable, and a dollar sign is escaped."""
    match value:
        case str() if value.startswith(_VARIABLE):
            return f"${{{value.removeprefix(_VARIABLE)}}}"
        case str():
            return value.replace("$", "$$")
        case dict():
            return {key: _text(one) for key, one in value.items()}
        case list():
            return [_text(one) for one in value]
    return value
