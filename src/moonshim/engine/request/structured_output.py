"""What the client demands of the answer -> fields that the host obeys; words for the model, where it has none.

A demand is a JSON schema, any JSON object, or a call of a tool. A call that the host does not guarantee is returned as
an `ExpectedAnswer`, so that it is asked for again if it is missing; whether JSON matches its schema, the client checks.
The words stand after the conversation, where K3's own template puts them: the prompt before them stays a prefix of the
next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from moonshim.engine.dialects.openai_responses.extras import asks_for_compaction
from moonshim.engine.dialects.registry import CLIENT_DIALECTS, dialect_named
from moonshim.engine.hosts.profile import HostProfile
from moonshim.engine.request.located import LocatedMessage
from moonshim.engine.request.schema.flavour import moonshot_schema
from moonshim.engine.request.thinking import will_think
from moonshim.engine.request.tools.declared import ToolAdapter
from moonshim.engine.request.tools.tool_choice import is_obeyed
from moonshim.engine.values.conversation import Change, Message, Request, ResponseFormat, Text
from moonshim.engine.values.expected import ExpectedAnswer
from moonshim.engine.wire.json_codec import encode
from moonshim.errors import CannotExpress

__all__ = ["AnswerDemand", "add_instructions", "demand_answer", "describe_mistake", "wants_raw_json"]

_OBJECT: Final[dict[str, Any]] = {"type": "object"}
# The words of K3's own template, which it was trained on.
_RAW: Final = "Your response must be raw JSON data without markdown code blocks (```json) or any additional formatting."
_ONE_OBJECT: Final = "\nThe JSON data must be one object."
_SCHEMA: Final = "\nThe JSON data must match the following schema:\n```json\n{}\n```"
_AFTER_CALLS: Final = "You may call tools first. When you give your final response, this applies:\n"
_ANY_TOOL: Final = "The system is invoked with `tool_choice=required`.\nYou MUST call tools in the next message."
_SOME_TOOLS: Final = "In the next message, call no tool but these: {}."
_NO_TOOL: Final = "In the next message, call no tool."
_ONE_TOOL: Final = "The system is invoked with `tool_choice={0}`.\nYou MUST call the tool `{0}` in the next message."


class AnswerDemand(Struct, frozen=True):
    """What the client demands of the answer, in the form in which this host gets it."""

    request: Request
    instructions: tuple[str, ...] = ()
    """The instruction for the model, after the conversation."""
    expected: ExpectedAnswer | None = None
    """The call that the response has to have; None: it is not checked."""
    changes: tuple[Change, ...] = ()


def demand_answer(request: Request, profile: HostProfile, adapter: ToolAdapter) -> AnswerDemand:
    """Find out how this host gets the demand; `adapter` knows the tools."""
    if asks_for_compaction(request):
        return AnswerDemand(request, expected=ExpectedAnswer(is_summary=True))
    if profile.generation == "other":
        return AnswerDemand(request)
    demand = _demand_format(request, profile)
    tool = _demand_call(request, profile, adapter)
    if tool is None:
        return demand
    # Several choices are not checked, nor an answer that continues the client's own words: its start is not in it.
    is_checked = (request.sampling.n or 1) == 1 and not _continues_answer(request)
    return replace(
        demand,
        instructions=(*tool.instructions, *demand.instructions),
        expected=tool.expected if is_checked else None,
    )


def _continues_answer(request: Request) -> bool:
    """Whether the client began the answer itself (a partial assistant message)."""
    return bool(request.messages) and request.messages[-1].role == "assistant"


def wants_raw_json(request: Request, profile: HostProfile) -> bool:
    """Whether the response is JSON that the client parses as it is: then a code fence around it is removed."""
    wanted = request.response_format
    is_json = wanted is not None and wanted.kind != "text"
    return is_json and profile.generation != "other" and not _continues_answer(request)


def add_instructions(
    messages: list[LocatedMessage], instructions: Sequence[str], profile: HostProfile
) -> list[LocatedMessage]:
    """The conversation with these words at its end, before a partial answer of the client."""
    if not instructions or not messages:
        return messages
    text, last = "\n\n".join(instructions), messages[-1]
    message = Message("system", (Text(text),))
    if not profile.system_anywhere:
        message = Message("user", (Text(f"<system>\n{text}\n</system>"),))
    place = len(messages) - (last.message.role == "assistant")
    return [*messages[:place], LocatedMessage(message, last.turn), *messages[place:]]


def describe_mistake(expected: ExpectedAnswer, wrong: Sequence[str]) -> str:
    """What is wrong with a response, for the model that wrote it.

    >>> print(describe_mistake(ExpectedAnswer(tool="get_weather"), ["the tool get_weather was not called"]))
    Your last message cannot be used:
    - the tool get_weather was not called
    Call the tool `get_weather` now, with arguments that match its schema. Write nothing else.
    """
    lines = ["Your last message cannot be used:", *(f"- {one}" for one in wrong)]
    if expected.is_summary:
        lines.append("Write the summary that you were asked for, as text. Call no tool.")
    elif expected.tool is not None:
        which = f"the tool `{expected.tool}`" if expected.tool else "one of the tools"
        lines.append(f"Call {which} now, with arguments that match its schema. Write nothing else.")
    else:
        lines.append("Go on without that call.")
    if expected.allowed is not None:
        lines.append(_describe_allowed(expected.allowed))
    return "\n".join(lines)


# --- a format -----------------------------------------------------------------------------------------------------


def _demand_format(request: Request, profile: HostProfile) -> AnswerDemand:
    wanted, support = request.response_format, profile.structured_output
    if wanted is None or wanted.kind == "text":
        return AnswerDemand(request)
    schema = wanted.schema if wanted.kind == "json_schema" else None
    if schema is None:
        if support is not None:
            return AnswerDemand(request)
        return _describe(request, profile, _OBJECT, "the host has no JSON mode")
    match support:
        case "enforced" | "json_schema":
            return AnswerDemand(request)
        case "json_object" | None:
            return _describe(request, profile, schema, "the host has no structured output")


def _describe(request: Request, profile: HostProfile, schema: dict[str, Any], why: str) -> AnswerDemand:
    """The schema in words; and in JSON mode, where the host has one and the answer is an object."""
    wanted = request.response_format
    assert wanted is not None
    place = _place(request)
    _check_flavour(schema, profile, place)
    if schema is _OBJECT:
        place = place.removesuffix(".schema").removesuffix(".json_schema")
    words = _RAW + _ONE_OBJECT if schema is _OBJECT else _describe_schema(schema)
    if wanted.description:
        words += f"\nThe JSON data is: {wanted.description}"
    may_call = bool(request.tools) and (request.tool_choice is None or request.tool_choice.mode != "none")
    # Moonshot's documentation: JSON mode gives objects only.
    has_mode = profile.structured_output is not None and schema.get("type") == "object"
    left = ResponseFormat("json_object") if has_mode else None
    return AnswerDemand(
        replace(request, response_format=left),
        (_AFTER_CALLS + words if may_call else words,),
        changes=(Change("response_format", f"described to the model after the conversation: {why}", place),),
    )


def _check_flavour(schema: dict[str, Any], profile: HostProfile, place: str) -> None:
    """Refuse what the host's own field would not take either, such as a reference to another document."""
    if profile.schema_flavour is not None:
        try:
            moonshot_schema(schema, tool=None)
        except CannotExpress as error:
            raise CannotExpress(str(error), field=place) from None


