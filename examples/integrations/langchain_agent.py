"""An agent with tools, using LangChain and Moonshim.

    pip install . langchain-openai
    KIMI_API_KEY=… python examples/integrations/langchain_agent.py

Set `KIMI_BASE_URL` and `KIMI_MODEL` to use another host, such as `moonshim simulate`, which needs no key. `ChatOpenAI`
drops the reasoning of the model. Moonshot refuses tool calls without it for K2-Thinking to K2.7, and elsewhere the
model gets worse. Moonshim restores it.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from moonshim.integrations import async_openai_http_client, openai_http_client


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"{city}: 21 degrees, clear"


@tool
def local_time(city: str) -> str:
    """The time in a city."""
    return f"{city}: half past nine"


TOOLS = {one.name: one for one in (weather, local_time)}


def kimi(*, base_url: str, api_key: str, model: str, stream: bool = True, **clients: Any) -> Any:
    """`clients`: `http_client`, `http_async_client` or both. With one `Memory`, `ainvoke` can follow `invoke`."""
    chat = ChatOpenAI(base_url=base_url, api_key=SecretStr(api_key), model=model, streaming=stream, **clients)
    return chat.bind_tools(list(TOOLS.values()))


def results(message: AIMessage) -> list[AnyMessage]:
    return [TOOLS[call["name"]].invoke(call) for call in message.tool_calls]


def ask(question: str, *, host: str | None = None, **given: Any) -> str:
    # The host is detected from the base URL. Set `host` if that is not possible, for example behind a proxy.
    with openai_http_client(host=host) as http_client:
        model, messages = kimi(http_client=http_client, **given), list[AnyMessage]([HumanMessage(question)])
        while (message := model.invoke(messages)).tool_calls:
            messages += [message, *results(message)]
        return str(message.content)


async def ask_async(question: str, *, host: str | None = None, **given: Any) -> str:
    async with async_openai_http_client(host=host) as http_client:
        model, messages = kimi(http_async_client=http_client, **given), list[AnyMessage]([HumanMessage(question)])
        while (message := await model.ainvoke(messages)).tool_calls:
            messages += [message, *results(message)]
        return str(message.content)


if __name__ == "__main__":
    given: Any = {
        "base_url": os.environ.get("KIMI_BASE_URL", "https://api.moonshot.ai/v1"),
        "api_key": os.environ.get("KIMI_API_KEY", "none"),
        "model": os.environ.get("KIMI_MODEL", "kimi-k3"),
    }
    print(ask("What is the weather in Paris?", **given))
    print(asyncio.run(ask_async("And what time is it there?", **given)))
