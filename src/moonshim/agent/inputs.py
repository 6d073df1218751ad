"""A provider's arguments (messages, tools, choices, in several forms) -> canonical values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol, TypeAlias, get_args, runtime_checkable

from msgspec.structs import replace

from moonshim.engine.dialects.openai_chat.fields import FIELDS
from moonshim.engine.dialects.openai_chat.messages import check_messages, parse_messages
from moonshim.engine.dialects.openai_chat.tools import parse_tool
from moonshim.engine.ids import tool_id_strategy
from moonshim.engine.values.conversation import (
    Message,
    Part,
    ResponseFormat,
    Role,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from moonshim.errors import InvalidInput

__all__ = [
    "EFFORTS",
    "AnyMessage",
    "AnyTool",
    "DeclaresTool",
    "read_choice",
    "read_format",
    "read_messages",
    "read_thinking",
    "read_tools",
    "with_ids",
]


@runtime_checkable
class DeclaresTool(Protocol):
    """Anything with a name, a description and a JSON schema, such as an agent's tools."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str | None: ...

    @property
    def parameters(self) -> dict[str, Any] | None: ...


AnyMessage: TypeAlias = Message | Mapping[str, Any]
AnyTool: TypeAlias = Tool | DeclaresTool | Mapping[str, Any]

_ROLES: Final[tuple[str, ...]] = get_args(Role)
_SWITCHES: Final = {"on": True, "off": False}
EFFORTS: Final = ("minimal", "low", "medium", "high", "xhigh", "max")


def read_messages(given: Iterable[AnyMessage]) -> tuple[Message, ...]:
    """Canonical messages, from canonical ones and dicts of the OpenAI API, also mixed.

    >>> read_messages([{"role": "user", "content": "hi"}])[0].role
    'user'
    """
    listed = _check_list(given, "messages")
    messages: list[Message] = []
    for place, one in enumerate(listed):
        if not isinstance(one, (Message, Mapping)):
            raise InvalidInput(
                f"a message must be a Message or a dict, not {type(one).__name__}", field=_location(place)
            )
        if isinstance(one, Message) and one.role not in _ROLES:
            raise InvalidInput(
                f"unknown role {one.role!r}; use one of {', '.join(_ROLES)}", field=f"{_location(place)}.role"
            )
    if all(isinstance(one, Message) for one in listed):
        return tuple(listed)
    if not any(isinstance(one, Message) for one in listed):
        dicts = [dict(one) for one in listed]
        check_messages(dicts)
        return tuple(parse_messages(dicts))
    for place, one in enumerate(listed):
        if isinstance(one, Message):
            messages.append(one)
            continue
        try:
            check_messages([dict(one)])
        except InvalidInput as error:
            field = (error.field or "").removeprefix("messages[0]")
            raise error.relocated(_location(place) + field) from None
        messages += parse_messages([dict(one)], after=messages)
    return tuple(messages)


def read_tools(given: Iterable[AnyTool]) -> tuple[Tool, ...]:
    """Canonical tools. Two of the same name would be indistinguishable, and are refused."""
    tools: list[Tool] = []
    for place, one in enumerate(_check_list(given, "tools")):
        where = f"tools[{place}]"
        if isinstance(one, Tool):
            tool = one
        elif isinstance(one, Mapping):
            tool = parse_tool(dict(one), where)
        elif isinstance(one, DeclaresTool):
            tool = Tool(one.name, one.description, one.parameters)
        else:
            raise InvalidInput(
                f"a tool must be a Tool, a function with @tool, or a dict, not {type(one).__name__}", field=where
            )
        if any(tool.name == other.name for other in tools):
            raise InvalidInput(f"duplicate tool name {tool.name!r}", field=where)
        tools.append(tool)
    return tuple(tools)


def read_choice(given: ToolChoice | str | Mapping[str, Any] | None, tools: tuple[Tool, ...]) -> ToolChoice | None:
    """The tool choice: `auto`, `none`, `required`, the name of a tool, or a value of the OpenAI API.

    >>> read_choice("required", ()), read_choice("ls", (Tool("ls"),)).name
    (ToolChoice(mode='required', name=None, allowed=None), 'ls')
    """
    if given is None or isinstance(given, ToolChoice):
        return given
    if isinstance(given, str) and any(tool.name == given for tool in tools):
        return ToolChoice("tool", given)
    value = dict(given) if isinstance(given, Mapping) else given
    choice: ToolChoice | None = FIELDS["tool_choice"].read({"tool_choice": value})
    return choice


def read_format(given: ResponseFormat | Mapping[str, Any] | None) -> ResponseFormat | None:
    """The format that the answer must have.

    >>> read_format({"type": "json_object"}).kind
    'json_object'
    """
    if given is None or isinstance(given, ResponseFormat):
        return given
    value = dict(given) if isinstance(given, Mapping) else given
    wanted: ResponseFormat | None = FIELDS["response_format"].read({"response_format": value})
    return wanted


def read_thinking(given: Thinking | str | bool | None) -> Thinking:
    """How much to think: `on`, `off`, or an effort (`low`, `high`, …); None: the model's default.

    >>> read_thinking("off"), read_thinking("high").effort
    (Thinking(enabled=False, effort=None, budget=None, keep=None), 'high')
    """
    match given:
        case None | "auto":
            return Thinking()
        case Thinking():
            return given
        case bool():
            return Thinking(enabled=given)
        case str() if given in _SWITCHES:
            return Thinking(enabled=_SWITCHES[given])
        case str() if given in (*EFFORTS, "none"):
            return Thinking(enabled=True, effort=given)
    raise InvalidInput(
        f"thinking must be on, off, an effort ({', '.join(EFFORTS)}) or a Thinking object, not {given!r}; "
        "for other efforts, pass Thinking(effort=…)",
        field="thinking",
    )


def with_ids(messages: tuple[Message, ...], format: str) -> tuple[Message, ...]:
    """The history with ids that models of this tool format expect, derived from positions alone.

    The ids of the host that a call came from mean nothing to another host, and its models were trained on these.
    """
    mapper = tool_id_strategy(format).create_mapper(messages)
    out: list[Message] = []
    for position, message in enumerate(messages):
        parts: list[Part] = []
        for place, part in enumerate(message.parts):
            wire_id = mapper.id_at(position, place) if isinstance(part, (ToolCall, ToolResult)) else None
            parts.append(
                replace(part, wire_id=wire_id)
                if wire_id is not None and isinstance(part, (ToolCall, ToolResult))
                else part
            )
        same = all(new is old for new, old in zip(parts, message.parts, strict=True))
        out.append(message if same else replace(message, parts=tuple(parts)))
    return tuple(out)


def _location(place: int) -> str:
    return f"messages[{place}]"


def _check_list(given: Any, field: str) -> list[Any]:
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
        raise InvalidInput(f"{field} must be a list, not {type(given).__name__}", field=field)
    return list(given)
