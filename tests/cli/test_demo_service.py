"""`moonshim serve --demo`: every model and every fault of the simulator through the gateway, over Chat and Messages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from openai import APIStatusError, AsyncOpenAI

from moonshim.cli.demo_service import demo_config, open_demo
from moonshim.config import LOOKED_FOR
from moonshim.gateway.process.settings import ServeSettings
from moonshim.http_server.server import serve_inside
from moonshim.simulator.host.models import MODELS

SCHEMA: Any = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL: Any = {"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}
EVERY_KIND = ("kimi-k2-0905-preview", "kimi-k2-thinking", "kimi-k2.5", "kimi-k3", "plain-1")
ASKED: Any = [{"role": "user", "content": "What is the weather in Paris?"}]


@pytest.fixture(autouse=True)
def nothing_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*LOOKED_FOR, "MOONSHIM_STORE", "MOONSHIM_SECRET"):
        monkeypatch.delenv(name, raising=False)


def with_demo(act: Callable[[str], Awaitable[None]]) -> None:
    """Do something with the address of a demo that is served."""

    async def main() -> None:
        service = await open_demo(ServeSettings(), 0)
        served = await serve_inside(service.app)
        try:
            await act(served.url)
        finally:
            await served.close()
            await service.close()

    asyncio.run(main())


async def conversation(client: AsyncOpenAI, model: str) -> str:
    """One round with a tool, and what is said of its result. Everything is as it should be, or this fails."""
    given: Any = {"model": model, "tools": [TOOL]}
    async with client.chat.completions.stream(messages=ASKED, **given) as stream:
        choice = (await stream.get_final_completion()).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert "<|" not in f"{choice.message.content}{(choice.message.model_extra or {}).get('reasoning_content')}"
    (call,) = choice.message.tool_calls or []
    assert call.id
    assert json.loads(call.function.arguments) == {"city": "Paris"}
    result = {"role": "tool", "tool_call_id": call.id, "content": "rain and 12 degrees"}
    messages: Any = [*ASKED, choice.message.model_dump(exclude_none=True), result]
    answer = await client.chat.completions.create(messages=messages, **given)
    return str(answer.choices[0].message.content)


def test_every_model_is_there_over_chat_and_over_messages() -> None:
    async def act(url: str) -> None:
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            names = [model.id async for model in client.models.list()]
            assert set(names) == {*MODELS, *(f"demo-messages/{model}" for model in MODELS)}
            for name in (f"{where}{model}" for where in ("", "demo-messages/") for model in EVERY_KIND):
                assert "rain and 12 degrees" in await conversation(client, name), name

    with_demo(act)


@pytest.mark.parametrize("where", ["", "demo/", "demo-messages/"])
@pytest.mark.parametrize("faults", ["markers-in-reasoning+split-bytes", "status-502*1", "ids-same+stop-with-calls"])
def test_faults_behind_a_name_are_mended(where: str, faults: str) -> None:
    async def act(url: str) -> None:
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            assert "rain and 12 degrees" in await conversation(client, f"{where}kimi-k2.5+{faults}")

    with_demo(act)


def test_agents_reach_it_under_their_own_names() -> None:
    async def act(url: str) -> None:
        async with AsyncAnthropic(base_url=url, api_key="none", max_retries=0) as client:
            tool: Any = {"name": "get_weather", "input_schema": SCHEMA}
            given: Any = {"max_tokens": 1000, "tools": [tool], "messages": ASKED}
            for model in ("claude-opus-9", "demo-messages/kimi-k3"):
                async with client.messages.stream(model=model, **given) as stream:
                    message = await stream.get_final_message()
                assert [block.type for block in message.content] == ["thinking", "tool_use"]
                assert message.stop_reason == "tool_use"
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            response = await client.responses.create(model="gpt-5-codex", input="Hello there")
            assert "not a model" in response.output_text
            assert "Hello there" in response.output_text

    with_demo(act)


def test_what_there_is_not_is_told_with_the_nearest() -> None:
    async def act(url: str) -> None:
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            for model, near in (("kimi-k2.5+markers-in-contents", "markers-in-content"), ("kimi-k2.55", "kimi-k2.5")):
                with pytest.raises(APIStatusError) as caught:
                    await client.chat.completions.create(model=model, messages=ASKED)
                assert near in caught.value.message

    with_demo(act)


def test_faults_that_were_asked_for_shut_nobody_out() -> None:
    async def act(url: str) -> None:
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            for _ in range(8):
                with pytest.raises(APIStatusError):
                    await client.chat.completions.create(model="kimi-k2.5+quota", messages=ASKED)
            assert "rain and 12 degrees" in await conversation(client, "kimi-k2.5")

    with_demo(act)


def test_the_store_is_what_the_environment_says() -> None:
    assert demo_config("http://127.0.0.1:1", {"MOONSHIM_STORE": "sqlite:x"}).store == "sqlite:x"
