"""A host's response and a provider's configuration -> what is probably wrong, and the correct setting."""

from __future__ import annotations

import re
from contextlib import suppress
from difflib import get_close_matches
from typing import Final, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from moonshim.config import ProviderConfig, endpoint_of, without_secrets
from moonshim.config.endpoints import base_of

__all__ = [
    "Spoken",
    "candidate_endpoints",
    "model_names",
    "page_title",
    "secrets_of",
    "setting_line",
    "similar_names",
    "speaks",
]

Spoken: TypeAlias = Literal["openai_chat", "anthropic"]

_SHORTEST_SECRET: Final = 6
_SIGNS: Final = {
    "page": re.compile(rb"\A\s*(?:<!doctype\s+html|<html|<head|<body)", re.IGNORECASE),
    "openai_chat": re.compile(rb'"object"\s*:\s*"chat\.completion|"choices"\s*:\s*\['),
    "anthropic": re.compile(rb'"type"\s*:\s*"(?:message_start|message)"|\A\s*\{\s*"type"\s*:\s*"error"'),
    "openai_responses": re.compile(rb'"object"\s*:\s*"response"|"type"\s*:\s*"response\.'),
}
"""By dialect: what identifies it at the start of a response."""
_TITLE: Final = re.compile(rb"<(?:title|h1)[^<>]{0,200}>([^<]{1,100})", re.IGNORECASE)


def candidate_endpoints(provider: ProviderConfig) -> dict[str, Spoken]:
    """Where an API may be at this host, and which: first where it should be, then in the other dialect."""
    url, own = urlsplit(provider.api_base_url), provider.dialect
    other: Spoken = "anthropic" if own == "openai_chat" else "openai_chat"
    origin = f"{url.scheme}://{url.netloc}"
    bases: list[tuple[str, Spoken]] = [(provider.api_base_url, own), (provider.api_base_url, other)]
    bases += [(origin, own), (origin, other), (f"{origin}/anthropic", "anthropic"), (f"{origin}/api", own)]
    return {endpoint_of(replace(provider, api_base_url=base, dialect=spoken)): spoken for base, spoken in bases}


def setting_line(endpoint: str, dialect: Spoken | None = None) -> str:
    """The lines of a configuration for this endpoint."""
    line = f'api_base_url = "{without_secrets(base_of(endpoint))}"'
    return line if dialect is None else f'{line}, dialect = "{dialect}"'


def speaks(beginning: bytes, expected: str) -> str:
    """The dialect of a response; the expected one, unless something shows that it is another."""
    if _SIGNS[expected].search(beginning):
        return expected
    return next((name for name, sign in _SIGNS.items() if sign.search(beginning)), expected)


def page_title(body: bytes) -> str:
    """
    >>> page_title(b"<html><head><title>Sign in</title></head></html>"), page_title(b"<html></html>")
    ('Sign in', '')
    """
    found = _TITLE.search(body)
    return "" if found is None else " ".join(found[1].decode("utf-8", "replace").split())


def model_names(body: bytes) -> list[str] | None:
    """The models in a list, in any host's format."""
    with suppress(ValueError, msgspec.DecodeError):
        value = msgspec.json.decode(body)
        entries = value.get("data") or value.get("models") if isinstance(value, dict) else value
        if isinstance(entries, list):
            names = [entry.get("id") or entry.get("name") for entry in entries if isinstance(entry, dict)]
            return [name for name in names if isinstance(name, str)] or None
    return None


def similar_names(model: str, listed: list[str]) -> list[str]:
    """
    >>> similar_names("kimi-k2p6", ["glm-5", "moonshotai/Kimi-K2.6", "moonshotai/kimi-k3"])
    ['moonshotai/Kimi-K2.6', 'moonshotai/kimi-k3']
    """
    last = {name.rpartition("/")[2].lower(): name for name in listed}
    close = get_close_matches(model.rpartition("/")[2].lower(), last, n=3, cutoff=0.5)
    return [last[name] for name in close] or [name for name in listed if "kimi" in name.lower()][:3] or listed[:3]


def secrets_of(provider: ProviderConfig) -> list[str]:
    """Values that must be masked wherever a host echoes them; longer ones first, since one may contain another."""
    texts = [key.reveal() for key in provider.keys] + list(provider.headers.values())
    for url in map(urlsplit, (provider.api_base_url, provider.proxy or "")):
        texts += [url.password or "", url.query]
    return sorted({text for text in texts if len(text) >= _SHORTEST_SECRET}, key=len, reverse=True)
