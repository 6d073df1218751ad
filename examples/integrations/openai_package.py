"""An agent with tools, using the openai package and Moonshim.

    pip install . openai
    KIMI_API_KEY=… python examples/integrations/openai_package.py

Set `KIMI_BASE_URL` and `KIMI_MODEL` to use another host, such as `moonshim simulate`, which needs no key.
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

from openai import AsyncOpenAI, OpenAI

from moonshim.integrations import async_openai_http_client, openai_http_client

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: Any = [
    {"type": "function", "function": {"name": "weather", "description": "The weather in a city.", "parameters": CITY}},
    {"type": "function", "function": {"name": "local_time", "description": "The time in a city.", "parameters": CITY}},
]


def run(name: str, city: str) -> str:
    return f"{city}: {'21 degrees, clear' if name == 'weather' else 'half past nine'}"


def results(message: Any) -> list[Any]:
    """The results of all tool calls of a message."""
    calls = message.tool_calls or ()
    return [
        {
            "role": "tool",
            "tool_call_id": call.id,
            "content": run(call.function.name, **json.loads(call.function.arguments)),
        }
        for call in calls
    ]


def ask(question: str, *, base_url: str, api_key: str, model: str, host: str | None = None, stream: bool = True) -> str:
    # The host is detected from the base URL. Set `host` if that is not possible, for example behind a proxy.
    with OpenAI(base_url=base_url, api_key=api_key, http_client=openai_http_client(host=host)) as client:
        messages: list[Any] = [{"role": "user", "content": question}]
        while True:
            if stream:
                with client.chat.completions.stream(model=model, messages=messages, tools=TOOLS) as events:
                    message: Any = events.get_final_completion().choices[0].message
            else:
                answer = client.chat.completions.create(model=model, messages=messages, tools=TOOLS)
                message = answer.choices[0].message
            if not message.tool_calls:
                return message.content or ""
            messages += [message, *results(message)]


async def ask_async(
    question: str, *, base_url: str, api_key: str, model: str, host: str | None = None, stream: bool = True
) -> str:
    http_client = async_openai_http_client(host=host)
    async with AsyncOpenAI(base_url=base_url, api_key=api_key, http_client=http_client) as client:
        messages: list[Any] = [{"role": "user", "content": question}]
        while True:
            if stream:
                async with client.chat.completions.stream(model=model, messages=messages, tools=TOOLS) as events:
                    message: Any = (await events.get_final_completion()).choices[0].message
            else:
                answer = await client.chat.completions.create(model=model, messages=messages, tools=TOOLS)
                message = answer.choices[0].message
            if not message.tool_calls:
                return message.content or ""
            messages += [message, *results(message)]


if __name__ == "__main__":
    given: Any = {
        "base_url": os.environ.get("KIMI_BASE_URL", "https://api.moonshot.ai/v1"),
        "api_key": os.environ.get("KIMI_API_KEY", "none"),
        "model": os.environ.get("KIMI_MODEL", "kimi-k3"),
    }
    print(ask("What is the weather in Paris?", **given))
    print(asyncio.run(ask_async("And what time is it there?", **given)))
