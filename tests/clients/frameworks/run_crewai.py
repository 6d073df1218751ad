"""A task -> the answer of a crewai agent."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false", "OTEL_SDK_DISABLED": "true"}

from crewai import LLM, Agent
from crewai.tools import tool


def run(task: SimpleNamespace) -> str:
    tools = [tool("bash")(task.tools.bash), tool("read_file")(task.tools.read_file)]
    agent = Agent(role="Tester", goal="Answer.", backstory="None.", llm=_model(task), tools=tools, max_iter=5)
    return str(agent.kickoff(task.prompt).raw)


def _model(task: SimpleNamespace) -> Any:
    given: dict[str, Any] = {"api_key": "none", "stream": task.streamed, "model": task.model}
    match task.dialect:
        case "chat":
            return LLM(provider="openai", base_url=f"{task.url}/v1", **given)
        case "messages":
            return LLM(provider="anthropic", base_url=task.url, **given)
        case _:
            return LLM(provider="openai", base_url=f"{task.url}/v1", api="responses", **given)
