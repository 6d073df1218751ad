"""Chat request fields other than messages and tools: each parsed into its canonical value, and rendered from it.

A field that is unchanged since parsing is written as received, under the client's own names. A changed one is written
from scratch.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final, TypeAlias, TypeVar

from msgspec import Struct

from moonshim.engine.values.conversation import (
    MOST_CHOICES,
    Request,
    ResponseFormat,
    Sampling,
    Thinking,
    ToolChoice,
)
from moonshim.engine.wire.json_fields import (
    BOOLEAN,
    INTEGER,
    LIST,
    NUMBER,
    OBJECT,
    STRING,
    STRINGS,
    JsonType,
    check_value,
    object_with,
    read_cache_ttl,
    read_field,
    read_integer,
    wrong_type,
)
from moonshim.errors import InvalidInput

__all__ = ["FIELDS", "OTHER_TYPES", "ChatField", "Json", "field_values", "present_fields"]

Json: TypeAlias = dict[str, Any]
T = TypeVar("T")


class ChatField(Struct, frozen=True):
    """One canonical value: its place in a request, and the body fields that set it."""

    keys: tuple[str, ...]
    read: Callable[[Json], Any]
    write: Callable[[Any], Json]
    empty: Any = None
    """The value if the body sets nothing; `write` writes nothing for it."""


# --- reading --------------------------------------------------------------------------------------------------


def _number(body: Json, key: str) -> float | None:
    value: float | None = read_field(body, key, NUMBER)
    return value


def _boolean(body: Json, key: str) -> bool | None:
    value: bool | None = read_field(body, key, BOOLEAN)
    return value


def _string(body: Json, key: str) -> str | None:
    value: str | None = read_field(body, key, STRING)
    return value


def _object(body: Json, key: str) -> Json:
    value: Json | None = read_field(body, key, OBJECT)
    return value or {}


def _read_stop(body: Json) -> tuple[str, ...]:
    stop = body.get("stop")
    if stop is None:
        return ()
    if isinstance(stop, str):
        return (stop,)
    if not isinstance(stop, list):
        raise wrong_type("stop", "a string or a list of strings", stop)
    check_value(stop, STRINGS, "stop")
    return tuple(stop)


def _read_max_tokens(body: Json) -> int | None:
    preferred, old = read_integer(body, "max_completion_tokens"), read_integer(body, "max_tokens")
    return preferred if preferred is not None else old


def _read_choices(body: Json) -> int | None:
    count = read_integer(body, "n")
    if count is not None and count > MOST_CHOICES:
        raise InvalidInput(f"n must be at most {MOST_CHOICES}", field="n")
    return count


def _read_tool_choice(body: Json) -> ToolChoice | None:
    choice, called = body.get("tool_choice"), body.get("function_call")
    if choice is None and called is not None:
        # The 2023 protocol.
        choice = {"type": "function", "function": called} if isinstance(called, dict) else called
    match choice:
        case None:
            return None
        case "auto" | "none" | "required":
            return ToolChoice(choice)
        case {"type": "function" | "custom"} if name := _name_of(choice):
            return ToolChoice("tool", name)
        case {"type": "allowed_tools", "allowed_tools": {"mode": "auto" | "required" as mode, "tools": list(tools)}}:
            names = [_name_of(one) for one in tools]
            if all(names):
                return ToolChoice(mode, allowed=tuple(names))
    raise InvalidInput(
        "tool_choice must be auto, none, required, or an object that names a function", field="tool_choice"
    )


def _name_of(tool: Any) -> str:
    kind = tool.get("type", "function") if isinstance(tool, dict) else None
    inner = tool.get(kind) if isinstance(kind, str) else None
    name = inner.get("name") if isinstance(inner, dict) else None
    return name if isinstance(name, str) else ""


_OFF: Final = frozenset({"none", "off", "disabled"})
_THINKING: Final = object_with(type=STRING, effort=STRING, budget_tokens=INTEGER)


def _read_thinking(body: Json) -> Thinking:
    """All the fields in which clients set thinking; the first one that is set wins."""
    thinking, template = body.get("thinking"), body.get("chat_template_kwargs")
    enabled: bool | None = None
    effort, keep, budget = _string(body, "reasoning_effort"), None, None
    if isinstance(thinking, bool):
        enabled = thinking
    elif thinking is not None:
        check_value(thinking, _THINKING, "thinking")
        kind = thinking.get("type")
        enabled = None if kind is None else kind != "disabled"
        effort = thinking["effort"] if isinstance(thinking.get("effort"), str) else effort
        keep = thinking["keep"] if isinstance(thinking.get("keep"), str) else None
        budget = read_integer(thinking, "budget_tokens", "thinking.")
    if template is not None:
        check_value(template, OBJECT, "chat_template_kwargs")
        for key in ("thinking", "enable_thinking"):
            if enabled is None and isinstance(template.get(key), bool):
                enabled = template[key]
        if template.get("preserve_thinking") is True:
            keep = keep or "all"
        if effort is None and isinstance(template.get("thinking_effort"), str):
            effort = template["thinking_effort"]
    reasoning = body.get("reasoning")
    if isinstance(reasoning, dict):
        if effort is None and isinstance(reasoning.get("effort"), str):
            effort = reasoning["effort"]
        if enabled is None and isinstance(reasoning.get("enabled"), bool):
            enabled = reasoning["enabled"]
        if budget is None and isinstance(reasoning.get("max_tokens"), int):
            budget = reasoning["max_tokens"]
    switch = _boolean(body, "enable_thinking")
    enabled = switch if enabled is None else enabled
    if effort in _OFF:
        effort, enabled = None, False if enabled is None else enabled
    return Thinking(enabled, effort, budget, keep)


def _read_response_format(body: Json) -> ResponseFormat | None:
    format = _object(body, "response_format")
    if not format:
        return None
    match format.get("type"):
        case "text" | "json_object" as kind:
            return ResponseFormat(kind)
        case "json_schema" if isinstance(inner := format.get("json_schema"), dict):
            where = "response_format.json_schema."
            return ResponseFormat(
                "json_schema",
                read_field(inner, "name", STRING, where),
                read_field(inner, "schema", OBJECT, where),
                read_field(inner, "strict", BOOLEAN, where),
                read_field(inner, "description", STRING, where),
            )
    raise InvalidInput(
        "response_format.type must be text, json_object, or json_schema with a json_schema object",
        field="response_format.type",
    )


def _read_include_usage(body: Json) -> bool | None:
    wanted: bool | None = read_field(_object(body, "stream_options"), "include_usage", BOOLEAN, "stream_options.")
    return wanted


def _read_user(body: Json) -> str | None:
    preferred, old = _string(body, "safety_identifier"), _string(body, "user")
    return preferred if preferred is not None else old


# --- writing --------------------------------------------------------------------------------------------------


def _write_as(key: str) -> Callable[[Any], Json]:
    return lambda value: {} if value is None else {key: value}


def _write_tool_choice(choice: ToolChoice | None) -> Json:
    if choice is None:
        return {}
    if choice.mode == "tool":
        return {"tool_choice": {"type": "function", "function": {"name": choice.name}}}
    if choice.allowed is not None:
        tools = [{"type": "function", "function": {"name": name}} for name in choice.allowed]
        return {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": choice.mode, "tools": tools}}}
    return {"tool_choice": choice.mode}


def _write_thinking(thinking: Thinking) -> Json:
    """In OpenAI's spelling; other spellings come from the host profile."""
    if thinking.enabled is False:
        return {"reasoning_effort": "none"}
    return {} if thinking.effort is None else {"reasoning_effort": thinking.effort}


