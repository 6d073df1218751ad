"""HTTP clients for the openai and anthropic SDKs that make tool calling with Kimi models reliable.

    client = openai.OpenAI(base_url=…, http_client=moonshim.integrations.openai_http_client())

Every request to a Kimi model is adapted to its host, reasoning that the program dropped is restored, and every
response is mended, streamed or not. The base URL of the client determines the host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from moonshim.engine.stages import Transformer
from moonshim.engine.values.options import KimiOptions
from moonshim.integrations.exchange import ClientState
from moonshim.integrations.memory import Memory
from moonshim.integrations.transports import mend_client

if TYPE_CHECKING:
    import anthropic
    import openai

__all__ = [
    "Memory",
    "anthropic_http_client",
    "async_anthropic_http_client",
    "async_openai_http_client",
    "openai_http_client",
]


def openai_http_client(
    *,
    host: str | None = None,
    options: KimiOptions | None = None,
    overrides: Mapping[str, Any] | None = None,
    transformers: Sequence[Transformer] = (),
    memory: Memory | None = None,
    **client: Any,
) -> openai.DefaultHttpxClient:
    """Create an HTTP client for `openai.OpenAI(http_client=…)`. It supports Chat Completions and Responses.

    Args:
        host: The name of the host profile, if the base URL does not determine it (docs/reference/hosts.md).
        options: Which repairs to apply; by default all of them. If set, requests for any model name are mended.
        overrides: Overrides for fields of the host profile.
        transformers: Transformers that change requests and responses (docs/guides/transformers.md).
        memory: The store for reasoning and responses. Pass one to share it between clients or to change its size.
        **client: Arguments for the SDK's own `DefaultHttpxClient`, such as `proxy`, `timeout` or `verify`.

    Raises:
        InvalidInput: An argument is invalid.
    """
    from openai import DefaultHttpxClient

    tending = ClientState(host=host, options=options, overrides=overrides, transformers=transformers, memory=memory)
    return mend_client(DefaultHttpxClient(**client), tending)


def async_openai_http_client(
    *,
    host: str | None = None,
    options: KimiOptions | None = None,
    overrides: Mapping[str, Any] | None = None,
    transformers: Sequence[Transformer] = (),
    memory: Memory | None = None,
    **client: Any,
) -> openai.DefaultAsyncHttpxClient:
    """Create an HTTP client for `openai.AsyncOpenAI(http_client=…)`. It supports Chat Completions and Responses.

    Args:
        host: The name of the host profile, if the base URL does not determine it (docs/reference/hosts.md).
        options: Which repairs to apply; by default all of them. If set, requests for any model name are mended.
        overrides: Overrides for fields of the host profile.
        transformers: Transformers that change requests and responses (docs/guides/transformers.md).
        memory: The store for reasoning and responses. Pass one to share it between clients or to change its size.
        **client: Arguments for the SDK's own `DefaultAsyncHttpxClient`, such as `proxy`, `timeout` or `verify`.

    Raises:
        InvalidInput: An argument is invalid.
    """
    from openai import DefaultAsyncHttpxClient

    tending = ClientState(host=host, options=options, overrides=overrides, transformers=transformers, memory=memory)
    return mend_client(DefaultAsyncHttpxClient(**client), tending)


def anthropic_http_client(
    *,
    host: str | None = None,
    options: KimiOptions | None = None,
    overrides: Mapping[str, Any] | None = None,
    transformers: Sequence[Transformer] = (),
    memory: Memory | None = None,
    **client: Any,
) -> anthropic.DefaultHttpxClient:
    """Create an HTTP client for `anthropic.Anthropic(http_client=…)`. It supports Messages.

    Args:
        host: The name of the host profile, if the base URL does not determine it (docs/reference/hosts.md).
        options: Which repairs to apply; by default all of them. If set, requests for any model name are mended.
        overrides: Overrides for fields of the host profile.
        transformers: Transformers that change requests and responses (docs/guides/transformers.md).
        memory: The store for reasoning and responses. Pass one to share it between clients or to change its size.
        **client: Arguments for the SDK's own `DefaultHttpxClient`, such as `proxy`, `timeout` or `verify`.

    Raises:
        InvalidInput: An argument is invalid.
    """
    from anthropic import DefaultHttpxClient

    tending = ClientState(host=host, options=options, overrides=overrides, transformers=transformers, memory=memory)
    return mend_client(DefaultHttpxClient(**client), tending)


def async_anthropic_http_client(
    *,
    host: str | None = None,
    options: KimiOptions | None = None,
    overrides: Mapping[str, Any] | None = None,
    transformers: Sequence[Transformer] = (),
    memory: Memory | None = None,
    **client: Any,
) -> anthropic.DefaultAsyncHttpxClient:
    """Create an HTTP client for `anthropic.AsyncAnthropic(http_client=…)`. It supports Messages.

    Args:
        host: The name of the host profile, if the base URL does not determine it (docs/reference/hosts.md).
        options: Which repairs to apply; by default all of them. If set, requests for any model name are mended.
        overrides: Overrides for fields of the host profile.
        transformers: Transformers that change requests and responses (docs/guides/transformers.md).
        memory: The store for reasoning and responses. Pass one to share it between clients or to change its size.
        **client: Arguments for the SDK's own `DefaultAsyncHttpxClient`, such as `proxy`, `timeout` or `verify`.

    Raises:
        InvalidInput: An argument is invalid.
    """
    from anthropic import DefaultAsyncHttpxClient

    tending = ClientState(host=host, options=options, overrides=overrides, transformers=transformers, memory=memory)
    return mend_client(DefaultAsyncHttpxClient(**client), tending)
