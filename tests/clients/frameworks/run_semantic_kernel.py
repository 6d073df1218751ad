"""A task -> the answer of a Semantic Kernel agent."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from semantic_kernel.agents import ChatCompletionAgent, OpenAIResponsesAgent
from semantic_kernel.connectors.ai.anthropic import AnthropicChatCompletion
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion
from semantic_kernel.functions import KernelPlugin, kernel_function


def run(task: SimpleNamespace) -> str:
    return asyncio.run(_run(task))


async def _run(task: SimpleNamespace) -> str:
    agent = _agent(task)
    if not task.streamed:
        return str((await agent.get_response(messages=task.prompt)).message.content)
    return "".join([str(piece.message.content) async for piece in agent.invoke_stream(messages=task.prompt)])


def _agent(task: SimpleNamespace) -> Any:
    functions = [kernel_function(one) for one in (task.tools.bash, task.tools.read_file)]
    plugins = [KernelPlugin(name="tools", functions=functions)]
    openai = AsyncOpenAI(base_url=f"{task.url}/v1", api_key="none")
    match task.dialect:
        case "chat":
            service = OpenAIChatCompletion(ai_model_id=task.model, async_client=openai)
        case "messages":
            client = AsyncAnthropic(base_url=task.url, api_key="none")
            service = AnthropicChatCompletion(ai_model_id=task.model, api_key="none", async_client=client)
        case _:
            return OpenAIResponsesAgent(ai_model_id=task.model, client=openai, name="tested", plugins=plugins)
    return ChatCompletionAgent(service=service, name="tested", plugins=plugins)
