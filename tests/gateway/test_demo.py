"""The scripted host: what it says, and that the official client and our own mending understand it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from openai import AsyncOpenAI, NotFoundError

import moonshim
from moonshim.gateway.demo import Demo, chunks, demo_config, sample, start_demo, whole

TOOL: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 2}},
            "required": ["city", "days"],
        },
    },
}
HELLO: Any = [{"role": "user", "content": "Hello there"}]


def with_demo(act: Callable[[Demo, AsyncOpenAI], Awaitable[None]]) -> None:
    async def main() -> None:
        demo = await start_demo()
        try:
            async with AsyncOpenAI(base_url=demo.url, api_key="none", max_retries=0) as client:
                await act(demo, client)
        finally:
            await demo.close()

    asyncio.run(main())


def test_it_says_plainly_that_it_is_no_model() -> None:
    async def act(demo: Demo, client: AsyncOpenAI) -> None:
        answer = await client.chat.completions.create(model="kimi-k2.5", messages=HELLO)
        said = answer.choices[0].message.content or ""
        assert "no model" in said
        assert "Hello there" in said
        assert answer.usage is not None

    with_demo(act)


@pytest.mark.parametrize("model", ["kimi-k2.5", "kimi-k3"])
def test_a_stream_says_what_the_whole_answer_says(model: str) -> None:
    async def act(demo: Demo, client: AsyncOpenAI) -> None:
        given: Any = {"model": model, "messages": HELLO}
        stream = await client.chat.completions.create(**given, stream=True)
        pieces = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]
        answer = await client.chat.completions.create(**given)
        assert "".join(pieces) == answer.choices[0].message.content
        assert len(pieces) > 5

    with_demo(act)


def test_another_path_is_not_there() -> None:
    async def act(demo: Demo, client: AsyncOpenAI) -> None:
        with pytest.raises(NotFoundError):
            await client.embeddings.create(model="x", input="y")

    with_demo(act)


@pytest.mark.parametrize("model", ["kimi-k2.5", "kimi-k3"])
def test_a_tool_round_works_once_it_is_mended(model: str) -> None:
    request: dict[str, Any] = {"model": model, "messages": [*HELLO], "tools": [TOOL], "stream": True}
    plan = moonshim.prepare_request(request).plan
    mended = list(moonshim.mend_chunks(list(chunks(request)), plan=plan))
    deltas = [choice["delta"] for chunk in mended for choice in chunk["choices"]]
    entries = [entry for delta in deltas for entry in delta.get("tool_calls") or ()]
    assert entries[0]["function"]["name"] == "get_weather"
    assert "".join(entry["function"].get("arguments", "") for entry in entries) == '{"city":"demo","days":2}'
    assert not [delta for delta in deltas if "tool_call" in (delta.get("content") or "")]
    assert mended[-1]["choices"][0]["finish_reason"] == "tool_calls"

    call = moonshim.mend_response(whole(request), plan=plan).body["choices"][0]["message"]
    assert call["tool_calls"][0]["id"] == entries[0]["id"]
    result = {"role": "tool", "tool_call_id": entries[0]["id"], "content": "Rain"}
    answer = whole(request | {"messages": [*HELLO, call, result]})
    assert answer["choices"][0]["message"]["content"] == "The tool said: Rain"


def test_it_says_the_same_each_time() -> None:
    request = {"model": "kimi-k2.5", "messages": HELLO, "tools": [TOOL]}
    assert list(chunks(request)) == list(chunks(request))


def test_usage_comes_when_it_is_asked_for() -> None:
    request = {"model": "kimi-k2.5", "messages": HELLO, "stream_options": {"include_usage": True}}
    *others, last = chunks(request)
    assert last["usage"]["total_tokens"] > 0
    assert not any("usage" in chunk for chunk in others)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (None, {}),
        ({}, {}),
        ({"type": "object", "properties": {"a": {}}}, {}),
        ({"type": "object", "required": ["a"]}, {"a": "demo"}),
        ({"required": ["a"], "properties": {"a": {"anyOf": [{"type": "boolean"}, {"type": "null"}]}}}, {"a": True}),
        ({"required": ["a"], "properties": {"a": {"type": "array", "minItems": 2, "items": {"type": "number"}}}},
         {"a": [1.5, 1.5]}),
        ({"required": [1, "a"], "properties": {"a": {"const": 5}}}, {"a": 5}),
    ],
)  # fmt: skip
def test_arguments_are_made_from_the_schema(schema: Any, value: Any) -> None:
    assert sample(schema) == value


def test_a_schema_that_contains_itself_ends() -> None:
    schema: dict[str, Any] = {"type": "object", "required": ["a"]}
    schema["properties"] = {"a": schema}
    assert sample(schema)


@pytest.mark.parametrize("odd", [{}, {"messages": None}, {"messages": [1]}, {"tools": [1, {}]}, {"messages": "x"}])
def test_odd_requests_are_answered_too(odd: dict[str, Any]) -> None:
    assert whole(odd)["choices"][0]["finish_reason"] == "stop"


def test_agents_reach_it_under_their_own_names() -> None:
    config = demo_config("http://127.0.0.1:1/v1", {"MOONSHIM_STORE": "sqlite:x"})
    assert config.aliases["claude-*"] == ("demo/kimi-k2.5",)
    assert config.store == "sqlite:x"


@pytest.mark.parametrize("model", ["kimi-k2.5", "kimi-k3"])
@pytest.mark.parametrize(
    ("asked", "city"),
    [("What is the weather in Paris?", "Paris"), ("is it warm today", "demo"), ("Hello there", "demo")],
)
def test_a_call_asks_for_what_the_user_named(model: str, asked: str, city: str) -> None:
    """A first try with a weather tool should not ask for the weather in `demo`."""
    body = {"model": model, "messages": [{"role": "user", "content": asked}], "tools": [TOOL]}
    answer = moonshim.mend_response(whole(body), plan=moonshim.prepare_request(body, host="generic").plan).body
    (call,) = answer["choices"][0]["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"city": city, "days": 2}
