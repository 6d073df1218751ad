"""The response object has what the Open Responses specification requires: streamed, whole and retrieved."""

from __future__ import annotations

import json
import time
from typing import Any, Final

import aiohttp
import pytest
from msgspec.structs import replace

from tests.engine.dialects.anthropic.reading import frames_of
from tests.support.gateway.hosts import run
from tests.support.gateway.leaks import scene
from tests.support.gateway.raw_client import Json, answer_of, body_of, sending, text_answer

NUMBER: Final = (int, float)
NONE: Final = type(None)
RESPONSE: Final[dict[str, Any]] = {
    "id": str,
    "object": str,
    "created_at": int,
    "completed_at": (int, NONE),
    "status": str,
    "incomplete_details": (dict, NONE),
    "model": str,
    "previous_response_id": (str, NONE),
    "instructions": (str, NONE),
    "output": list,
    "error": (dict, NONE),
    "tools": list,
    "tool_choice": (str, dict),
    "truncation": str,
    "parallel_tool_calls": bool,
    "text": dict,
    "top_p": NUMBER,
    "presence_penalty": NUMBER,
    "frequency_penalty": NUMBER,
    "top_logprobs": int,
    "temperature": NUMBER,
    "reasoning": (dict, NONE),
    "user": (str, NONE),
    "usage": (dict, NONE),
    "max_output_tokens": (int, NONE),
    "max_tool_calls": (int, NONE),
    "store": bool,
    "background": bool,
    "service_tier": str,
    "metadata": dict,
    "safety_identifier": (str, NONE),
    "prompt_cache_key": (str, NONE),
}
"""`ResponseResource`: the required fields and their types."""
TOOL: Final[dict[str, Any]] = {
    "type": str,
    "name": str,
    "description": (str, NONE),
    "parameters": (dict, NONE),
    "strict": (bool, NONE),
}
REASONING: Final[dict[str, Any]] = {"effort": (str, NONE), "summary": (str, NONE)}
JSON_SCHEMA: Final[dict[str, Any]] = {"type": str, "name": str, "description": (str, NONE), "strict": bool}
ITEMS: Final[dict[str, dict[str, Any]]] = {
    "message": {"id": str, "status": str, "role": str, "content": list},
    "function_call": {"id": str, "call_id": str, "name": str, "arguments": str, "status": str},
    "reasoning": {"id": str, "summary": list},
}


def missing(value: Json, fields: dict[str, Any], where: str) -> list[str]:
    """The fields that are not there, or of another type."""
    return [
        f"{where}.{name}: {value.get(name, 'missing')!r}"
        for name, types in fields.items()
        if name not in value or not isinstance(value[name], types)
    ]


def wrong(response: Json) -> list[str]:
    """What the specification would object to."""
    found = missing(response, RESPONSE, "response")
    found += missing(response["reasoning"], REASONING, "reasoning")
    for tool in response["tools"]:
        found += missing(tool, TOOL, "tool")
    format = response["text"].get("format", {})
    found += missing(format, JSON_SCHEMA if format.get("type") == "json_schema" else {"type": str}, "text.format")
    for item in response["output"]:
        found += missing(item, ITEMS[item["type"]], item["type"])
        if item["type"] == "reasoning" and "encrypted_content" in item:
            found += missing(item, {"encrypted_content": str}, "reasoning")
    if isinstance(response["tool_choice"], dict) and response["tool_choice"]["type"] == "allowed_tools":
        found += missing(response["tool_choice"], {"mode": str, "tools": list}, "tool_choice")
    return found


PLAIN: Final[Json] = {"tools": [{"type": "function", "name": "ls"}]}
REQUESTS: Final[dict[str, Json]] = {
    "nothing but the input": {"tools": None},
    "a tool with only a name": PLAIN,
    "an effort, and no summary": PLAIN | {"reasoning": {"effort": "high"}},
    "a verbosity, and no format": PLAIN | {"text": {"verbosity": "low"}},
    "a schema": PLAIN | {"text": {"format": {"type": "json_schema", "name": "a", "schema": {"type": "object"}}}},
    "allowed tools without a mode": PLAIN
    | {"tool_choice": {"type": "allowed_tools", "tools": [{"type": "function", "name": "ls"}]}},
    "explicit nulls": PLAIN | {"temperature": None, "top_p": None, "service_tier": None, "top_logprobs": None},
}


@pytest.mark.parametrize("more", REQUESTS.values(), ids=REQUESTS.keys())
def test_every_response_object_has_all_required_fields(more: Json) -> None:
    async def test() -> None:
        async with scene(sending(answer_of("openai_chat"))) as one:
            before = int(time.time())
            reply = await one.ask(
                "openai_responses", body_of("openai_responses", stream=True, **more | {"store": True})
            )
            assert reply.status == 200, reply.body
            payloads = [payload for _, payload in frames_of(reply.body) if isinstance(payload, dict)]
            told = {payload["type"]: payload["response"] for payload in payloads if "response" in payload}
            assert list(told) == ["response.created", "response.in_progress", "response.completed"]
            for type_, response in told.items():
                assert wrong(response) == [], type_
            for payload in payloads:
                if item := payload.get("item"):
                    assert missing(item, ITEMS[item["type"]], payload["type"]) == []
                    assert item.get("encrypted_content", "") is not None
            assert told["response.created"]["completed_at"] is None
            completed = told["response.completed"]
            assert completed["completed_at"] >= max(before, completed["created_at"])

            whole = await one.ask("openai_responses", body_of("openai_responses", stream=False, **more))
            assert wrong(whole.json) == []
            assert whole.json["completed_at"] >= before

            async with (
                aiohttp.ClientSession(one.gateway.url) as client,
                client.get(f"/v1/responses/{completed['id']}") as answer,
            ):
                assert await answer.json() == completed

    run(test())


def test_sampling_values_of_the_request_are_repeated_and_reach_the_host() -> None:
    sampling: Json = {"temperature": 0.3, "top_p": 0.5, "presence_penalty": 0.25, "frequency_penalty": -0.5}

    async def test() -> None:
        async with scene(sending(answer_of("openai_chat")), host="generic") as one:
            reply = await one.ask("openai_responses", body_of("openai_responses", stream=False, **sampling))
            assert {name: reply.json[name] for name in sampling} == sampling
            sent = json.loads(one.host.requests[0].body)
            assert {name: sent.get(name) for name in sampling} == sampling

    run(test())


def test_an_answer_that_was_cut_off_was_never_completed() -> None:
    cut = text_answer("openai_chat", "hi")
    cut = replace(cut, stream=cut.stream.replace(b'"finish_reason": "stop"', b'"finish_reason": "length"'))

    async def test() -> None:
        async with scene(sending(cut)) as one:
            reply = await one.ask("openai_responses", body_of("openai_responses"))
            last = next(payload for _, payload in frames_of(reply.body) if payload["type"] == "response.incomplete")
            assert last["response"]["completed_at"] is None
            assert wrong(last["response"]) == []

    run(test())
