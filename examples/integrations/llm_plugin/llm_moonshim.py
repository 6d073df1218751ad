"""A plug-in for `llm` with Kimi models.

    llm install -e examples/integrations/llm_plugin
    KIMI_API_KEY=… llm -m kimi-k3 "What is the weather in Paris?" -T llm_time

`llm` creates its OpenAI client in one method, `get_client`, which this plug-in overrides. `llm` drops the model's
reasoning between tool rounds, and K2.5 and later reject tool calls without it. The HTTP client restores it.

Set `KIMI_BASE_URL` and `KIMI_MODELS` (comma-separated) to use another host, such as `moonshim simulate`, which needs no
key.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import llm
from llm.default_plugins.openai_models import AsyncChat, Chat

from moonshim.integrations import Memory, async_openai_http_client, openai_http_client

BASE_URL = os.environ.get("KIMI_BASE_URL", "https://api.moonshot.ai/v1")
MODELS = os.environ.get("KIMI_MODELS", "kimi-k3,kimi-k3.1-pro,kimi-k2.6").split(",")
MEMORY = Memory()
ONCE = {"connection": "close"}
"""`llm` creates a client per response and never closes it, so connections are not kept open."""


class KimiChat(Chat):
    """`llm -m kimi-k3`; set `host` if it cannot be detected from the base URL."""

    needs_key = "kimi"
    key_env_var = "KIMI_API_KEY"
    host: str | None = None

    def get_client(self, key: str | None, *, async_: bool = False) -> Any:
        client: Any = super().get_client(key)  # type: ignore[no-untyped-call]
        return client.copy(http_client=openai_http_client(host=self.host, memory=MEMORY, headers=ONCE))


class AsyncKimiChat(AsyncChat):
    """`llm.get_async_model("kimi-k3")`"""

    needs_key = "kimi"
    key_env_var = "KIMI_API_KEY"
    host: str | None = None

    def get_client(self, key: str | None, *, async_: bool = True) -> Any:
        client: Any = super().get_client(key, async_=True)  # type: ignore[no-untyped-call]
        return client.copy(http_client=async_openai_http_client(host=self.host, memory=MEMORY, headers=ONCE))


def models(name: str, base_url: str = BASE_URL) -> tuple[Any, Any]:
    given: Any = {"api_base": base_url, "supports_tools": True, "supports_schema": True, "vision": True}
    make: tuple[Any, Any] = (KimiChat, AsyncKimiChat)
    return make[0](name, **given), make[1](name, **given)


@llm.hookimpl
def register_models(register: Callable[..., None]) -> None:
    for name in MODELS:
        register(*models(name))
