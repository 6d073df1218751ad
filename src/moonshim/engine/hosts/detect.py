"""A base URL and a model name -> the profile of that host and model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec

from moonshim.engine.formats import is_kimi_model
from moonshim.engine.hosts.profile import Generation, HostProfile, UpstreamDialect
from moonshim.engine.hosts.table import HOSTS, RULES
from moonshim.engine.values.type_names import describe_type, name_types
from moonshim.engine.wire.json_fields import shorten_repr, wrong_type
from moonshim.errors import InvalidInput, InvalidOption

__all__ = ["Family", "describe_guess", "family_of", "generation_of", "host_of", "profile_for"]

Family: TypeAlias = Literal[
    "kimi", "qwen", "deepseek", "llama", "gemma", "glm", "mistral", "hermes", "minimax", "gpt", "claude", "other"
]

_URL: Final = re.compile(r"\s*(?:[a-z][a-z0-9+.-]*:)?(?://)?(?:[^/?#@]*@)?([^/?#:]+)(?::\d*)?([^?#]*)", re.ASCII)
_DOMAINS: Final[dict[str, str]] = {
    "moonshot.ai": "moonshot",
    "moonshot.cn": "moonshot",
    "kimi.com": "kimi-coding",
    "kimi.ai": "kimi-coding",  # the international region of Kimi Code
    "openrouter.ai": "openrouter",
    "fireworks.ai": "fireworks",
    "together.xyz": "together",
    "together.ai": "together",
    "siliconflow.cn": "siliconflow",
    "siliconflow.com": "siliconflow",
    "deepinfra.com": "deepinfra",
    "groq.com": "groq",
    "api.nvidia.com": "nim",
    "opencode.ai": "opencode",
    "bedrock-runtime.*.amazonaws.com": "bedrock",
    "bedrock-runtime-fips.*.amazonaws.com": "bedrock",
    "bedrock-mantle.*.api.aws": "bedrock",
    "baseten.co": "baseten",
    "novita.ai": "novita",
    "nebius.com": "nebius",
    "nebius.ai": "nebius",  # the address of Nebius AI Studio, which many configurations still have
    "modal.run": "modal",
    "modal.direct": "modal",
    "api.cloudflare.com": "cloudflare",
    "ai.cloudflare.com": "cloudflare",
    "ai-gateway.vercel.sh": "vercel",
    "ollama.com": "ollama",
    "volces.com": "volcengine",
    "bytepluses.com": "volcengine",
    "dashscope.aliyuncs.com": "alibaba",
    "dashscope-intl.aliyuncs.com": "alibaba",
    "dashscope-us.aliyuncs.com": "alibaba",
    "ai.azure.com": "azure",
    "openai.azure.com": "azure",
    "cognitiveservices.azure.com": "azure",
}
"""The last two or three labels of a host name; a star stands for a region between the first label and the rest."""
_OWN_MODELS: Final[dict[str, tuple[set[str], str]]] = {
    "kimi-coding": ({"coding"}, "moonshot"),
    "cloudflare": ({"ai", "workers-ai"}, "generic"),
}
"""Hosts that share an address with another: a part of their paths, and the other one. Cloudflare's AI Gateway forwards
to any host."""
_PATTERNS: Final = frozenset({"signature_pattern", "tool_name_pattern"})
"""Fields that are regular expressions."""
_MAX_CACHED_NAME: Final = 256
"""Longest model name that is cached: clients choose the names."""
_MESSAGES_HOST: Final = {"moonshot": "moonshot-anthropic"}

# As in formats.detect, followed by the version: `k2p5`, `k2.5`, `k2-5`; four digits are a date (`k2-0905`).
_GENERATION: Final = re.compile(
    r"(?:(?<![^\W_])|(?<=kimi))k([23])(?:(?:[.p]([0-9]{1,2})|[_-]([0-9]))(?![0-9]))?(?![^\W_])"
)
_LATER: Final = re.compile(r"(?:(?<![^\W_])|(?<=kimi))k([0-9]{1,2})(?:[.p][0-9]+)?(?![^\W_])")
"""The same for any number, in the name of a Kimi."""
_VERSIONS: Final[dict[str, tuple[tuple[int, Generation], ...]]] = {
    # Newest first: an unknown version is treated as the latest known one before it.
    "2": ((7, "k2.7"), (6, "k2.6"), (5, "k2.5"), (0, "k2")),
    "3": ((1, "k3.1"), (0, "k3")),
}
_NEWEST: Final[Generation] = "k3.1"
# Names without a generation. The newest coding model is K2.7, whose `-highspeed` variant shares these names; K3 also
# accepts everything that K2.7's stricter rules allow.
_ALIASES: Final[dict[str, Generation]] = {"kimi-for-coding": "k2.7", "kimi-latest": "k2.7"}

_FAMILIES: Final[tuple[tuple[str, Family], ...]] = (
    ("hermes", "hermes"),  # before llama: Hermes-3-Llama-3.1
    ("qwen", "qwen"),
    ("qwq", "qwen"),
    ("deepseek", "deepseek"),
    ("gemma", "gemma"),
    ("glm", "glm"),
    ("mistral", "mistral"),
    ("ministral", "mistral"),
    ("magistral", "mistral"),
    ("devstral", "mistral"),
    ("codestral", "mistral"),
    ("mixtral", "mistral"),
    ("pixtral", "mistral"),
    ("minimax", "minimax"),
    ("llama", "llama"),
    ("claude", "claude"),
    ("gpt", "gpt"),
)


def host_of(base_url: str | None) -> str:
    """The host that a base URL belongs to; `generic` if it is unknown, malformed or missing.

    >>> host_of("https://api.moonshot.ai/v1"), host_of("https://api.moonshot.cn/anthropic")
    ('moonshot', 'moonshot-anthropic')
    >>> host_of("https://api.kimi.com/coding/v1"), host_of("http://localhost:8000/v1"), host_of("::?")
    ('kimi-coding', 'generic', 'generic')
    """
    found = _URL.match(base_url.lower()) if isinstance(base_url, str) else None
    if found is None:
        return "generic"
    labels, path = found[1].rstrip(".").split("."), found[2].split("/")
    # Compare whole labels: api.moonshot.ai.example.com belongs to another host.
    names = (".".join(labels[-3:]), ".".join(labels[-2:]), ".".join((labels[0], "*", *labels[-2:])))
    host = next((_DOMAINS[name] for name in names if name in _DOMAINS), "generic")
    if host in _OWN_MODELS and not _OWN_MODELS[host][0].intersection(path):
        return _OWN_MODELS[host][1]
    return _MESSAGES_HOST.get(host, host) if "anthropic" in path else host


def generation_of(model: str) -> Generation:
    """The Kimi generation of a model; `kimi` for a Kimi without one in its name, `other` for every other model.

    A version, or a generation, that is higher than those known is treated as the latest known one before it.

    >>> [generation_of(name) for name in ("kimi-k2-0905-preview", "moonshotai/Kimi-K2-Thinking", "kimi-k2p5")]
    ['k2', 'k2-thinking', 'k2.5']
    >>> [generation_of(name) for name in ("kimi-k2.7-code", "k3-256k", "k3.1-pro", "kimi-for-coding", "gpt-5")]
    ['k2.7', 'k3', 'k3.1', 'k2.7', 'other']
    >>> [generation_of(name) for name in ("kimi-k4", "my-kimi")]
    ['k3.1', 'kimi']
    """
    name = model.lower()
    found = _GENERATION.search(name)
    if found is not None:
        version = int(found[2] or found[3] or 0)
        generation = next(known for least, known in _VERSIONS[found[1]] if version >= least)
        return "k2-thinking" if generation == "k2" and "thinking" in name else generation
    if "kimi" not in name:
        return "other"
    later = _LATER.search(name)
    if later is not None and int(later[1]) > max(map(int, _VERSIONS)):
        return _NEWEST
    return next((generation for alias, generation in _ALIASES.items() if alias in name), "kimi")


def describe_guess(model: str) -> str | None:
    """What is assumed about a Kimi whose name does not have a known generation; None if nothing has to be.

    >>> describe_guess("kimi-k3"), describe_guess("gpt-5")
    (None, None)
    """
    generation = generation_of(model)
    if generation == "kimi":
        return (
            f"the name {model!r} does not say which Kimi generation it is, so the strictest rules common to all apply;"
            " the profile field `generation` selects one"
        )
    name = model.lower()
    found = _GENERATION.search(name)
    if found is None:
        is_known = generation == "other" or any(alias in name for alias in _ALIASES)
    else:
        # A date or a variant (`k2-thinking`) is not a version.
        version = int(found[2] or found[3] or 0)
        is_known = version <= max(known for known, _ in _VERSIONS[found[1]])
    if is_known:
        return None
    return (
        f"{model!r} is newer than the known Kimi generations, and is treated as {generation}; the profile field"
        " `generation` selects another"
    )


def family_of(model: str) -> Family:
    """The model family that a name belongs to.

    >>> family_of("k3"), family_of("qwen3-coder-plus"), family_of("Hermes-3-Llama-3.1"), family_of("my-model")
    ('kimi', 'qwen', 'hermes', 'other')
    """
    if is_kimi_model(model):
        return "kimi"
    name = model.lower()
    return next((family for part, family in _FAMILIES if part in name), "other")


def profile_for(
    *,
    model: str,
    host: str | None = None,
    base_url: str | None = None,
    upstream: str = "openai_chat",
    overrides: Mapping[str, Any] | None = None,
) -> HostProfile:
    """The host profile for this host and model.

    `host` is the name of the host. Without it, the host is detected from `base_url`. `moonshot-anthropic` always uses
    Messages, whatever `upstream` is, and `upstream="anthropic"` selects it for `moonshot`. `overrides` sets fields by
    name; `host`, `generation` and `dialect` select other rules.

    Raises `InvalidInput` for an unknown host or dialect, and `InvalidOption` for an unknown field or an invalid value.

    >>> profile_for(host="moonshot", model="kimi-k2.6").lost_reasoning
    ''
    >>> profile_for(base_url="http://localhost:8000/v1", model="k3", overrides={"tool_limit": 64}).tool_limit
    64
    """
    if not isinstance(model, str):
        raise wrong_type("model", "a string", model)
    checked = _check_overrides(overrides)
    find = _profile if len(model) <= _MAX_CACHED_NAME else _profile.__wrapped__
    try:
        return find(model, host, base_url, upstream, tuple(checked.items()))
    except TypeError:  # an argument is not hashable: rare, and not worth caching
        return _profile.__wrapped__(model, host, base_url, upstream, tuple(checked.items()))


@lru_cache(512)
def _profile(
    model: str, host: str | None, base_url: str | None, upstream: str, overrides: tuple[tuple[str, Any], ...]
) -> HostProfile:
    """Cached per host and model: going through the table costs as much as the rest of the work."""
    checked = dict(overrides)
    chosen = _check_choice(checked.get("host", host if host is not None else host_of(base_url)), HOSTS, "host")
    dialect = _check_choice(checked.get("dialect", upstream), get_args(UpstreamDialect), "upstream")
    if dialect == "anthropic":
        chosen = _MESSAGES_HOST.get(chosen, chosen)
    elif chosen in _MESSAGES_HOST.values():
        dialect = "anthropic"
    generation = checked.get("generation", generation_of(model))
    name = model.lower()
    fields: dict[str, Any] = {}
    for rule in RULES:
        if (
            chosen in rule.hosts
            and generation in rule.generations
            and dialect in rule.dialects
            and any(part in name for part in rule.models)
        ):
            fields |= rule.fields
    fixed = {"host": chosen, "generation": generation, "dialect": dialect}
    return HostProfile(**(fields | checked | fixed))


def _check_overrides(overrides: Mapping[str, Any] | None) -> dict[str, Any]:
    """The overrides, converted to the types of their fields."""
    if not overrides and (overrides is None or isinstance(overrides, Mapping)):
        return {}
    if not isinstance(overrides, Mapping):
        raise InvalidOption(f"overrides: expected an object, got {describe_type(overrides)}", field="overrides")
    kinds = _field_types()
    checked: dict[str, Any] = {}
    for field, value in overrides.items():
        if field not in kinds:
            hint = _nearest(str(field), kinds) or f"the fields are {', '.join(kinds)}"
            raise InvalidOption(f"unknown host profile field {field!r} ({hint})", field=str(field))
        try:
            checked[field] = msgspec.convert(msgspec.to_builtins(value), kinds[field])
        except (msgspec.ValidationError, TypeError) as error:
            words = _literal_values(kinds[field])
            near = _nearest(value, words) if isinstance(value, str) else ""
            hint = f" ({near})" if near else ""
            wrong_word = words and "enum value" in str(error)
            reason = f"expected one of {', '.join(words)}" if wrong_word else name_types(error)
            raise InvalidOption(
                f"invalid value {shorten_repr(value)} for {field}: {reason}{hint}", field=field
            ) from None
        if field in _PATTERNS and checked[field] is not None:
            _check_pattern(field, checked[field])
    return checked


def _check_pattern(field: str, pattern: str) -> None:
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidOption(
            f"invalid value {shorten_repr(pattern)} for {field}: not a regular expression: {error}", field=field
        ) from None


@cache
def _field_types() -> dict[str, Any]:
    """The annotation of each field."""
    return {field.name: field.type for field in msgspec.structs.fields(HostProfile)}


def _check_choice(name: object, names: tuple[str, ...], field: str) -> Any:
    if isinstance(name, str) and name in names:
        return name
    shown = repr(name) if isinstance(name, str) else type(name).__name__
    near = _nearest(name, names) if isinstance(name, str) else ""
    hint = f" ({near})" if near else ""
    raise InvalidInput(f"unknown {field} {shown}{hint}; expected one of: {', '.join(names)}", field=field)


def _literal_values(kind: Any) -> list[str]:
    """The strings allowed by an annotation that is, or contains, a `Literal`."""
    parts = get_args(kind)
    return [word for part in parts for word in ([part] if isinstance(part, str) else _literal_values(part))]


def _nearest(word: str, words: Iterable[str]) -> str:
    import difflib

    known = list(words)
    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {close[0]!r}?" if close else ""
