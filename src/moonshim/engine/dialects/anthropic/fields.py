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
from moonshim.engine.wire.json_fields import read_field
from moonshim.errors import InvalidInput

__all__ = ["DEFAULT_MAX_TOKENS", "FIELDS", "MessagesField", "read_fields", "write_fields"]

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


def _integer(body: Json, key: str) -> int | None:
    value: int | None = read_field(body, key, (int,), "a whole number")
    return value


def _inner(body: Json, key: str) -> Json:
    value: Json | None = read_field(body, key, (dict,), "an object")
    return {} if value is None else value


def _plain(key: str, kinds: tuple[type, ...], what: str, current: Callable[[Request], Any]) -> MessagesField:
    return MessagesField(
        (key,),
        lambda body: read_field(body, key, kinds, what),
        current,
        lambda value, received, note: {} if value is None else {key: value},
    )


def _read_stop(body: Json) -> tuple[str, ...]:
    listed = body.get("stop_sequences")
    if listed is None:
        return ()
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        raise InvalidInput("stop_sequences must be a list of strings", field="stop_sequences")
    return tuple(listed)


def _write_stop(stop: tuple[str, ...], received: Json, note: ReportUnsupported) -> Json:
    return {"stop_sequences": list(stop)} if stop else {}


# --- objects ----------------------------------------------------------------------------------------------------

_MODES: Final[dict[str, Any]] = {"auto": "auto", "any": "required", "none": "none", "tool": "tool"}
_CHOICES: Final = {mode: word for word, mode in _MODES.items()}


def _read_choice(body: Json) -> tuple[ToolChoice | None, bool | None]:
    choice = _inner(body, "tool_choice")
    if not choice:
        return None, None
    word, name, alone = choice.get("type"), choice.get("name"), choice.get("disable_parallel_tool_use")
    if not isinstance(word, str) or word not in _MODES:
        raise InvalidInput("the type of tool_choice must be auto, any, tool or none", field="tool_choice.type")
    if word == "tool" and not isinstance(name, str):
        raise InvalidInput("a tool_choice of type tool needs a name", field="tool_choice.name")
    parallel = None if not isinstance(alone, bool) else not alone
    return ToolChoice(_MODES[word], name if word == "tool" else None), parallel


def _write_choice(value: tuple[ToolChoice | None, bool | None], received: Json, note: ReportUnsupported) -> Json:
    choice, parallel = value
    if choice is None and parallel is not False:
        return {}
    choice = choice or ToolChoice("auto")
    if choice.allowed is not None:
        note("that only some of the tools may be called: Messages has no word for it", "tool_choice")
    out: Json = {"type": _CHOICES[choice.mode]}
    if choice.mode == "tool":
        out["name"] = choice.name or ""
    if parallel is not None and choice.mode != "none":
        out["disable_parallel_tool_use"] = not parallel
    return {"tool_choice": _other_keys(received.get("tool_choice"), "type", "name", "disable_parallel_tool_use") | out}


def _read_thinking(body: Json) -> Thinking:
    """The effort is set in another field."""
    thinking = _inner(body, "thinking")
    kind, budget, keep = thinking.get("type"), thinking.get("budget_tokens"), thinking.get("keep")
    if thinking and not isinstance(kind, str):
        raise InvalidInput("thinking needs a type", field="thinking.type")
    if budget is not None and (not isinstance(budget, int) or isinstance(budget, bool)):
        raise InvalidInput("budget_tokens must be a whole number", field="thinking.budget_tokens")
    enabled = None if kind is None else kind != "disabled"
    return Thinking(enabled, None, budget, keep if isinstance(keep, str) else None)


def _current_thinking(request: Request) -> Thinking:
    thinking = request.thinking
    return Thinking(thinking.enabled, None, thinking.budget, thinking.keep)


def _write_thinking(value: Thinking, received: Json, note: ReportUnsupported) -> Json:
    if value.keep is not None:
        note("that the reasoning of former turns is to be kept", "thinking")
    if value.enabled is None:
        return {}
    rest = _other_keys(received.get("thinking"), "type", "budget_tokens", "keep", "display")
    if not value.enabled:
        return {"thinking": {"type": "disabled"} | rest}
    budget = {} if value.budget is None else {"budget_tokens": value.budget}
    return {"thinking": {"type": "enabled"} | budget | rest}


