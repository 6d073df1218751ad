"""A task -> the answer of a Strands agent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from strands import Agent, tool
from strands.models.anthropic import AnthropicModel
from strands.models.openai import OpenAIModel
from strands.models.openai_responses import OpenAIResponsesModel


def run(task: SimpleNamespace) -> str:
    tools = [tool(task.tools.bash), tool(task.tools.read_file)]
    return str(Agent(model=_model(task), tools=tools, callback_handler=None)(task.prompt))


def _model(task: SimpleNamespace) -> Any:
    openai = {"base_url": f"{task.url}/v1", "api_key": "none"}
    match task.dialect:
        case "chat":
            return OpenAIModel(client_args=openai, model_id=task.model, stream=task.streamed)
        case "messages":
            anthropic = {"base_url": task.url, "api_key": "none"}
            return AnthropicModel(client_args=anthropic, model_id=task.model, max_tokens=4096)
        case _:
            return OpenAIResponsesModel(client_args=openai, model_id=task.model)
