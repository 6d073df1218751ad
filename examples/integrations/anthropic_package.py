"""An agent with tools, using the anthropic package and Moonshim.

    pip install . anthropic
    KIMI_API_KEY=… python examples/integrations/anthropic_package.py

Set `KIMI_BASE_URL` and `KIMI_MODEL` to use another host, such as `moonshim simulate`, which needs no key. This
package adds `/v1` to its base URL itself: set `KIMI_BASE_URL=http://127.0.0.1:8485`. This example also accepts a URL
with `/v1`, as the other examples use.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from anthropic import Anthropic, AsyncAnthropic

from moonshim.integrations import anthropic_http_client, async_anthropic_http_client

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: Any = [
    {"name": "weather", "description": "The weather in a city.", "input_schema": CITY},
    {"name": "local_time", "description": "The time in a city.", "input_schema": CITY},
]
LONGEST = 8192


def run(name: str, city: str) -> str:
    return f"{city}: {'21 degrees, clear' if name == 'weather' else 'half past nine'}"


def results(message: Any) -> Any:
    """The results of all tool calls of a message."""
    calls = (block for block in message.content if block.type == "tool_use")
    blocks = [
        {"type": "tool_result", "tool_use_id": call.id, "content": run(call.name, **call.input)} for call in calls
    ]
    return {"role": "user", "content": blocks}


def text(message: Any) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def ask(question: str, *, base_url: str, api_key: str, model: str, host: str | None = None, stream: bool = True) -> str:
    # The host is detected from the base URL. Set `host` if that is not possible, for example behind a proxy.
    with Anthropic(base_url=base_url, api_key=api_key, http_client=anthropic_http_client(host=host)) as client:
        messages: list[Any] = [{"role": "user", "content": question}]
        while True:
            if stream:
                with client.messages.stream(model=model, messages=messages, tools=TOOLS, max_tokens=LONGEST) as events:
                    message: Any = events.get_final_message()
            else:
                message = client.messages.create(model=model, messages=messages, tools=TOOLS, max_tokens=LONGEST)
            if message.stop_reason != "tool_use":
                return text(message)
            messages += [{"role": "assistant", "content": message.content}, results(message)]


async def ask_async(
    question: str, *, base_url: str, api_key: str, model: str, host: str | None = None, stream: bool = True
) -> str:
    http_client = async_anthropic_http_client(host=host)
    async with AsyncAnthropic(base_url=base_url, api_key=api_key, http_client=http_client) as client:
        messages: list[Any] = [{"role": "user", "content": question}]
        while True:
            given: Any = {"model": model, "messages": messages, "tools": TOOLS, "max_tokens": LONGEST}
            if stream:
                async with client.messages.stream(**given) as events:
                    message: Any = await events.get_final_message()
            else:
                message = await client.messages.create(**given)
            if message.stop_reason != "tool_use":
                return text(message)
            messages += [{"role": "assistant", "content": message.content}, results(message)]


if __name__ == "__main__":
    given: Any = {
        "base_url": os.environ.get("KIMI_BASE_URL", "https://api.moonshot.ai/anthropic")
        .rstrip("/")
        .removesuffix("/v1"),
        "api_key": os.environ.get("KIMI_API_KEY", "none"),
        "model": os.environ.get("KIMI_MODEL", "kimi-k3"),
    }
    print(ask("What is the weather in Paris?", **given))
    print(asyncio.run(ask_async("And what time is it there?", **given)))
