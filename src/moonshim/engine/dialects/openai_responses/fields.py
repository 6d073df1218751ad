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
from moonshim.engine.wire.json_fields import read_field, read_integer
from moonshim.errors import InvalidInput

__all__ = ["FIELDS", "ResponsesField", "unsupported_fields"]


class ResponsesField(Struct, frozen=True):
    """One canonical value: its place in a request, and how a body sets it."""

    keys: tuple[str, ...]
    read: Callable[[Json], Any]
    current: Callable[[Request], Any]
    write: Callable[[Any, Json], Json]
    """The fields for a value, given the value and the received fields."""


# --- reading ----------------------------------------------------------------------------------------------------


def _number(key: str) -> Callable[[Json], Any]:
    return lambda body: read_field(body, key, (int, float), "a number")


def _boolean(key: str) -> Callable[[Json], Any]:
    return lambda body: read_field(body, key, (bool,), "true or false")


def _string(key: str) -> Callable[[Json], Any]:
    return lambda body: read_field(body, key, (str,), "a string")


def _read_max_tokens(body: Json) -> int | None:
    return read_integer(body, "max_output_tokens")


def _read_user(body: Json) -> str | None:
    preferred: str | None = _string("safety_identifier")(body)
    old: str | None = _string("user")(body)
    return old if preferred is None else preferred


def _read_metadata(body: Json) -> Json:
    return read_field(body, "metadata", (dict,), "an object") or {}


def _read_thinking(body: Json) -> Thinking:
    reasoning: Json = read_field(body, "reasoning", (dict,), "an object") or {}
    effort = read_field(reasoning, "effort", (str,), "a string", "reasoning.")
    return Thinking(enabled=False) if effort == "none" else Thinking(effort=effort)


def _read_format(body: Json) -> ResponseFormat | None:
    text: Json = read_field(body, "text", (dict,), "an object") or {}
    format: Json = read_field(text, "format", (dict,), "an object", "text.") or {}
    match format.get("type"):
        case "text" | "json_object" as kind:
            return ResponseFormat(kind)
        case "json_schema":
            where = "text.format."
            return ResponseFormat(
                "json_schema",
                read_field(format, "name", (str,), "a string", where),
                read_field(format, "schema", (dict,), "an object", where),
                read_field(format, "strict", (bool,), "true or false", where),
                read_field(format, "description", (str,), "a string", where),
            )
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