def _write_response_format(wanted: ResponseFormat | None) -> Json:
    if wanted is None:
        return {}
    if wanted.kind != "json_schema":
        return {"response_format": {"type": wanted.kind}}
    values = {"description": wanted.description, "schema": wanted.schema, "strict": wanted.strict}
    inner = {"name": wanted.name or "answer"} | {key: value for key, value in values.items() if value is not None}
    return {"response_format": {"type": "json_schema", "json_schema": inner}}


def _plain(key: str, read: Callable[[Json, str], Any]) -> ChatField:
    return ChatField((key,), lambda body: read(body, key), _write_as(key))


FIELDS: Final[dict[str, ChatField]] = {
    # Fields of `Sampling` are named by their path.
    "tool_choice": ChatField(("tool_choice", "function_call"), _read_tool_choice, _write_tool_choice),
    "parallel_calls": ChatField(
        ("parallel_tool_calls",), lambda body: _boolean(body, "parallel_tool_calls"), _write_as("parallel_tool_calls")
    ),
    "sampling.temperature": _plain("temperature", _number),
    "sampling.top_p": _plain("top_p", _number),
    "sampling.top_k": _plain("top_k", read_integer),
    "sampling.presence_penalty": _plain("presence_penalty", _number),
    "sampling.frequency_penalty": _plain("frequency_penalty", _number),
    "sampling.seed": _plain("seed", read_integer),
    "sampling.n": ChatField(("n",), _read_choices, _write_as("n")),
    "sampling.max_tokens": ChatField(
        ("max_completion_tokens", "max_tokens"), _read_max_tokens, _write_as("max_tokens")
    ),
    "sampling.stop": ChatField(("stop",), _read_stop, lambda stop: {"stop": list(stop)} if stop else {}, ()),
    "thinking": ChatField(
        ("thinking", "reasoning_effort", "chat_template_kwargs", "reasoning", "enable_thinking"),
        _read_thinking,
        _write_thinking,
        Thinking(),
    ),
    "response_format": ChatField(("response_format",), _read_response_format, _write_response_format),
    "stream": ChatField(("stream",), lambda body: _boolean(body, "stream"), _write_as("stream")),
    "include_usage": ChatField(
        ("stream_options",),
        _read_include_usage,
        lambda wanted: {} if wanted is None else {"stream_options": {"include_usage": wanted}},
    ),
    "user": ChatField(("safety_identifier", "user"), _read_user, _write_as("user")),
    "metadata": ChatField(
        ("metadata",), lambda body: _object(body, "metadata"), lambda m: {"metadata": m} if m else {}, {}
    ),
    "cache_key": ChatField(
        ("prompt_cache_key",), lambda body: _string(body, "prompt_cache_key"), _write_as("prompt_cache_key")
    ),
    "cache_ttl": ChatField(
        ("prompt_cache_options", "prompt_cache_retention"),
        read_cache_ttl,
        lambda ttl: {} if ttl is None else {"prompt_cache_options": {"ttl": ttl}},
    ),
}
assert Sampling.__struct_fields__ == tuple(name[9:] for name in FIELDS if name.startswith("sampling."))

OTHER_TYPES: Final[dict[str, JsonType]] = {
    "audio": OBJECT,
    "functions": LIST,
    "logit_bias": OBJECT,
    "logprobs": BOOLEAN,
    "modalities": STRINGS,
    "prediction": OBJECT,
    "service_tier": STRING,
    "store": BOOLEAN,
    "top_logprobs": INTEGER,
    "verbosity": STRING,
    "web_search_options": OBJECT,
}
"""Fields without a canonical value: they are checked and passed on."""

_FIELD_OF: Final = {key: name for name, field in FIELDS.items() for key in field.keys}
_values: Final = attrgetter(*FIELDS)


def present_fields(body: Json) -> set[str]:
    """The names of the fields that a body sets: few requests set more than three."""
    return {_FIELD_OF[key] for key in body if key in _FIELD_OF}


def field_values(request: Request) -> tuple[Any, ...]:
    """The value of every field, in the order of `FIELDS`."""
    values: tuple[Any, ...] = _values(request)
    return values
