"""A task -> the answer of a Google ADK agent, whose models are LiteLLM's."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import litellm
from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from google.genai import types

_PREFIXES = {"chat": "openai/", "messages": "anthropic/", "responses": "openai/responses/"}


def run(task: SimpleNamespace) -> str:
    return asyncio.run(_run(task))


async def _run(task: SimpleNamespace) -> str:
    # LiteLLM streams Responses only for models that it knows to stream.
    litellm.register_model({task.model: {"litellm_provider": "openai", "supports_native_streaming": True}})
    address = task.url if task.dialect == "messages" else f"{task.url}/v1"
    model = LiteLlm(model=_PREFIXES[task.dialect] + task.model, api_base=address, api_key="none")
    agent = LlmAgent(name="tested", model=model, tools=[task.tools.bash, task.tools.read_file])
    runner = InMemoryRunner(agent=agent, app_name="tested")
    session = await runner.session_service.create_session(app_name="tested", user_id="tester")
    events = runner.run_async(
        user_id="tester",
        session_id=session.id,
        new_message=types.Content(role="user", parts=[types.Part(text=task.prompt)]),
        run_config=RunConfig(streaming_mode=StreamingMode.SSE if task.streamed else StreamingMode.NONE),
    )
    answer = ""
    async for event in events:
        if event.is_final_response() and event.content:
            answer = "".join(part.text or "" for part in event.content.parts or [])
    return answer
