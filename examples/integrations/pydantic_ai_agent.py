"""An agent with tools, using pydantic-ai and Moonshim.

    pip install . "pydantic-ai-slim[openai]"
    KIMI_API_KEY=… python examples/integrations/pydantic_ai_agent.py

Set `KIMI_BASE_URL` and `KIMI_MODEL` to use another host, such as `moonshim simulate`, which needs no key.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterable
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from moonshim.integrations import async_openai_http_client


def weather(city: str) -> str:
    """The weather in a city."""
    return f"{city}: 21 degrees, clear"


def local_time(city: str) -> str:
    """The time in a city."""
    return f"{city}: half past nine"


async def watch(context: Any, events: AsyncIterable[Any]) -> None:
    """A program would show the events here. Passing a handler makes pydantic-ai stream the responses."""
    async for _ in events:
        pass


async def ask_async(
    question: str, *, base_url: str, api_key: str, model: str, host: str | None = None, stream: bool = True
) -> str:
    # pydantic-ai always uses the asynchronous client, even in `run_sync`.
    async with async_openai_http_client(host=host) as http_client:
        provider = OpenAIProvider(base_url=base_url, api_key=api_key, http_client=http_client)
        agent = Agent(OpenAIChatModel(model, provider=provider), tools=[weather, local_time])
        return (await agent.run(question, event_stream_handler=watch if stream else None)).output


def ask(question: str, **given: Any) -> str:
    return asyncio.run(ask_async(question, **given))


if __name__ == "__main__":
    given: Any = {
        "base_url": os.environ.get("KIMI_BASE_URL", "https://api.moonshot.ai/v1"),
        "api_key": os.environ.get("KIMI_API_KEY", "none"),
        "model": os.environ.get("KIMI_MODEL", "kimi-k3"),
    }
    print(ask("What is the weather in Paris?", **given))
