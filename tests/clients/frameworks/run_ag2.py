"""A task -> the answer of an AG2 agent."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from ag2 import Agent, tool
from ag2.config import AnthropicConfig, OpenAIConfig, OpenAIResponsesConfig


def run(task: SimpleNamespace) -> str:
    return asyncio.run(_run(task))


async def _run(task: SimpleNamespace) -> str:
    tools = [tool(task.tools.bash), tool(task.tools.read_file)]
    reply = await Agent("tested", config=_model(task), tools=tools).ask(task.prompt)
    return str(reply.body)


def _model(task: SimpleNamespace) -> Any:
    given = {"model": task.model, "api_key": "none", "streaming": task.streamed}
    match task.dialect:
        case "chat":
            return OpenAIConfig(base_url=f"{task.url}/v1", **given)
        case "messages":
            return AnthropicConfig(base_url=task.url, **given)
        case _:
            return OpenAIResponsesConfig(base_url=f"{task.url}/v1", **given)
