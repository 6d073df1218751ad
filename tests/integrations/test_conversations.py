"""Conversations of programs that drop what the model thought: it is put back, and only where it belongs."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anthropic
import openai
import pytest

from moonshim.integrations import Memory, anthropic_http_client, async_openai_http_client
from tests.integrations.judging import AT_A_READING_HOST, five_rounds, problems_at
from tests.integrations.programs import KEY, TOOLS, answer, asking, talk


@pytest.mark.parametrize("model", ["kimi-k2.5", "kimi-k2.7-code", "kimi-k3"])
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_every_generation_comes_through_five_rounds(model: str, stream: bool) -> None:
    faults = ("uneven-writes", "stop-with-calls") if stream else ("stop-with-calls",)
    with asking("moonshot", faults) as (server, client):
        said = talk(client, "What is it like there?", model=model, stream=stream)
    assert problems_at(server, said) == []


def test_threads_share_a_client() -> None:
    with asking("moonshot", AT_A_READING_HOST) as (server, client), ThreadPoolExecutor(8) as threads:
        words = [f"What is it like in place {number}?" for number in range(16)]
        answers = list(threads.map(lambda one: talk(client, one, stream=one.endswith("5?")), words))
    assert server.refusals == []
    assert len(server.requests) == 16 * 6
    assert all(answer.startswith("Here is what came back") for answer in answers)
    for seen in server.requests:
        assert seen.request is not None
        said = [turn.reasoning for turn in seen.request.turns if turn.role == "assistant"]
        assert all(said), f"round {seen.round} lost what was thought"


def test_a_conversation_goes_on_in_an_asynchronous_client_that_shares_the_memory() -> None:
    memory = Memory()
    with asking("moonshot", AT_A_READING_HOST, memory=memory) as (server, client):
        messages: list[Any] = [{"role": "user", "content": "What is it like there?"}]
        for _ in range(3):
            made = client.chat.completions.create(model="kimi-k2.5", messages=messages, tools=TOOLS)
            messages += answer(made.choices[0].message)

        async def rest() -> str:
            http_client = async_openai_http_client(host="moonshot", memory=memory)
            async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key=KEY, http_client=http_client) as later:
                while True:
                    made = await later.chat.completions.create(model="kimi-k2.5", messages=messages, tools=TOOLS)
                    if not made.choices[0].message.tool_calls:
                        return str(made.choices[0].message.content)
                    messages.extend(answer(made.choices[0].message))

        said = asyncio.run(rest())
    assert problems_at(server, said) == []


def test_what_was_thought_under_one_key_is_not_told_under_another() -> None:
    with asking("moonshot") as (server, client):
        messages: list[Any] = [{"role": "user", "content": "What is it like there?"}]
        made = client.chat.completions.create(model="kimi-k2.5", messages=messages, tools=TOOLS)
        messages += answer(made.choices[0].message)
        for key in (KEY, "sk-another-key-of-this-test"):
            other = client.with_options(api_key=key)
            other.chat.completions.create(model="kimi-k2.5", messages=messages, tools=TOOLS)
    mine, theirs = (json.dumps(seen.body["messages"]) for seen in list(server.requests)[1:])
    thought = server.requests[0].intended
    assert thought is not None
    assert thought.reasoning in mine
    assert thought.reasoning not in theirs


def test_thinking_blocks_that_a_program_drops_are_put_back_in_messages() -> None:
    tools: Any = [{"name": one["function"]["name"], "input_schema": one["function"]["parameters"]} for one in TOOLS]
    with five_rounds("moonshot", ("markers-in-reasoning@1", "no-message-delta@2", "unsigned@3")).running() as server:
        http_client = anthropic_http_client(host="moonshot")
        with anthropic.Anthropic(base_url=server.url, api_key=KEY, max_retries=0, http_client=http_client) as client:
            messages: list[Any] = [{"role": "user", "content": "What is it like there?"}]
            while True:
                with client.messages.stream(
                    model="kimi-k2.5", messages=messages, tools=tools, max_tokens=999
                ) as events:
                    message = events.get_final_message()
                calls = [block for block in message.content if block.type == "tool_use"]
                if not calls:
                    break
                said = [block for block in message.content if block.type != "thinking"]
                results = [{"type": "tool_result", "tool_use_id": call.id, "content": "often"} for call in calls]
                messages += [{"role": "assistant", "content": said}, {"role": "user", "content": results}]
    assert problems_at(server, "".join(block.text for block in message.content if block.type == "text")) == []
