"""A request of 200 messages, 100 tools and 1 MB, as each kind of client would send it."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]

ROUNDS = 50
TOOLS = 100
RESULT = 16_700
"""Characters of a tool's result; with the rest of the request, 1 MB."""


def _schema(number: int) -> Json:
    fields = {f"field_{place}": {"type": "string", "description": f"What to do with {place}."} for place in range(8)}
    return {"type": "object", "properties": fields, "required": ["field_0"], "additionalProperties": False}


def _name(number: int) -> str:
    return f"tool_{number % TOOLS}"


def _result(number: int) -> str:
    line = f'{number}: def read(path):  # a line as tools give back, with "quotes" and a tab\t\n'
    return (line * (RESULT // len(line) + 1))[:RESULT]


def chat() -> Json:
    """As an OpenAI client sends it: per round a question, a thought with a call, its result, an answer."""
    messages: list[Json] = []
    for number in range(ROUNDS):
        call = {"name": _name(number), "arguments": json.dumps({"field_0": f"value {number}"})}
        id = f"functions.{_name(number)}:{number}"
        messages += [
            {"role": "user", "content": f"Question {number}"},
            {
                "role": "assistant",
                "reasoning_content": "Let me look at this closely. " * 20,
                "tool_calls": [{"id": id, "type": "function", "function": call}],
            },
            {"role": "tool", "tool_call_id": id, "content": _result(number)},
            {"role": "assistant", "content": f"Answer {number}. " * 20},
        ]
    tools = [
        {"type": "function", "function": {"name": _name(n), "description": "Does it. " * 5, "parameters": _schema(n)}}
        for n in range(TOOLS)
    ]
    return {"model": "kimi-k2.5", "messages": messages, "tools": tools, "stream": True, "max_tokens": 8192}


def anthropic() -> Json:
    """As Claude Code sends it."""
    messages: list[Json] = []
    for number in range(ROUNDS):
        id = f"toolu_{number}"
        use = {"type": "tool_use", "id": id, "name": _name(number), "input": {"field_0": f"value {number}"}}
        thought = {"type": "thinking", "thinking": "Let me look at this closely. " * 20, "signature": "c2ln" * 16}
        messages += [
            {"role": "user", "content": [{"type": "text", "text": f"Question {number}"}]},
            {"role": "assistant", "content": [thought, use]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": _result(number)}]},
            {"role": "assistant", "content": [{"type": "text", "text": f"Answer {number}. " * 20}]},
        ]
    tools = [{"name": _name(n), "description": "Does it. " * 5, "input_schema": _schema(n)} for n in range(TOOLS)]
    system = [{"type": "text", "text": "You are an agent. " * 50, "cache_control": {"type": "ephemeral"}}]
    return {"model": "kimi-k2.5", "system": system, "messages": messages, "tools": tools, "max_tokens": 8192}


def responses() -> Json:
    """As Codex sends it."""
    items: list[Json] = [{"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Do."}]}]
    for number in range(ROUNDS):
        id = f"call_{number}"
        said = {"type": "function_call", "call_id": id, "name": _name(number), "arguments": '{"field_0": "value"}'}
        thought = {"type": "summary_text", "text": "Let me look at this closely. " * 20}
        items += [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": f"Question {number}"}]},
            {"type": "reasoning", "id": f"rs_{number}", "summary": [thought], "encrypted_content": None},
            said,
            {"type": "function_call_output", "call_id": id, "output": _result(number)},
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": f"Answer {number}. " * 20, "annotations": []}],
            },
        ]
    tools = [
        {"type": "function", "name": _name(n), "description": "Does it. " * 5, "parameters": _schema(n)}
        for n in range(TOOLS)
    ]
    return {"model": "kimi-k2.5", "input": items, "tools": tools, "stream": True, "store": False}


REQUESTS = {"openai_chat": chat, "anthropic": anthropic, "openai_responses": responses}
