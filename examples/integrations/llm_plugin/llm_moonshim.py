"""A plug-in for `llm`: models that are asked at a host of Kimi.

    llm install -e examples/integrations/llm_plugin
    KIMI_API_KEY=… llm -m kimi-k2.5 "What is the weather in Paris?" -T llm_time

`llm` builds its OpenAI client in one method, `get_client`: that is the seam. `llm` drops what the model thought between
the rounds of its tools, and K2.5 and later refuse calls without it: here it is put back.

`KIMI_BASE_URL` and `KIMI_MODELS` (with commas) choose another host: `moonshim simulate` is one that needs no key.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import llm
from llm.default_plugins.openai_models import AsyncChat, Chat

from moonshim.integrations import Memory, async_openai_http_client, openai_http_client

BASE_URL = os.environ.get("KIMI_BASE_URL", "https://api.moonshot.ai/v1")
MODELS = os.environ.get("KIMI_MODELS", "kimi-k2.5,kimi-k3").split(",")
MEMORY = Memory()
ONCE = {"connection": "close"}
"""`llm` makes a client for every answer and closes none: so nothing stays open."""


class KimiChat(Chat):
    """`llm -m kimi-k2.5`; `host` names the host where the base URL does not tell."""

    needs_key = "kimi"
    key_env_var = "KIMI_API_KEY"
    host: str | None = None

    def get_client(self, key: str | None, *, async_: bool = False) -> Any:
        client: Any = super().get_client(key)  # type: ignore[no-untyped-call]
        return client.copy(http_client=openai_http_client(host=self.host, memory=MEMORY, headers=ONCE))


class AsyncKimiChat(AsyncChat):
    """`llm.get_async_model("kimi-k2.5")`"""

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
