"""A response with three choices, as a host sends it: text with logprobs, a call in markers after reasoning, a call."""

from __future__ import annotations

import json
from itertools import zip_longest
from typing import Any, Final, Literal, TypeAlias

from tests.support.streams import sse

__all__ = ["CUSTOM", "NAME", "TOOL", "check", "choice_chunks", "host_sends", "interleaved", "piece", "whole"]

Json: TypeAlias = dict[str, Any]

NAME: Final = "my-alias"
MARKED: Final = (
    "Look.<|tool_calls_section_begin|><|tool_call_begin|>functions.ls:0<|tool_call_argument_begin|>"
    '{"n": 1}<|tool_call_end|><|tool_calls_section_end|>'
)
USAGE: Final = {"prompt_tokens": 3, "completion_tokens": 9, "total_tokens": 12}
_SCHEMA: Final = {"type": "object", "properties": {"n": {"type": "integer"}}}
TOOL: Final = {"type": "function", "function": {"name": "ls", "parameters": _SCHEMA}}
CUSTOM: Final = {"type": "custom", "custom": {"name": "shell"}}


def token(text: str) -> Json:
    return {"token": text, "logprob": -0.5, "bytes": None, "top_logprobs": []}


def piece(index: int, delta: Json, finish: str | None = None, **more: Any) -> Json:
    choice = {"index": index, "delta": delta, "finish_reason": finish, **more}
    return {"id": "c1", "object": "chat.completion.chunk", "created": 7, "model": "kimi-k2.5", "choices": [choice]}


def native(index: int, arguments: str, **more: str) -> Json:
    return {"tool_calls": [{"index": index, **more, "function": {"arguments": arguments}}]}


def choice_chunks(index: int) -> list[Json]:
    """What a host sends of one choice: text with probabilities, a leaked call after reasoning, native calls."""
    role = piece(index, {"role": "assistant", "content": ""})
    match index:
        case 0:
            said = [piece(0, {"content": text}, logprobs={"content": [token(text)]}) for text in ("Hel", "lo.")]
            return [role, *said, piece(0, {}, "length")]
        case 1:
            text = [piece(1, {"content": MARKED[at : at + 9]}) for at in range(0, len(MARKED), 9)]
            return [role, piece(1, {"reasoning_content": "Hm."}), *text, piece(1, {}, "stop")]
        case _:
            called = {"index": 0, "id": "functions.ls:0", "type": "function", "function": {"name": "ls"}}
            first = piece(2, {"tool_calls": [called]})
            return [role, first, *(piece(2, native(0, text)) for text in ('{"n"', ": 2}")), piece(2, {}, "tool_calls")]


def interleaved() -> list[Json]:
    """The chunks of three choices, in turns."""
    turns = zip_longest(*(choice_chunks(index) for index in range(3)))
    chunks = [chunk for turn in turns for chunk in turn if chunk is not None]
    return [*chunks, {**piece(0, {}), "choices": [], "usage": USAGE}]


def whole() -> Json:
    messages: list[Json] = [
        {"role": "assistant", "content": "Hello."},
        {"role": "assistant", "content": MARKED, "reasoning_content": "Hm."},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "functions.ls:0", "type": "function", "function": {"name": "ls", "arguments": '{"n": 2}'}}
            ],
        },
    ]
    reasons = ("length", "stop", "tool_calls")
    choices: list[Json] = [
        {"index": index, "message": message, "finish_reason": reason}
        for index, (message, reason) in enumerate(zip(messages, reasons, strict=True))
    ]
    choices[0]["logprobs"] = {"content": [token("Hel"), token("lo.")]}
    return {"id": "c1", "object": "chat.completion", "created": 7, "model": "x", "choices": choices, "usage": USAGE}


def host_sends(form: Literal["sse", "ndjson", "json"]) -> bytes:
    if form == "json":
        return json.dumps(whole()).encode()
    if form == "ndjson":
        return b"".join(json.dumps(chunk).encode() + b"\n" for chunk in interleaved())
    return sse(interleaved())


def check(body: Json, *, model: str = NAME, text: str = "Hello.", look: str = "Look.") -> None:
    """All three choices are there, and repaired."""
    choices = sorted(body["choices"], key=lambda one: one["index"])
    assert [one["index"] for one in choices] == [0, 1, 2]
    messages = [one["message"] for one in choices]
    assert [one["finish_reason"] for one in choices] == ["length", "tool_calls", "tool_calls"]
    assert [message["role"] for message in messages] == ["assistant"] * 3
    assert [message.get("content") or "" for message in messages] == [text, look, ""]
    assert [message.get("reasoning_content") for message in messages] == [None, "Hm.", None]
    calls = [
        [(one["function"]["name"], one["function"]["arguments"]) for one in message.get("tool_calls") or ()]
        for message in messages
    ]
    assert calls == [[], [("ls", '{"n": 1}')], [("ls", '{"n": 2}')]]
    assert [one["token"] for one in choices[0]["logprobs"]["content"]] == ["Hel", "lo."]
    assert not any(one.get("logprobs") for one in choices[1:])
    assert body["usage"]["completion_tokens"] == 9
    assert (body["model"], body["created"]) == (model, 7)
