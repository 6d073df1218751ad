"""A path -> the page served there, and the dialect for its errors."""

from __future__ import annotations

from collections.abc import Container
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from moonshim.simulator.request import Wire

__all__ = ["PATHS", "PathInfo", "PathKind", "api_paths", "find_path", "suggest_path"]

PathKind: TypeAlias = Literal[
    "chat", "messages", "count", "models", "model", "usages", "about", "health", "requests", "faults", ""
]

PATHS: Final[dict[str, tuple[PathKind, str]]] = {
    "/chat/completions": ("chat", "POST"),
    "/messages": ("messages", "POST"),
    "/messages/count_tokens": ("count", "POST"),
    "/models": ("models", "GET"),
    "/usages": ("usages", "GET"),
}
"""With or without `/v1` before them, and with or without a prefix."""
_OPTIONAL: Final[tuple[PathKind, ...]] = ("count", "usages")
OWN_PATHS: Final[dict[str, tuple[PathKind, str]]] = {
    "/": ("about", "GET"),
    "/health": ("health", "GET"),
    "/simulator/requests": ("requests", "GET"),
    "/simulator/faults": ("faults", "GET"),
}
_PREFIXES: Final = ("/anthropic", "/coding")


class PathInfo(Struct, frozen=True):
    """What is served at a path; empty if nothing is."""

    what: PathKind
    method: str
    wire: Wire
    model: str = ""
    """The model's name, at the path of one model."""


def api_paths(missing: Container[PathKind] = _OPTIONAL) -> list[str]:
    """The paths of the API, each with `/v1`, except those that a host does not have."""
    return [f"/v1{path}" for path, (what, _) in PATHS.items() if what not in missing]


def suggest_path(path: str, missing: Container[PathKind] = _OPTIONAL) -> str:
    """A hint for a request to an unknown path: the paths that exist, or the most common mistake.

    >>> suggest_path("/v1/v1/messages")
    'the Anthropic SDK adds /v1 itself: set its base URL without /v1'
    >>> suggest_path("/v1/embeddings")
    'available paths: /v1/chat/completions, /v1/messages, /v1/models'
    """
    if path.startswith("/v1/v1/messages"):
        return "the Anthropic SDK adds /v1 itself: set its base URL without /v1"
    return f"available paths: {', '.join(api_paths(missing))}"


def find_path(path: str) -> PathInfo:
    """
    >>> find_path("/anthropic/v1/messages").what, find_path("/v2").what
    ('messages', '')
    >>> find_path("/v1/models/moonshotai/Kimi-K2.5").model
    'moonshotai/Kimi-K2.5'
    """
    if path in OWN_PATHS:
        return PathInfo(*OWN_PATHS[path], "openai_chat")
    wire: Wire = "anthropic" if path.startswith("/anthropic") or "/messages" in path else "openai_chat"
    rest = path
    for prefix in (*_PREFIXES, "/v1"):
        if rest.startswith(f"{prefix}/"):
            rest = rest.removeprefix(prefix)
    if rest in PATHS:
        what, method = PATHS[rest]
        return PathInfo(what, method, "openai_chat" if what == "chat" else wire)
    if rest.startswith("/models/"):
        return PathInfo("model", "GET", wire, rest.removeprefix("/models/"))
    return PathInfo("", "", wire)
