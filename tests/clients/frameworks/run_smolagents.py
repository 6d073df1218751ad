"""A task -> the answer of an agent of smolagents, which ends with a call of its own tool `final_answer`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from smolagents import LiteLLMModel, OpenAIModel, ToolCallingAgent, tool


def run(task: SimpleNamespace) -> str:
    tools = [tool(task.tools.bash), tool(task.tools.read_file)]
    agent = ToolCallingAgent(tools=tools, model=_model(task), stream_outputs=task.streamed, max_steps=5)
    return str(agent.run(task.prompt))


def _model(task: SimpleNamespace) -> Any:
    if task.dialect == "chat":
        return OpenAIModel(model_id=task.model, api_base=f"{task.url}/v1", api_key="none")
    return LiteLLMModel(model_id=f"anthropic/{task.model}", api_base=task.url, api_key="none")
