"""Packages that people talk to models with -> the same packages, and Kimi's tool calling right: their HTTP clients.

    client = openai.OpenAI(base_url=…, http_client=moonshim.integrations.openai_http_client())

Every request to a Kimi model is prepared for its host, reasoning that the program dropped is put back, and every
answer is mended, streamed or whole. The base URL of the client decides which host it is. All four functions take

    host          the name of the host, where the base URL does not tell (docs/hosts.md)
    options       what is mended, instead of everything; then whatever the model is called
    overrides     fields of the host's profile
    transformers  what else changes requests and answers (docs/transformers.md)
    memory        what is remembered, to be shared among clients; or with another size

and hand everything else to the package's own `DefaultHttpxClient`: `proxy`, `timeout`, `verify`, …
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
    """For `openai.OpenAI(http_client=…)`: Chat goes as Chat, Responses too."""
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
    """For `openai.AsyncOpenAI(http_client=…)`: Chat goes as Chat, Responses too."""
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
    """For `anthropic.Anthropic(http_client=…)`: Messages go as Messages."""
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
    """For `anthropic.AsyncAnthropic(http_client=…)`: Messages go as Messages."""
    from anthropic import DefaultAsyncHttpxClient

    tending = ClientState(host=host, options=options, overrides=overrides, transformers=transformers, memory=memory)
    return mend_client(DefaultAsyncHttpxClient(**client), tending)
