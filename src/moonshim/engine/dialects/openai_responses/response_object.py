"""What a response object repeats of its request, and its usage object."""

from __future__ import annotations

import re
from typing import Any, Final

from moonshim.engine.dialects.openai_responses.extras import Json, body_fields
from moonshim.engine.dialects.openai_responses.request import CONTINUES
from moonshim.engine.values.conversation import Request, Usage

__all__ = ["echo", "response_id", "write_usage"]

_ECHOED: Final[dict[str, Any]] = {
    "background": False,
    "conversation": None,
    "frequency_penalty": 0.0,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "parallel_tool_calls": True,
    "presence_penalty": 0.0,
    "previous_response_id": None,
    "prompt": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": "default",
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
    "metadata": {},
}
"""The request fields that a response repeats, with their defaults: everything that Open Responses requires."""
_TOOL: Final = {"description": None, "parameters": None, "strict": None}
_JSON_SCHEMA: Final = {"description": None, "strict": False}
"""Fields that are optional in a request but required in a response object."""
_OTHER: Final = re.compile(r"[^a-zA-Z0-9_-]")


def echo(request: Request) -> Json:
    """The fields of a request that every response object repeats, as received."""
    received = body_fields(request)
    echoed = {key: value if received.get(key) is None else received[key] for key, value in _ECHOED.items()}
    if echoed["previous_response_id"] is None and isinstance(continues := received.get(CONTINUES), dict):
        echoed["previous_response_id"] = continues.get("previous_response_id")
    if isinstance(echoed["conversation"], str):
        echoed["conversation"] = {"id": echoed["conversation"]}
    text, choice = echoed["text"], echoed["tool_choice"]
    format = text.get("format") or {"type": "text"}
    echoed["text"] = {**text, "format": _JSON_SCHEMA | format if format.get("type") == "json_schema" else format}
    echoed["reasoning"] = _ECHOED["reasoning"] | echoed["reasoning"]
    echoed["tools"] = [_TOOL | tool if tool.get("type") == "function" else tool for tool in echoed["tools"]]
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        echoed["tool_choice"] = {"mode": "auto", **choice}
    return echoed


def response_id(id: str) -> str:
    """A response id, derived from any id.

    >>> response_id("chatcmpl-1.a"), response_id("resp_1")
    ('resp_chatcmpl-1_a', 'resp_1')
    """
    return id if id.startswith("resp_") else f"resp_{_OTHER.sub('_', id)}"


def write_usage(usage: Usage) -> Json:
    """Usage in the form of Responses.

    >>> write_usage(Usage(10, 5, cached_tokens=8))["input_tokens_details"]
    {'cached_tokens': 8, 'cache_write_tokens': 0}
    """
    input_tokens, output_tokens = usage.input_tokens or 0, usage.output_tokens or 0
    return {
        "input_tokens": input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_tokens or 0,
            "cache_write_tokens": usage.cache_write_tokens or 0,
        },
        "output_tokens": output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens or 0},
        "total_tokens": input_tokens + output_tokens,
    }
