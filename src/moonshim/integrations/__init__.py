"""HTTP clients for the openai and anthropic SDKs that make tool calling with Kimi models reliable.

    client = openai.OpenAI(base_url=…, http_client=moonshim.integrations.openai_http_client())

Every request to a Kimi model is adapted to its host, reasoning that the program dropped is restored, and every
response is mended, streamed or not. The base URL of the client determines the host. All four functions accept

    host          the name of the host, if the base URL does not determine it (docs/hosts.md)
    options       what to repair, instead of everything; applies to any model name
    overrides     fields of the host's profile
    transformers  further changes to requests and responses (docs/transformers.md)
    memory        the reasoning and responses to remember, shared among clients or with another size

and pass everything else to the SDK's own `DefaultHttpxClient`: `proxy`, `timeout`, `verify`, …
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
    """For `openai.OpenAI(http_client=…)`: supports Chat Completions and Responses."""
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
    """For `openai.AsyncOpenAI(http_client=…)`: supports Chat Completions and Responses."""
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
    """For `anthropic.Anthropic(http_client=…)`: supports Messages."""
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
    """For `anthropic.AsyncAnthropic(http_client=…)`: supports Messages."""
    from anthropic import DefaultAsyncHttpxClient

    tending = ClientState(host=host, options=options, overrides=overrides, transformers=transformers, memory=memory)
    return mend_client(DefaultAsyncHttpxClient(**client), tending)
