"""Request fields other than messages, system and tools: each parsed into its canonical value, and rendered from it.

A field that is unchanged since parsing is written as received. A changed one is written from scratch; an object keeps
its other keys.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from msgspec import Struct

from moonshim.engine.dialects.anthropic.parts import Json
from moonshim.engine.values.conversation import Request, ResponseFormat, Thinking, ToolChoice
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
    object_with,
    read_field,
    read_integer,
    read_required,
    wrong_type,
)
from moonshim.errors import InvalidInput

__all__ = ["DEFAULT_MAX_TOKENS", "FIELDS", "OTHER_TYPES", "MessagesField", "read_fields", "write_fields"]

DEFAULT_MAX_TOKENS: Final = 32_000
"""Messages requires a limit, other dialects do not. This is what Claude Code sends."""

ReportUnsupported: TypeAlias = Callable[[str, str], None]
"""Called with what cannot be expressed and its field."""


class MessagesField(Struct, frozen=True):
    """One canonical value: the body fields that set it, and its place in a request."""

    keys: tuple[str, ...]
    read: Callable[[Json], Any]
    current: Callable[[Request], Any]
    write: Callable[[Any, Json, ReportUnsupported], Json]
    """Called with the value and the received fields."""


def read_fields(body: Json) -> dict[str, Any]:
    """The canonical values of a body, by the names of `FIELDS`. Raises `InvalidInput` with the field."""
    return {name: field.read(body) for name, field in FIELDS.items()}


def write_fields(request: Request, received: Json, note: ReportUnsupported) -> Json:
    """The fields of the body, given the received ones."""
    out: Json = {}
    for field in FIELDS.values():
        current = {key: received[key] for key in field.keys if key in received}
        value = field.current(request)
        out |= current if current and field.read(received) == value else field.write(value, current, note)
    return out


# --- plain values -----------------------------------------------------------------------------------------------


def _inner(body: Json, key: str) -> Json:
    value: Json | None = read_field(body, key, OBJECT)
    return {} if value is None else value


def _plain(key: str, type: JsonType, current: Callable[[Request], Any]) -> MessagesField:
    return MessagesField(
        (key,),
        lambda body: read_field(body, key, type),
        current,
        lambda value, received, note: {} if value is None else {key: value},
    )


def _read_stop(body: Json) -> tuple[str, ...]:
    return tuple(read_field(body, "stop_sequences", STRINGS) or ())


def _write_stop(stop: tuple[str, ...], received: Json, note: ReportUnsupported) -> Json:
    return {"stop_sequences": list(stop)} if stop else {}


# --- objects ----------------------------------------------------------------------------------------------------

_MODES: Final[dict[str, Any]] = {"auto": "auto", "any": "required", "none": "none", "tool": "tool"}
_CHOICES: Final = {mode: word for word, mode in _MODES.items()}


def _read_choice(body: Json) -> tuple[ToolChoice | None, bool | None]:
    choice = _inner(body, "tool_choice")
    if not choice:
        return None, None
    where = "tool_choice."
    word, alone = choice.get("type"), read_field(choice, "disable_parallel_tool_use", BOOLEAN, where)
    if not isinstance(word, str) or word not in _MODES:
        raise InvalidInput("tool_choice.type must be auto, any, tool or none", field="tool_choice.type")
    name = read_required(choice, "name", STRING, where) if word == "tool" else None
    return ToolChoice(_MODES[word], name), None if alone is None else not alone


def _write_choice(value: tuple[ToolChoice | None, bool | None], received: Json, note: ReportUnsupported) -> Json:
    choice, parallel = value
    if choice is None and parallel is not False:
        return {}
    choice = choice or ToolChoice("auto")
    if choice.allowed is not None:
        note("allowed_tools dropped: Messages cannot restrict which tools may be called", "tool_choice")
    out: Json = {"type": _CHOICES[choice.mode]}
    if choice.mode == "tool":
        out["name"] = choice.name or ""
    if parallel is not None and choice.mode != "none":
        out["disable_parallel_tool_use"] = not parallel
    return {"tool_choice": _other_keys(received.get("tool_choice"), "type", "name", "disable_parallel_tool_use") | out}


def _read_thinking(body: Json) -> Thinking:
    """The effort is set in another field."""
    thinking = _inner(body, "thinking")
    where = "thinking."
    kind = read_required(thinking, "type", STRING, where) if thinking else None
    budget, keep = read_integer(thinking, "budget_tokens", where), thinking.get("keep")
    enabled = None if kind is None else kind != "disabled"
    return Thinking(enabled, None, budget, keep if isinstance(keep, str) else None)


def _current_thinking(request: Request) -> Thinking:
    thinking = request.thinking
    return Thinking(thinking.enabled, None, thinking.budget, thinking.keep)


def _write_thinking(value: Thinking, received: Json, note: ReportUnsupported) -> Json:
    if value.keep is not None:
        note("thinking.keep dropped: Messages does not support it", "thinking")
    if value.enabled is None:
        return {}
    rest = _other_keys(received.get("thinking"), "type", "budget_tokens", "keep", "display")
    if not value.enabled:
        return {"thinking": {"type": "disabled"} | rest}
    budget = {} if value.budget is None else {"budget_tokens": value.budget}
    return {"thinking": {"type": "enabled"} | budget | rest}


def _read_output(body: Json) -> tuple[str | None, ResponseFormat | None]:
    config = _inner(body, "output_config")
    effort = read_field(config, "effort", STRING, "output_config.")
    where, form = "output_config.format", config.get("format")
    if form is None:
        form, where = body.get("output_format"), "output_format"
    return effort, _read_format(form, where)


def _read_format(form: Any, where: str) -> ResponseFormat | None:
    if form is None:
        return None
    if not isinstance(form, dict):
        raise wrong_type(where, "an object", form)
    if read_required(form, "type", STRING, f"{where}.") != "json_schema":
        return None  # Only this dialect knows it: it stays as received.
    return ResponseFormat("json_schema", schema=read_required(form, "schema", OBJECT, f"{where}."))


_EFFORTS: Final = {"minimal": "low"}


def _write_output(value: tuple[str | None, ResponseFormat | None], received: Json, note: ReportUnsupported) -> Json:
    effort, form = value
    config, out = _other_keys(received.get("output_config"), "effort", "format"), Json()
    if effort is not None:
        if effort in _EFFORTS:
            note(
                f"effort {effort!r} sent as {_EFFORTS[effort]!r}, the lowest that Messages supports",
                "output_config.effort",
            )
        config["effort"] = _EFFORTS.get(effort, effort)
    written = _write_format(form, note)
    if written and "output_format" in received:
        out["output_format"] = written
    elif written:
        config["format"] = written
    return out | ({"output_config": config} if config else {})


def _write_format(form: ResponseFormat | None, note: ReportUnsupported) -> Json | None:
    match form:
        case None | ResponseFormat(kind="text"):
            return None
        case ResponseFormat(kind="json_schema", schema=dict(schema)):
            return {"type": "json_schema", "schema": schema}
    note("JSON mode dropped: Messages supports JSON output only with a schema", "response_format")
    return None


def _current_output(request: Request) -> tuple[str | None, ResponseFormat | None]:
    form = request.response_format
    if form is not None and form.kind == "json_schema":
        # Messages has no name, description or strictness for a schema.
        form = ResponseFormat("json_schema", schema=form.schema)
    return request.thinking.effort, form


def _read_metadata(body: Json) -> tuple[str | None, Json]:
    metadata = _inner(body, "metadata")
    return read_field(metadata, "user_id", STRING, "metadata."), _other_keys(metadata, "user_id")


def _write_metadata(value: tuple[str | None, Json], received: Json, note: ReportUnsupported) -> Json:
    user, others = value
    received_keys = _other_keys(received.get("metadata"), "user_id")
    if unsupported := sorted(key for key in others if key not in received_keys):
        note(f"metadata dropped, since Messages supports only user_id: {', '.join(unsupported)}", "metadata")
    known = {key: value for key, value in others.items() if key in received_keys}
    metadata = known if user is None else {"user_id": user} | known
    return {"metadata": metadata} if metadata else {}


def _other_keys(fields: Any, *excluded: str) -> Json:
    return {key: value for key, value in fields.items() if key not in excluded} if isinstance(fields, dict) else {}


FIELDS: Final[dict[str, MessagesField]] = {
    "max_tokens": MessagesField(
        ("max_tokens",),
        lambda body: read_integer(body, "max_tokens"),
        lambda request: request.sampling.max_tokens,
        lambda value, received, note: {"max_tokens": DEFAULT_MAX_TOKENS if value is None else value},
    ),
    "stop": MessagesField(("stop_sequences",), _read_stop, lambda request: request.sampling.stop, _write_stop),
    "temperature": _plain("temperature", NUMBER, lambda request: request.sampling.temperature),
    "top_p": _plain("top_p", NUMBER, lambda request: request.sampling.top_p),
    "top_k": _plain("top_k", INTEGER, lambda request: request.sampling.top_k),
    "stream": _plain("stream", BOOLEAN, lambda request: request.stream),
    "choice": MessagesField(
        ("tool_choice",), _read_choice, lambda request: (request.tool_choice, request.parallel_calls), _write_choice
    ),
    "thinking": MessagesField(("thinking",), _read_thinking, _current_thinking, _write_thinking),
    "output": MessagesField(("output_config", "output_format"), _read_output, _current_output, _write_output),
    "metadata": MessagesField(
        ("metadata",), _read_metadata, lambda request: (request.user, request.metadata), _write_metadata
    ),
}

OTHER_TYPES: Final[dict[str, JsonType]] = {
    "cache_control": OBJECT,
    "container": STRING_OR_OBJECT,
    "context_management": object_with(edits=OBJECTS),
    "inference_geo": STRING,
    "mcp_servers": JsonType((list,), OBJECTS.name, object_with(type=STRING, name=STRING, url=STRING)),
    "service_tier": STRING,
    "speed": STRING,
}
"""Fields without a canonical value: they are checked and passed on."""
