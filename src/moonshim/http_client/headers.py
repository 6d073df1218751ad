"""A dialect, a key, and headers of client and configuration -> the headers to send to a host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["headers_for"]

# Messages hosts differ in where they look: Moonshot's accepts either, vLLM's only the first, others only the second.
_KEY_HEADERS: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "openai_chat": (("authorization", "Bearer {}"),),
    "anthropic": (("authorization", "Bearer {}"), ("x-api-key", "{}")),
}
_ALWAYS: Final[dict[str, dict[str, str]]] = {"openai_chat": {}, "anthropic": {"anthropic-version": "2023-06-01"}}


def headers_for(
    dialect: str, key: str | None, client_headers: Mapping[str, str], configured: Mapping[str, str], *, accept: str
) -> dict[str, str]:
    """The client's headers, overridden by ours, overridden by the configuration's.

    >>> headers_for("openai_chat", "sk-1", {}, {"X-Team": "red"}, accept="*/*")["authorization"]
    'Bearer sk-1'
    """
    headers = {**_ALWAYS[dialect], **client_headers, "content-type": "application/json", "accept": accept}
    if key is not None:
        headers |= {name: form.format(key) for name, form in _KEY_HEADERS[dialect]}
    return headers | {name.lower(): value for name, value in configured.items()}
