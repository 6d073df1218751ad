"""Responses request fields other than input and tools: parsed into canonical values, and rendered from them.

A field that still equals the request is written as received. A changed one is written from scratch, with its other
keys (`text.verbosity`, `reasoning.summary`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from moonshim.engine.dialects.openai_responses.extras import Json
from moonshim.engine.values.conversation import Request, ResponseFormat, Sampling, Thinking
from moonshim.engine.wire.json_fields import (
    BOOLEAN,
    INTEGER,
    NUMBER,
    OBJECT,
    OBJECTS,
    STRING,
    STRING_OR_OBJECT,
    STRINGS,
    JsonType,
    check_fields,
    object_with,
    read_cache_ttl,
    read_field,
    read_integer,
)
from moonshim.errors import InvalidInput

__all__ = ["FIELDS", "ResponsesField", "check_other_fields", "unsupported_fields"]


class ResponsesField(Struct, frozen=True):
    """One canonical value: its place in a request, and how a body sets it."""

    keys: tuple[str, ...]
    read: Callable[[Json], Any]
    current: Callable[[Request], Any]
    write: Callable[[Any, Json], Json]
    """The fields for a value, given the value and the received fields."""


_REASONING: Final = object_with(effort=STRING, summary=STRING, generate_summary=STRING)
_FORMAT: Final = object_with(name=STRING, schema=OBJECT, strict=BOOLEAN, description=STRING)
_TEXT: Final = object_with(format=_FORMAT, verbosity=STRING)
_OTHER_TYPES: Final[dict[str, JsonType]] = {
    "background": BOOLEAN,
    "context_management": JsonType((list,), OBJECTS.name, object_with(type=STRING, compact_threshold=INTEGER)),
    "conversation": STRING_OR_OBJECT,
    "include": STRINGS,
    "max_tool_calls": INTEGER,
    "previous_response_id": STRING,
    "prompt": OBJECT,
    "service_tier": STRING,
    "store": BOOLEAN,
    "stream_options": object_with(include_obfuscation=BOOLEAN),
    "top_logprobs": INTEGER,
    "truncation": STRING,
}


def check_other_fields(body: Json) -> None:
    """Check the fields without a canonical value, which are passed on. Raises `InvalidInput`.

    >>> check_other_fields({"store": "no"})
    Traceback (most recent call last):
    moonshim.errors.InvalidInput: store: expected a boolean, got a string
    """
    check_fields(body, _OTHER_TYPES)


# --- reading ----------------------------------------------------------------------------------------------------


def _number(key: str) -> Callable[[Json], Any]:
    return lambda body: read_field(body, key, NUMBER)


def _boolean(key: str) -> Callable[[Json], Any]:
    return lambda body: read_field(body, key, BOOLEAN)


def _string(key: str) -> Callable[[Json], Any]:
    return lambda body: read_field(body, key, STRING)


def _read_max_tokens(body: Json) -> int | None:
    return read_integer(body, "max_output_tokens")


def _read_user(body: Json) -> str | None:
    preferred: str | None = _string("safety_identifier")(body)
    old: str | None = _string("user")(body)
    return old if preferred is None else preferred


def _read_metadata(body: Json) -> Json:
    return read_field(body, "metadata", OBJECT) or {}


def _read_thinking(body: Json) -> Thinking:
    effort = (read_field(body, "reasoning", _REASONING) or {}).get("effort")
    return Thinking(enabled=False) if effort == "none" else Thinking(effort=effort)


def _read_format(body: Json) -> ResponseFormat | None:
    text: Json = read_field(body, "text", _TEXT) or {}
    format: Json = text.get("format") or {}
    match format.get("type"):
        case "text" | "json_object" as kind:
            return ResponseFormat(kind)
        case "json_schema":
            keys = ("name", "schema", "strict", "description")
            return ResponseFormat("json_schema", *(format.get(key) for key in keys))
    if format:
        raise InvalidInput("text.format.type must be text, json_object or json_schema", field="text.format.type")
    return None


# --- writing ----------------------------------------------------------------------------------------------------


def _plain(key: str) -> Callable[[Any, Json], Json]:
    return lambda value, received: {} if value is None else {key: value}


def _write_user(user: str | None, received: Json) -> Json:
    return {} if user is None else {"safety_identifier" if "safety_identifier" in received else "user": user}


def _write_metadata(metadata: Json, received: Json) -> Json:
    return {"metadata": metadata} if metadata else {}


def _other_keys(received: Json, key: str, inner: str) -> Json:
    value = received.get(key)
    return {name: one for name, one in value.items() if name != inner} if isinstance(value, dict) else {}


def _write_thinking(thinking: Thinking, received: Json) -> Json:
    reasoning = _other_keys(received, "reasoning", "effort")
    effort = "none" if thinking.enabled is False else thinking.effort
    reasoning |= {"effort": effort} if effort is not None else {}
    return {"reasoning": reasoning} if reasoning else {}


def _write_format(format: ResponseFormat | None, received: Json) -> Json:
    text = _other_keys(received, "text", "format")
    if format is not None:
        received_value: Json = {
            "type": format.kind,
            "name": format.name or ("answer" if format.kind == "json_schema" else None),
            "schema": format.schema,
            "strict": format.strict,
            "description": format.description,
        }
        text["format"] = {key: value for key, value in received_value.items() if value is not None}
    return {"text": text} if text else {}


FIELDS: Final[dict[str, ResponsesField]] = {
    "sampling.temperature": ResponsesField(
        ("temperature",), _number("temperature"), lambda r: r.sampling.temperature, _plain("temperature")
    ),
    "sampling.top_p": ResponsesField(("top_p",), _number("top_p"), lambda r: r.sampling.top_p, _plain("top_p")),
    "sampling.presence_penalty": ResponsesField(
        ("presence_penalty",),
        _number("presence_penalty"),
        lambda r: r.sampling.presence_penalty,
        _plain("presence_penalty"),
    ),
    "sampling.frequency_penalty": ResponsesField(
        ("frequency_penalty",),
        _number("frequency_penalty"),
        lambda r: r.sampling.frequency_penalty,
        _plain("frequency_penalty"),
    ),
    "sampling.max_tokens": ResponsesField(
        ("max_output_tokens",), _read_max_tokens, lambda r: r.sampling.max_tokens, _plain("max_output_tokens")
    ),
    "parallel_calls": ResponsesField(
        ("parallel_tool_calls",),
        _boolean("parallel_tool_calls"),
        lambda r: r.parallel_calls,
        _plain("parallel_tool_calls"),
    ),
    "stream": ResponsesField(("stream",), _boolean("stream"), lambda r: r.stream, _plain("stream")),
    "user": ResponsesField(("safety_identifier", "user"), _read_user, lambda r: r.user, _write_user),
    "metadata": ResponsesField(("metadata",), _read_metadata, lambda r: r.metadata, _write_metadata),
    "cache_key": ResponsesField(
        ("prompt_cache_key",), _string("prompt_cache_key"), lambda r: r.cache_key, _plain("prompt_cache_key")
    ),
    "cache_ttl": ResponsesField(
        ("prompt_cache_options", "prompt_cache_retention"),
        read_cache_ttl,
        lambda r: r.cache_ttl,
        lambda ttl, received: {} if ttl is None else {"prompt_cache_options": {"ttl": ttl}},
    ),
    "thinking": ResponsesField(
        ("reasoning",), _read_thinking, lambda r: _supported_thinking(r.thinking), _write_thinking
    ),
    "response_format": ResponsesField(("text",), _read_format, lambda r: r.response_format, _write_format),
}


def _supported_thinking(thinking: Thinking) -> Thinking:
    """What Responses can express of it: an effort, or none."""
    return Thinking(enabled=False) if thinking.enabled is False else Thinking(effort=thinking.effort)


_NO_WORD: Final[dict[str, Callable[[Sampling], bool]]] = {
    "top_k": lambda s: s.top_k is not None,
    "seed": lambda s: s.seed is not None,
    "n": lambda s: s.n not in (None, 1),
    "stop": lambda s: bool(s.stop),
}


def unsupported_fields(request: Request) -> list[str]:
    """Fields that are set in a request but that Responses cannot express.

    >>> unsupported_fields(Request(model="m", sampling=Sampling(stop=("END",), n=1)))
    ['stop']
    """
    out = [name for name, is_said in _NO_WORD.items() if is_said(request.sampling)]
    thinking = request.thinking
    out += ["thinking.budget"] if thinking.budget is not None else []
    return out + (["thinking.keep"] if thinking.keep is not None else [])