def _describe_schema(schema: dict[str, Any]) -> str:
    return _RAW + _SCHEMA.format(encode(schema).decode())


def _place(request: Request) -> str:
    dialect = next((name for name in CLIENT_DIALECTS if name in request.extras), None)
    return "response_format" if dialect is None else dialect_named(dialect).response_schema_field


# --- a call -------------------------------------------------------------------------------------------------------


class _CallDemand(Struct, frozen=True):
    expected: ExpectedAnswer
    instructions: tuple[str, ...] = ()


def _demand_call(request: Request, profile: HostProfile, adapter: ToolAdapter) -> _CallDemand | None:
    forced = _demand_forced_call(request, profile, adapter)
    allowed = _restriction(request, profile, adapter)
    if allowed is None:
        return forced
    words = (_describe_allowed(allowed),)
    if forced is None:
        return _CallDemand(ExpectedAnswer(allowed=allowed), words)
    return _CallDemand(replace(forced.expected, allowed=allowed), (*forced.instructions, *words))


def _restriction(request: Request, profile: HostProfile, adapter: ToolAdapter) -> tuple[str, ...] | None:
    """The tools that may be called, under the host's names, if they are not all and the host does not care."""
    choice = request.tool_choice
    if choice is None or choice.allowed is None or choice.mode == "none" or profile.allowed_tools:
        return None
    named = {adapter.name_of(name) for name in choice.allowed}
    allowed = tuple(name for name in adapter.by_name if name in named)
    return None if len(allowed) == len(adapter.by_name) else allowed


def _describe_allowed(allowed: Sequence[str]) -> str:
    return _SOME_TOOLS.format(", ".join(f"`{name}`" for name in allowed)) if allowed else _NO_TOOL


def _demand_forced_call(request: Request, profile: HostProfile, adapter: ToolAdapter) -> _CallDemand | None:
    choice = request.tool_choice
    if choice is None or choice.mode not in ("required", "tool") or not adapter.by_name:
        return None
    name = adapter.name_of(choice.name) if choice.mode == "tool" and choice.name else ""
    if name and name not in adapter.by_name:
        return None  # Nothing that the model writes could be this call.
    if is_obeyed(choice, profile, thinking=will_think(request, profile)):
        return None if profile.enforces_choice else _CallDemand(ExpectedAnswer(tool=name))
    instruction = _ONE_TOOL.format(name) if name else _ANY_TOOL
    return _CallDemand(ExpectedAnswer(tool=name), (instruction,))
