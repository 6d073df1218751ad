"""Calls that a server or a model has damaged: each arrives whole and in its place, or the response is an error."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from moonshim import Failed, Mender, ToolCall, mend_response
from moonshim.engine.prepare import prepare_request
from tests.support.streams import chunk, parse_payloads, read_sse, sse


def _definition(name: str, key: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {key: {"type": "string"}}, "required": [key]}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


TOOLS: Final = [_definition("ls", "path"), _definition("cat", "file")]
ARGUMENTS: Final = '{"path": "/tmp"}'
BEGIN: Final = "<|tool_call_argument_begin|>"
END: Final = "<|tool_call_end|>"


def entry(index: int, id_: str, name: str, arguments: str) -> dict[str, Any]:
    return {"index": index, "id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


def whole(content: str | None, *entries: dict[str, Any], finish: str = "stop") -> dict[str, Any]:
    message = {"role": "assistant", "content": content, **({"tool_calls": [*entries]} if entries else {})}
    return {"id": "c", "model": "kimi-k2.5", "choices": [{"index": 0, "message": message, "finish_reason": finish}]}


def calls_of(body: dict[str, Any]) -> list[tuple[str, Any]]:
    mended = mend_response(body, model="kimi-k2.5", tools=TOOLS)
    calls = [part for part in mended.message.parts if isinstance(part, ToolCall)]
    return [(call.name, json.loads(call.arguments)) for call in calls]


def test_an_id_of_hexadecimal_digits_may_end_in_a_letter() -> None:
    for last in "07af":
        text = f"I look.\ncall_3cc23e7d76c3ab2a7d25cea{last}{BEGIN}{ARGUMENTS}{END}"
        assert calls_of(whole(text)) == [("ls", {"path": "/tmp"})], last


def test_a_string_in_arguments_that_stand_in_the_id_may_contain_a_marker() -> None:
    id_ = f'functions.ls:0 {{"path": "<|x|>"}}{END}'
    assert calls_of(whole(None, entry(0, id_, "ls", ""), finish="tool_calls")) == [("ls", {"path": "<|x|>"})]


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_arguments_in_the_id_are_read_over_messages_too(stream: bool) -> None:
    body = {"model": "kimi-k2.5", "messages": [{"role": "user", "content": "Go on."}], "max_tokens": 9}
    tool = {"name": "ls", "input_schema": TOOLS[0]["function"]["parameters"]}
    plan = prepare_request(
        {**body, "tools": [tool], "stream": stream}, dialect="anthropic", upstream="anthropic", host="vllm"
    ).plan
    block = {"type": "tool_use", "id": f"functions.ls:0 {ARGUMENTS}{END}", "name": "ls", "input": {}}
    message = {"id": "m", "type": "message", "role": "assistant", "model": "kimi-k2.5", "content": [block]}
    if stream:
        mender = Mender(plan=plan)
        for event in (
            {"type": "message_start", "message": {**message, "content": [], "usage": {"input_tokens": 1}}},
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}},
            {"type": "message_stop"},
        ):
            mender.feed(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
        mender.flush()
        parts, ending = mender.message.parts, mender.ending
    else:
        mended = mend_response({**message, "stop_reason": "tool_use"}, plan=plan)
        parts, ending = mended.message.parts, mended.ending
    calls = [json.loads(part.arguments) for part in parts if isinstance(part, ToolCall)]
    assert isinstance(ending, Failed) or calls == [{"path": "/tmp"}]


@pytest.mark.parametrize(
    ("id_", "arguments"),
    [(f"functions.ls:0 {ARGUMENTS}{END}", ""), ("functions.ls:0", ARGUMENTS[1:-1])],
    ids=["in the id", "without braces"],
)
def test_a_call_is_whole_before_the_next_one_begins(id_: str, arguments: str) -> None:
    """The helpers of SDKs parse the arguments of a call when the next one begins."""
    deltas = [entry(0, id_, "ls", ""), {"index": 0, "function": {"arguments": arguments}}]
    deltas.append(entry(1, "functions.cat:1", "cat", '{"file": "a"}'))
    chunks = [chunk({"role": "assistant"}), *(chunk({"tool_calls": [one]}) for one in deltas), chunk({}, "tool_calls")]
    mender = Mender(model="kimi-k2.5", tools=TOOLS)
    out = mender.feed(sse(chunks)) + mender.flush()
    seen = ""
    for payload in parse_payloads(read_sse(out)):
        for one in payload["choices"][0]["delta"].get("tool_calls", []) if isinstance(payload, dict) else []:
            if one["index"] == 1:
                assert json.loads(seen) == {"path": "/tmp"}
                return
            seen += one["function"].get("arguments") or ""
    raise AssertionError("the second call did not begin")
