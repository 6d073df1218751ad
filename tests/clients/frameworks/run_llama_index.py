"""A task -> the answer of a LlamaIndex agent."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai_like import OpenAILike, OpenAILikeResponses


def run(task: SimpleNamespace) -> str:
    return asyncio.run(_run(task))


async def _run(task: SimpleNamespace) -> str:
    tools = [task.tools.bash, task.tools.read_file]
    agent = FunctionAgent(tools=tools, llm=_model(task), streaming=task.streamed)
    return str(await agent.run(user_msg=task.prompt))


def _model(task: SimpleNamespace) -> Any:
    openai = {"model": task.model, "api_base": f"{task.url}/v1", "api_key": "none", "is_chat_model": True}
    kind = OpenAILike if task.dialect == "chat" else OpenAILikeResponses
    return kind(**openai, is_function_calling_model=True)
