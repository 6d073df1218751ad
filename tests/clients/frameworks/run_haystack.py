"""A task -> the answer of a Haystack agent."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"

from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator, OpenAIResponsesChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import create_tool_from_function
from haystack.utils import Secret
from haystack_integrations.components.generators.anthropic import AnthropicChatGenerator


def run(task: SimpleNamespace) -> str:
    tools = [create_tool_from_function(one) for one in (task.tools.bash, task.tools.read_file)]
    pieces: list[str] = []
    streaming = {"streaming_callback": lambda chunk: pieces.append(chunk.content)} if task.streamed else {}
    agent = Agent(chat_generator=_model(task), tools=tools, max_agent_steps=6, **streaming)
    return str(agent.run(messages=[ChatMessage.from_user(task.prompt)])["last_message"].text)


def _model(task: SimpleNamespace) -> Any:
    key = Secret.from_token("none")
    match task.dialect:
        case "chat":
            return OpenAIChatGenerator(api_key=key, model=task.model, api_base_url=f"{task.url}/v1")
        case "messages":
            os.environ["ANTHROPIC_BASE_URL"] = task.url
            return AnthropicChatGenerator(api_key=key, model=task.model)
        case _:
            return OpenAIResponsesChatGenerator(api_key=key, model=task.model, api_base_url=f"{task.url}/v1")
