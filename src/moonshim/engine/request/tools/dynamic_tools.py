"""Tools declared in a system message (`messages[].tools`, K3) -> kept there if the host reads them, else moved to
`tools`."""

from __future__ import annotations

from moonshim.engine.dialects.openai_chat.extras import (
    declared_tools,
    with_declared_tools,
    without_content_form,
    without_declared_tools,
)
from moonshim.engine.formats import format_tools, parse_tools
from moonshim.engine.request.located import LocatedMessage
from moonshim.engine.request.tools.declared import ToolAdapter
from moonshim.engine.values.conversation import Change, Message, Text, Tool
from moonshim.errors import InvalidInput

__all__ = ["declare_in_messages"]


def declare_in_messages(
    messages: list[LocatedMessage], adapter: ToolAdapter, changes: list[Change], *, accepted: bool
) -> tuple[list[LocatedMessage], tuple[Tool, ...]]:
    """Return the messages, and the tools to declare in `tools` because the host reads none in messages."""
    out, moved = list[LocatedMessage](), list[Tool]()
    for number, located in enumerate(messages):
        declared = declared_tools(located.message)
        if declared is None:
            out.append(located)
            continue
        where = f"{located.place or f'messages[{number}]'}.tools"
        if located.message.role != "system":
            changes.append(Change("dynamic_tools", "tools dropped: only a system message can declare tools", where))
            out.append(located.with_message(without_declared_tools(located.message)))
            continue
        parsed = _parse(declared, where)
        tools = adapter.declare(parsed, where)
        if accepted:
            out += _split_declaration(located, tools if tools is not parsed else None)
        else:
            changes.append(
                Change(
                    "dynamic_tools",
                    "tools moved to the request's own list: the host does not read tools in messages",
                    where,
                )
            )
            moved += tools
            out.append(located.with_message(without_declared_tools(located.message)))
    return out, tuple(moved)


def _parse(declared: object, where: str) -> tuple[Tool, ...]:
    try:
        return tuple(parse_tools(declared, "openai"))  # type: ignore[arg-type]
    except InvalidInput as error:
        raise error.relocated(where + (error.field or "").removeprefix("tools")) from None


def _split_declaration(located: LocatedMessage, tools: tuple[Tool, ...] | None) -> list[LocatedMessage]:
    """Split off other content of the declaring message into a message before it."""
    message = located.message
    if tools is not None:
        message = with_declared_tools(message, format_tools(tools, "kimi"))
    if not any(isinstance(part, Text) and part.text for part in message.parts):
        return [located.with_message(message)]
    content = without_declared_tools(located.message)
    declaring = Message("system", (Text(""),), without_content_form(message).extras)
    return [located.with_message(content), located.with_message(declaring)]
