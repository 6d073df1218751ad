"""A task -> the answer of an agent of openai-agents."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

set_tracing_disabled(True)


def run(task: SimpleNamespace) -> str:
    return asyncio.run(_run(task))


async def _run(task: SimpleNamespace) -> str:
    kind = OpenAIChatCompletionsModel if task.dialect == "chat" else OpenAIResponsesModel
    async with AsyncOpenAI(base_url=f"{task.url}/v1", api_key="none") as client:
        model = kind(model=task.model, openai_client=client)
        tools = [function_tool(task.tools.bash), function_tool(task.tools.read_file)]
        agent = Agent(name="tested", model=model, tools=tools)
        if not task.streamed:
            return str((await Runner.run(agent, task.prompt)).final_output)
        streamed = Runner.run_streamed(agent, task.prompt)
        async for _ in streamed.stream_events():
            pass
        return str(streamed.final_output)