def _read_output(body: Json) -> tuple[str | None, ResponseFormat | None]:
    config = _inner(body, "output_config")
    effort, where, form = config.get("effort"), "output_config.format", config.get("format")
    if effort is not None and not isinstance(effort, str):
        raise InvalidInput("effort must be a string", field="output_config.effort")
    if form is None:
        form, where = body.get("output_format"), "output_format"
    return effort, _read_format(form, where)


def _read_format(form: Any, where: str) -> ResponseFormat | None:
    match form:
        case None:
            return None
        case {"type": "json_schema", "schema": dict(schema)}:
            return ResponseFormat("json_schema", schema=schema)
        case {"type": "json_schema"}:
            raise InvalidInput("a json_schema needs a schema", field=f"{where}.schema")
        case {"type": str()}:
            return None  # Only this dialect knows it: it stays as received.
    raise InvalidInput("a format must be an object with a type", field=where)


_EFFORTS: Final = {"minimal": "low"}


def _write_output(value: tuple[str | None, ResponseFormat | None], received: Json, note: ReportUnsupported) -> Json:
    effort, form = value
    config, out = _other_keys(received.get("output_config"), "effort", "format"), Json()
    if effort is not None:
        if effort in _EFFORTS:
            note(f"effort {effort}: the least that Messages knows is {_EFFORTS[effort]}", "output_config.effort")
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
    note("that the answer must be JSON: Messages only knows that together with a schema", "response_format")
    return None


def _current_output(request: Request) -> tuple[str | None, ResponseFormat | None]:
    form = request.response_format
    if form is not None and form.kind == "json_schema":
        # Messages has no name, description or strictness for a schema.
        form = ResponseFormat("json_schema", schema=form.schema)
    return request.thinking.effort, form


def _read_metadata(body: Json) -> tuple[str | None, Json]:
    metadata = _inner(body, "metadata")
    user = metadata.get("user_id")
    if user is not None and not isinstance(user, str):
        raise InvalidInput("user_id must be a string", field="metadata.user_id")
    return user, _other_keys(metadata, "user_id")


def _write_metadata(value: tuple[str | None, Json], received: Json, note: ReportUnsupported) -> Json:
    user, others = value
    received_keys = _other_keys(received.get("metadata"), "user_id")
    if unsupported := sorted(key for key in others if key not in received_keys):
        note(f"metadata besides the user's id: {', '.join(unsupported)}", "metadata")
    known = {key: value for key, value in others.items() if key in received_keys}
    metadata = known if user is None else {"user_id": user} | known
    return {"metadata": metadata} if metadata else {}


def _other_keys(fields: Any, *excluded: str) -> Json:
    return {key: value for key, value in fields.items() if key not in excluded} if isinstance(fields, dict) else {}


FIELDS: Final[dict[str, MessagesField]] = {
    "max_tokens": MessagesField(
        ("max_tokens",),
        lambda body: _integer(body, "max_tokens"),
        lambda request: request.sampling.max_tokens,
        lambda value, received, note: {"max_tokens": DEFAULT_MAX_TOKENS if value is None else value},
    ),
    "stop": MessagesField(("stop_sequences",), _read_stop, lambda request: request.sampling.stop, _write_stop),
    "temperature": _plain("temperature", (int, float), "a number", lambda request: request.sampling.temperature),
    "top_p": _plain("top_p", (int, float), "a number", lambda request: request.sampling.top_p),
    "top_k": _plain("top_k", (int,), "a whole number", lambda request: request.sampling.top_k),
    "stream": _plain("stream", (bool,), "true or false", lambda request: request.stream),
    "choice": MessagesField(
        ("tool_choice",), _read_choice, lambda request: (request.tool_choice, request.parallel_calls), _write_choice
    ),
    "thinking": MessagesField(("thinking",), _read_thinking, _current_thinking, _write_thinking),
    "output": MessagesField(("output_config", "output_format"), _read_output, _current_output, _write_output),
    "metadata": MessagesField(
        ("metadata",), _read_metadata, lambda request: (request.user, request.metadata), _write_metadata
    ),
}
