"""A provider's address, in any of its usual forms -> the URL that requests are posted to."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from moonshim.config.model import ProviderConfig, Target
from moonshim.engine.hosts.detect import host_of, profile_for
from moonshim.engine.hosts.profile import HostProfile

__all__ = [
    "base_of",
    "dialect_of",
    "endpoint_of",
    "is_loopback",
    "models_url",
    "profile_of",
    "usages_url",
    "without_secrets",
]

# The hosts' own paths when only their name was given; everywhere else it is /v1.
_ROOTS: Final[dict[str, str]] = {
    "openrouter": "/api/v1",
    "groq": "/openai/v1",
    "deepinfra": "/v1/openai",
    "fireworks": "/inference/v1",
    "kimi-coding": "/coding/v1",
    "opencode": "/zen/v1",
    "novita": "/openai/v1",
    "volcengine": "/api/v3",
    "alibaba": "/compatible-mode/v1",
    "azure": "/openai/v1",
}
_POSTED: Final = re.compile(r"/(chat/completions|messages|completions|responses)/?$")
_VERSION: Final = re.compile(r"/v\d+[a-z0-9]*(?:/|$)")
_MESSAGES: Final = re.compile(r"(?:^|/)anthropic(?:/|$)|/messages/?$")
_LOOPBACK: Final = re.compile(r"localhost|.+\.localhost|127(?:\.\d{1,3}){3}|::1")


def endpoint_of(provider: ProviderConfig) -> str:
    """The URL for requests to this provider.

    >>> endpoint_of(ProviderConfig(name="or", api_base_url="https://openrouter.ai/api"))
    'https://openrouter.ai/api/v1/chat/completions'
    >>> endpoint_of(ProviderConfig(name="ms", api_base_url="https://api.moonshot.ai/anthropic", dialect="anthropic"))
    'https://api.moonshot.ai/anthropic/v1/messages'
    """
    return _endpoint(provider.api_base_url, provider.dialect)


def profile_of(target: Target) -> HostProfile:
    """What this model at this provider needs, with what the user has configured."""
    provider = target.provider
    return profile_for(
        model=target.model,
        host=provider.host,
        base_url=provider.api_base_url,
        upstream=provider.dialect,
        overrides=provider.overrides_for(target.model) or None,
    )


@lru_cache(256)
def _endpoint(address: str, dialect: str) -> str:
    parts = urlsplit(address.strip())
    posted = _POSTED.search(parts.path)
    path = (parts.path[: posted.start()] if posted else parts.path).rstrip("/")
    if dialect == "anthropic":
        # Anthropic's clients append /v1/messages to the base URL they are given.
        whole = _VERSION.search(path) or (posted and posted[1] == "messages")
        path = f"{path}/messages" if whole else f"{path}/v1/messages"
    elif posted:
        path = f"{path}/chat/completions"  # the full endpoint was given: nothing is missing
    else:
        path = f"{_with_version(path, address)}/chat/completions"
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def _with_version(path: str, address: str) -> str:
    """The path with the version that it lacks."""
    root = _ROOTS.get(host_of(address), "/v1")
    if root.startswith(f"{path}/"):
        return root
    return path if path and _VERSION.search(path) else f"{path}/v1"


def dialect_of(address: str) -> str:
    """The dialect of an address, if none is configured.

    >>> dialect_of("https://api.moonshot.cn/anthropic"), dialect_of("https://api.moonshot.cn/v1")
    ('anthropic', 'openai_chat')
    """
    return "anthropic" if _MESSAGES.search(urlsplit(address.strip()).path) else "openai_chat"


def is_loopback(address: str) -> bool:
    """Whether requests to this address stay on this machine.

    >>> is_loopback("http://localhost:8000/v1"), is_loopback("http://vllm.internal:8000")
    (True, False)
    """
    return _LOOPBACK.fullmatch((urlsplit(address.strip()).hostname or "").lower()) is not None


def without_secrets(address: str) -> str:
    """An address for display: without password and query string.

    >>> without_secrets("redis://:secret@cache:6379/0"), without_secrets("https://h/v1?key=secret")
    ('redis://***@cache:6379/0', 'https://h/v1?***')
    """
    head, question, _ = address.partition("?")
    scheme, slashes, rest = head.partition("://")
    if slashes and "@" in rest:
        rest = f"***@{rest.rpartition('@')[2]}"
    return f"{scheme}{slashes}{rest}{question}{'***' if question else ''}"


def base_of(address: str) -> str:
    """An endpoint without the path of its API.

    >>> base_of("https://api.moonshot.ai/v1/chat/completions")
    'https://api.moonshot.ai/v1'
    """
    return address.removesuffix("/chat/completions").removesuffix("/messages")


def models_url(endpoint: str) -> str:
    """Where the host of an endpoint lists its models.

    >>> models_url("https://api.moonshot.ai/v1/chat/completions?a=1")
    'https://api.moonshot.ai/v1/models?a=1'
    """
    return _beside(endpoint, "models")


def usages_url(endpoint: str) -> str:
    """Where Kimi Code reports the used part of a subscription.

    >>> usages_url("https://api.kimi.com/coding/v1/messages")
    'https://api.kimi.com/coding/v1/usages'
    """
    return _beside(endpoint, "usages")


def _beside(endpoint: str, name: str) -> str:
    url = urlsplit(endpoint)
    return url._replace(path=f"{base_of(url.path)}/{name}").geturl()
