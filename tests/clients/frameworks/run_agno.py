"""A task -> the answer of an agno agent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from agno.agent import Agent
from agno.models.anthropic import Claude
from agno.models.openai import OpenAILike, OpenAIResponses


def run(task: SimpleNamespace) -> str:
    agent = Agent(model=_model(task), tools=[task.tools.bash, task.tools.read_file], telemetry=False)
    if not task.streamed:
        return str(agent.run(task.prompt).content)
    events = agent.run(task.prompt, stream=True, stream_events=True)
    return "".join(str(event.content) for event in events if event.event == "RunContent" and event.content)


def _model(task: SimpleNamespace) -> Any:
    openai = {"id": task.model, "base_url": f"{task.url}/v1", "api_key": "none"}
    match task.dialect:
        case "chat":
            return OpenAILike(**openai)
        case "messages":
            return Claude(id=task.model, api_key="none", client_params={"base_url": task.url})
        case _:
            return OpenAIResponses(**openai)
