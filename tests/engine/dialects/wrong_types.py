"""Requests with one value of a wrong type, in all three dialects: data only.

`WRONG` are cases with the field that the error has to name and what it has to say. `COMPLETE` is a valid request that
sets every known field, and `wrong_values` puts a value of every other type in place of each of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any, Final, TypeAlias

from msgspec import Struct

__all__ = ["COMPLETE", "SHORT", "VALID", "WRONG", "Wrong", "replaced", "wrong_values"]

Json: TypeAlias = dict[str, Any]
Path: TypeAlias = tuple[str | int, ...]

MODEL: Final = "kimi-k2.5"
_USER: Final[Json] = {"role": "user", "content": "hi"}
_SCHEMA: Final[Json] = {"type": "object", "properties": {}}


class Wrong(Struct, frozen=True):
    """A request that is refused."""

    dialect: str
    fields: Json
    """Set in a short valid request."""
    field: str
    says: str
    """After the field."""


SHORT: Final[dict[str, Json]] = {
    "openai_chat": {"model": MODEL, "messages": [_USER]},
    "anthropic": {"model": MODEL, "max_tokens": 9, "messages": [_USER]},
    "openai_responses": {"model": MODEL, "input": "hi"},
}


def _chat(field: str, says: str, **fields: Any) -> Wrong:
    return Wrong("openai_chat", fields, field, says)


def _messages(field: str, says: str, **fields: Any) -> Wrong:
    return Wrong("anthropic", fields, field, says)


def _responses(field: str, says: str, **fields: Any) -> Wrong:
    return Wrong("openai_responses", fields, field, says)


def _call(**changed: Any) -> list[Json]:
    call = {"id": "a", "type": "function", "function": {"name": "ls", "arguments": "{}"}} | changed
    return [
        _USER,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": "x"},
    ]


def _part(part: Json) -> list[Json]:
    return [{"role": "user", "content": [{"type": "input_text", "text": "hi"}, part]}]


_WRONG_STRING: Final = ": expected a string, got an integer"

WRONG: Final[dict[str, Wrong]] = {
    "store of Responses": _responses("store", ": expected a boolean, got a string", store="false"),
    "include": _responses("include", ": expected a list of strings, got a string", include="usage"),
    "an entry of include": _responses("include[1]", _WRONG_STRING, include=["a", 7]),
    "background": _responses("background", ": expected a boolean, got an integer", background=1),
    "truncation": _responses("truncation", ": expected a string, got a boolean", truncation=True),
    "conversation": _responses("conversation", ": expected a string or an object, got an integer", conversation=7),
    "previous_response_id": _responses("previous_response_id", _WRONG_STRING, previous_response_id=7),
    "prompt": _responses("prompt", ": expected an object, got a string", prompt="pmpt_1"),
    "max_tool_calls": _responses("max_tool_calls", ": expected an integer, got a string", max_tool_calls="3"),
    "text.verbosity": _responses("text.verbosity", _WRONG_STRING, text={"verbosity": 7}),
    "reasoning.summary": _responses(
        "reasoning.summary", ": expected a string, got a boolean", reasoning={"summary": True}
    ),
    "an image of Responses": _responses(
        "input[0].content[1].image_url", _WRONG_STRING, input=_part({"type": "input_image", "image_url": 7})
    ),
    "an image without a source": _responses(
        "input[0].content[1].image_url", " is required", input=_part({"type": "input_image", "detail": "auto"})
    ),
    "a file of Responses": _responses(
        "input[0].content[1].file_data",
        ": expected a string, got a list",
        input=_part({"type": "input_file", "file_data": []}),
    ),
    "a file without a source": _responses(
        "input[0].content[1].file_data", " is required", input=_part({"type": "input_file", "filename": "a.txt"})
    ),
    "audio without a format": _responses(
        "input[0].content[1].input_audio.format",
        " is required",
        input=_part({"type": "input_audio", "input_audio": {"data": "aGk="}}),
    ),
    "a file_id": _responses(
        "input[0].content[1].file_id", _WRONG_STRING, input=_part({"type": "input_image", "file_id": 7})
    ),
    "the arguments of a call of Responses": _responses(
        "input[0].arguments",
        ": expected a string with a JSON object, got a boolean",
        input=[{"type": "function_call", "call_id": "a", "name": "ls", "arguments": True}],
    ),
    "the id of an item": _responses("input[0].id", _WRONG_STRING, input=[{"type": "message", "id": 7, **_USER}]),
    "the summary of reasoning": _responses(
        "input[0].summary[0].text",
        _WRONG_STRING,
        input=[{"type": "reasoning", "summary": [{"type": "summary_text", "text": 7}]}, _USER],
    ),
    "the description of a tool of Responses": _responses(
        "tools[0].description", _WRONG_STRING, tools=[{"type": "function", "name": "ls", "description": 7}]
    ),
    "logprobs": _chat("logprobs", ": expected a boolean, got an integer", logprobs=5),
    "top_logprobs": _chat("top_logprobs", ": expected an integer, got a string", top_logprobs="5"),
    "a fraction of top_logprobs": _chat("top_logprobs", ": expected an integer, got a number", top_logprobs=1.5),
    "n": _chat("n", ": expected an integer, got a string", n="2"),
    "more choices than OpenAI allows": _chat("n", " must be at most 128", n=129),
    "choices without end": _chat("n", " must be at most 128", n=1e300),
    "seed": _chat("seed", ": expected an integer, got a boolean", seed=True),
    "stream_options": _chat("stream_options", ": expected an object, got a boolean", stream_options=True),
    "include_usage": _chat(
        "stream_options.include_usage", ": expected a boolean, got a string", stream_options={"include_usage": "yes"}
    ),
    "response_format": _chat("response_format", ": expected an object, got a string", response_format="json_object"),
    "the name of a format": _chat(
        "response_format.json_schema.name",
        _WRONG_STRING,
        response_format={"type": "json_schema", "json_schema": {"name": 7, "schema": _SCHEMA}},
    ),
    "stop": _chat("stop", ": expected a string or a list of strings, got an integer", stop=7),
    "an entry of stop": _chat("stop[1]", _WRONG_STRING, stop=["a", 7]),
    "user beside safety_identifier": _chat("user", _WRONG_STRING, user=7, safety_identifier="a"),
    "chat_template_kwargs": _chat(
        "chat_template_kwargs", ": expected an object, got a string", chat_template_kwargs="thinking"
    ),
    "thinking of Chat": _chat("thinking", ": expected an object, got a string", thinking="enabled"),
    "functions": _chat("functions", ": expected a list, got an object", functions={"name": "ls"}),
    "tools": _chat("tools", ": expected a list, got an object", tools={}),
    "a tool": _chat("tools[0]", ": expected an object, got a string", tools=["ls"]),
    "the description of a tool": _chat(
        "tools[0].function.description",
        _WRONG_STRING,
        tools=[{"type": "function", "function": {"name": "ls", "description": 7}}],
    ),
    "content": _chat(
        "messages[0].content",
        ": expected a string or a list of parts, got an integer",
        messages=[{"role": "user", "content": 7}],
    ),
    "the type of a part": _chat(
        "messages[0].content[0].type", _WRONG_STRING, messages=[{"role": "user", "content": [{"type": 7}]}]
    ),
    "the detail of an image": _chat(
        "messages[0].content[0].image_url.detail",
        _WRONG_STRING,
        messages=[
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://a/b", "detail": 7}}]}
        ],
    ),
    "a file of Chat": _chat(
        "messages[0].content[0].file.file_data",
        _WRONG_STRING,
        messages=[{"role": "user", "content": [{"type": "file", "file": {"file_data": 7}}]}],
    ),
    "the function of a call": _chat(
        "messages[1].tool_calls[0].function", ": expected an object, got a string", messages=_call(function="ls")
    ),
    "the name of a call": _chat(
        "messages[1].tool_calls[0].function.name",
        _WRONG_STRING,
        messages=_call(function={"name": 7, "arguments": "{}"}),
    ),
    "the arguments of a call": _chat(
        "messages[1].tool_calls[0].function.arguments",
        ": expected a string with a JSON object, got an integer",
        messages=_call(function={"name": "ls", "arguments": 7}),
    ),
    "a call without a name and an id": _chat(
        "messages[1].tool_calls[0].function.name", " is required", messages=_call(id=None, function={"arguments": "{}"})
    ),
    "a missing model": _chat("model", " is required", model=None),
    "a missing model of Messages": _messages("model", " is required", model=None),
    "a missing model of Responses": _responses("model", " is required", model=None),
    "an empty model": _chat("model", " must not be empty", model=""),
    "a model": _messages("model", _WRONG_STRING, model=7),
    "missing messages": _chat("messages", " is required", messages=None),
    "missing messages of Messages": _messages("messages", " is required", messages=None),
    "no messages": _messages("messages", " must not be empty", messages=[]),
    "a missing input": _responses("input", " is required", input=None),
    "an input": _responses("input", ": expected a string or a list of items, got an object", input={}),
    "mcp_servers": _messages("mcp_servers", ": expected a list of objects, got an object", mcp_servers={}),
    "an entry of mcp_servers": _messages(
        "mcp_servers[0]", ": expected an object, got a string", mcp_servers=["https://a"]
    ),
    "metadata": _messages("metadata", ": expected an object, got a string", metadata="u"),
    "metadata.user_id": _messages("metadata.user_id", _WRONG_STRING, metadata={"user_id": 7}),
    "container": _messages("container", ": expected a string or an object, got an integer", container=7),
    "service_tier": _messages("service_tier", ": expected a string, got a boolean", service_tier=True),
    "stop_sequences": _messages("stop_sequences", ": expected a list of strings, got a string", stop_sequences="END"),
    "an entry of stop_sequences": _messages("stop_sequences[0]", _WRONG_STRING, stop_sequences=[7]),
    "cache_control": _messages("cache_control", ": expected an object, got a string", cache_control="ephemeral"),
    "the id of a tool_use": _messages(
        "messages[0].content[0].id",
        _WRONG_STRING,
        messages=[{"role": "assistant", "content": [{"type": "tool_use", "id": 7, "name": "ls", "input": {}}]}],
    ),
    "is_error": _messages(
        "messages[0].content[0].is_error",
        ": expected a boolean, got a string",
        messages=[{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "is_error": "no"}]}],
    ),
    "the source of an image": _messages(
        "messages[0].content[0].source.type",
        _WRONG_STRING,
        messages=[{"role": "user", "content": [{"type": "image", "source": {"type": 7, "data": "aGk="}}]}],
    ),
    "disable_parallel_tool_use": _messages(
        "tool_choice.disable_parallel_tool_use",
        ": expected a boolean, got an integer",
        tools=[{"name": "ls", "input_schema": _SCHEMA}],
        tool_choice={"type": "auto", "disable_parallel_tool_use": 1},
    ),
    "a temperature": _responses("temperature", ": expected a number, got a string", temperature="hot"),
}

VALID: Final[dict[str, tuple[str, Json]]] = {
    "nulls of Chat": (
        "openai_chat",
        dict.fromkeys(("logprobs", "top_logprobs", "n", "seed", "stream_options", "response_format", "store", "user")),
    ),
    "nulls of Messages": (
        "anthropic",
        dict.fromkeys(("mcp_servers", "metadata", "container", "service_tier", "stop_sequences", "cache_control")),
    ),
    "nulls of Responses": (
        "openai_responses",
        dict.fromkeys(("store", "include", "background", "truncation", "conversation", "prompt", "service_tier")),
    ),
    "unknown fields": ("openai_chat", {"nvext": 7, "logprobs_mode": True}),
    "values that only a host knows": ("openai_chat", {"service_tier": "on_demand", "modalities": ["smell"]}),
    "an integer with a fraction of zero": ("openai_chat", {"n": 1.0, "top_logprobs": 2.0, "max_tokens": 5.0}),
    "a limit above that of every model": ("openai_chat", {"max_tokens": 10**30}),
    "a call without a usable id": ("openai_chat", {"messages": _call(id=7)[:2]}),
    "arguments that are an object": (
        "openai_chat",
        {"messages": _call(function={"name": "ls", "arguments": {"path": "/"}})},
    ),
    "arguments of a client in PHP": ("openai_chat", {"messages": _call(function={"name": "ls", "arguments": []})}),
    "a container with skills": ("anthropic", {"container": {"id": "c", "skills": []}}),
    "an image as in Chat": (
        "openai_responses",
        {"input": _part({"type": "input_image", "image_url": {"url": "https://a/b.png"}})},
    ),
    "a part of an unknown type": ("openai_responses", {"input": _part({"type": "input_smell", "smell": 7})}),
}


# --- every field --------------------------------------------------------------------------------------------------

COMPLETE: Final[dict[str, Json]] = {
    "openai_chat": {
        "model": MODEL,
        "messages": [
            {"role": "system", "content": "s", "name": "x"},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "hi"},
                    {"type": "image_url", "image_url": {"url": "https://a/b.png", "detail": "auto"}},
                ],
            },
            {
                "role": "assistant",
                "content": "c",
                "reasoning_content": "r",
                "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "ok"},
            _USER,
        ],
        "tools": [
            {
                "type": "function",
                "function": {"name": "ls", "description": "d", "parameters": _SCHEMA, "strict": False},
            }
        ],
        "tool_choice": {"type": "function", "function": {"name": "ls"}},
        "temperature": 1,
        "top_p": 1,
        "top_k": 4,
        "n": 1,
        "seed": 1,
        "max_tokens": 5,
        "max_completion_tokens": 5,
        "stop": ["a"],
        "logprobs": True,
        "top_logprobs": 1,
        "stream": False,
        "stream_options": {"include_usage": True},
        "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": _SCHEMA, "strict": True}},
        "presence_penalty": 0,
        "frequency_penalty": 0,
        "logit_bias": {},
        "user": "u",
        "safety_identifier": "i",
        "metadata": {},
        "parallel_tool_calls": True,
        "store": False,
        "service_tier": "auto",
        "reasoning_effort": "low",
        "modalities": ["text"],
        "prediction": {},
        "audio": {},
        "verbosity": "low",
        "web_search_options": {},
        "prompt_cache_key": "k",
        "prompt_cache_retention": "24h",
        "thinking": {"type": "enabled", "budget_tokens": 5},
        "chat_template_kwargs": {},
        "enable_thinking": True,
    },
    "anthropic": {
        "model": MODEL,
        "max_tokens": 5,
        "system": [{"type": "text", "text": "s", "cache_control": {}}],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "hi", "cache_control": {}},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
                    {
                        "type": "document",
                        "source": {"type": "text", "media_type": "text/plain", "data": "x"},
                        "title": "t",
                    },
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "t", "signature": "s"},
                    {"type": "tool_use", "id": "c1", "name": "ls", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "c1",
                        "content": [{"type": "text", "text": "ok"}],
                        "is_error": False,
                    }
                ],
            },
        ],
        "tools": [{"name": "ls", "description": "d", "input_schema": _SCHEMA, "strict": False}],
        "tool_choice": {"type": "tool", "name": "ls", "disable_parallel_tool_use": True},
        "temperature": 1,
        "top_p": 1,
        "top_k": 4,
        "stop_sequences": ["a"],
        "stream": False,
        "metadata": {"user_id": "u"},
        "thinking": {"type": "enabled", "budget_tokens": 5},
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": _SCHEMA}},
        "service_tier": "auto",
        "mcp_servers": [{"type": "url", "name": "a", "url": "https://a"}],
        "container": "c",
        "context_management": {"edits": []},
        "inference_geo": "us",
        "speed": "fast",
        "cache_control": {},
    },
    "openai_responses": {
        "model": MODEL,
        "instructions": "i",
        "input": [
            {
                "type": "message",
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "hi"},
                    {"type": "input_image", "image_url": "https://a/b.png", "detail": "auto"},
                    {"type": "input_file", "file_data": "data:text/plain;base64,aGk=", "filename": "a.txt"},
                ],
            },
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": "t"}],
                "content": [{"type": "reasoning_text", "text": "a"}],
            },
            {
                "type": "function_call",
                "id": "fc_1",
                "call_id": "c1",
                "name": "ls",
                "arguments": "{}",
                "status": "completed",
            },
            {"type": "function_call_output", "call_id": "c1", "output": "ok"},
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "a"}],
            },
            _USER,
        ],
        "tools": [
            {"type": "function", "name": "ls", "description": "d", "parameters": _SCHEMA, "strict": False},
            {"type": "custom", "name": "c", "description": "d", "format": {"type": "text"}},
        ],
        "tool_choice": {"type": "function", "name": "ls"},
        "temperature": 1,
        "top_p": 1,
        "max_output_tokens": 5,
        "max_tool_calls": 3,
        "top_logprobs": 1,
        "stream": False,
        "stream_options": {"include_obfuscation": False},
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "background": False,
        "truncation": "auto",
        "metadata": {},
        "user": "u",
        "safety_identifier": "i",
        "prompt_cache_key": "k",
        "prompt_cache_retention": "24h",
        "parallel_tool_calls": True,
        "reasoning": {"effort": "low", "summary": "auto"},
        "text": {
            "format": {"type": "json_schema", "name": "a", "schema": _SCHEMA, "strict": True, "description": "d"},
            "verbosity": "low",
        },
        "service_tier": "auto",
        "context_management": [{"type": "compaction", "compact_threshold": 1000}],
    },
}

_VALUES: Final[tuple[Any, ...]] = ("x", 7, 1.5, True, [7], ["a"], {"a": 1})
_NOT_CHECKED: Final = frozenset({"parameters", "input_schema", "schema"})
"""JSON schemas: what is in them is checked where a host's rules are known."""
_REPLACED_ID: Final[Path] = ("messages", 2, "tool_calls", 0, "id")
"""A call whose id is unusable gets a new one."""
_ALSO: Final[dict[str, tuple[type, ...]]] = {
    # By the last key of a path: other types that are accepted, by the API or for a client that sends them.
    "content": (str, list),
    "system": (str, list),
    "input": (str, list, dict),
    "arguments": (str, list, dict),
    "image_url": (str, dict),
    "file_data": (str, dict),
    "output": (str, list),
    "stop": (str, list),
    "container": (str, dict),
    "thinking": (dict, bool),
    "temperature": (int, float),
    "top_p": (int, float),
    "presence_penalty": (int, float),
    "frequency_penalty": (int, float),
    "tool_choice": (str, dict),
}


def wrong_values(dialect: str) -> Iterator[tuple[Path, Any]]:
    """Every field of the complete request with every value of a type that it cannot have."""
    for path, value in _walk(COMPLETE[dialect], ()):
        key = next(step for step in reversed(path) if isinstance(step, str))
        fitting = _ALSO.get(key, ()) if isinstance(path[-1], str) else ()
        for wrong in _VALUES:
            if type(wrong) is not type(value) and type(wrong) not in fitting and path != _REPLACED_ID:
                yield path, wrong


def _walk(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if path:
        yield path, value
    if isinstance(value, (dict, list)) and not (path and path[-1] in _NOT_CHECKED):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _walk(inner, (*path, key))


def replaced(body: Json, path: Path, value: Any) -> Json:
    """A copy of the body with this value at this path."""
    out = deepcopy(body)
    inner: Any = out
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return out
