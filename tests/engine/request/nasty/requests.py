"""Requests as bad as clients make them, in all three dialects: data only.

`NASTY` are those that every host must be able to take once they are prepared, whichever
generation of Kimi it serves; `REFUSED` those that nobody can make right, with the field that
the error has to name. Written from what is known of clients and hosts.
"""

from __future__ import annotations

from typing import Any, Final

from tests.engine.request.nasty.case import CHECKED, Json, Nasty, Refused
from tests.engine.request.nasty.chat import CLIENTS as CHAT_CLIENTS
from tests.engine.request.nasty.chat_faults import FAULTS
from tests.engine.request.nasty.chat_fields import FIELDS
from tests.engine.request.nasty.documents import DOCUMENTS
from tests.engine.request.nasty.messages import MESSAGES
from tests.engine.request.nasty.responses import RESPONSES

__all__ = ["NASTY", "REFUSED", "Json", "Nasty", "Refused"]

NASTY: Final[tuple[Nasty, ...]] = (*CHAT_CLIENTS, *FAULTS, *FIELDS, *MESSAGES, *RESPONSES, *DOCUMENTS)

_USER: Final = {"role": "user", "content": "Go."}


def _tool(name: str, description: str = "Does it.") -> Json:
    return {"type": "function", "function": {"name": name, "description": description, "parameters": _EMPTY}}


_EMPTY: Final[Json] = {"type": "object", "properties": {}}
_ELSEWHERE: Final[Json] = {
    "type": "object",
    "properties": {"a": {"$ref": "https://example.com/elsewhere.json#/a"}},
}
_MANY: Final[list[Any]] = [_tool(f"tool_{number}") for number in range(129)]

REFUSED: Final[tuple[Refused, ...]] = (
    Refused(
        "two different tools of one name",
        "openai_chat",
        {"model": "m", "messages": [_USER], "tools": [_tool("run", "Runs it."), _tool("run", "Walks it.")]},
        "tools[1]",
    ),
    Refused(
        "a schema that refers to another document",
        "openai_chat",
        {
            "model": "m",
            "messages": [_USER],
            "tools": [
                _tool("ok"),
                {
                    "type": "function",
                    "function": {
                        "name": "odd",
                        "parameters": _ELSEWHERE,
                    },
                },
            ],
        },
        "tools[1].function.parameters",
        hosts=CHECKED,
    ),
    Refused(
        "a schema of a Messages tool that refers to another document",
        "anthropic",
        {
            "model": "m",
            "max_tokens": 9,
            "messages": [_USER],
            "tools": [{"name": "ok", "input_schema": _EMPTY}, {"name": "odd", "input_schema": _ELSEWHERE}],
        },
        "tools[1].input_schema",
        hosts=CHECKED,
    ),
    Refused(
        "a schema of a Responses tool that refers to another document",
        "openai_responses",
        {
            "model": "m",
            "input": "Go.",
            "tools": [
                {"type": "function", "name": "ok", "parameters": _EMPTY},
                {"type": "function", "name": "odd", "parameters": _ELSEWHERE},
            ],
        },
        "tools[1].parameters",
        hosts=CHECKED,
    ),
    Refused(
        "a schema for the answer that refers to another document",
        "openai_chat",
        {
            "model": "m",
            "messages": [_USER],
            "response_format": {"type": "json_schema", "json_schema": {"name": "odd", "schema": _ELSEWHERE}},
        },
        "response_format.json_schema.schema",
        hosts=CHECKED,
    ),
    Refused(
        "more tools than the host takes",
        "openai_chat",
        {"model": "m", "messages": [_USER], "tools": _MANY},
        "tools",
        hosts=(*CHECKED, "groq"),
    ),
    Refused(
        "a tool message without an identifier",
        "openai_chat",
        {"model": "m", "messages": [_USER, {"role": "tool", "content": "42"}]},
        "messages[1].tool_call_id",
    ),
    Refused(
        "a tool message without content",
        "openai_chat",
        {
            "model": "m",
            "messages": [
                _USER,
                {
                    "role": "assistant",
                    "tool_calls": [{"id": "a", "type": "function", "function": {"name": "ls", "arguments": "{}"}}],
                },
                {"role": "tool", "tool_call_id": "a"},
            ],
        },
        "messages[2].content",
    ),
    Refused("no messages", "openai_chat", {"model": "m", "messages": []}, "messages"),
    Refused("a message that is a string", "openai_chat", {"model": "m", "messages": ["hi"]}, "messages[0]"),
    Refused(
        "a choice among tools that is no choice",
        "openai_chat",
        {"model": "m", "messages": [_USER], "tools": [_tool("ls")], "tool_choice": 7},
        "tool_choice",
    ),
    Refused(
        "a choice among tools whose type is an object",
        "openai_chat",
        {
            "model": "m",
            "messages": [_USER],
            "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": {}}]}},
        },
        "tool_choice",
    ),
    Refused(
        "a tool without a name",
        "openai_chat",
        {"model": "m", "messages": [_USER], "tools": [{"type": "function", "function": {}}]},
        "tools[0]",
    ),
    Refused(
        "no max_tokens that is a number",
        "anthropic",
        {"model": "m", "max_tokens": "x", "messages": [_USER]},
        "max_tokens",
    ),
    Refused(
        "a search alone, and forced, where the host has none",
        "openai_responses",
        {"model": "m", "input": "Search.", "tools": [{"type": "web_search"}], "tool_choice": "required"},
        "tool_choice",
        hosts=("kimi-coding", "openrouter", "vllm", "groq", "generic"),
    ),
)
