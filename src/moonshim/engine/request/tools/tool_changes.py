"""Tools that are added and withdrawn in the middle of a conversation (Messages) -> the list of tools of the request.

No host of a Kimi model knows these blocks. The tools change only with a new block: until then, the start of the prompt,
where they are declared, stays the same.
"""

from __future__ import annotations

from moonshim.engine.dialects.anthropic.tool_changes import read_tool_change
from moonshim.engine.request.located import LocatedMessage
from moonshim.engine.values.conversation import Change, Part, Tool

__all__ = ["apply_tool_changes"]


def apply_tool_changes(
    messages: list[LocatedMessage], tools: tuple[Tool, ...] | None, changes: list[Change]
) -> tuple[list[LocatedMessage], tuple[Tool, ...] | None]:
    """The messages without these blocks, and the tools that the client believes the model has."""
    out = list[LocatedMessage]()
    known = {tool.name: tool for tool in tools or ()}
    offered, reported = dict(known), len(changes)
    for number, located in enumerate(messages):
        if located.message.role != "system":
            out.append(located)
            continue
        kept = list[Part]()
        for index, part in enumerate(located.message.parts):
            place = f"{located.place or f'messages[{number}]'}.content[{index}]"
            change = read_tool_change(part, place)
            if change is None:
                kept.append(part)
                continue
            name, tool = change.name, change.tool
            if tool is not None:
                known[tool.name] = tool
            if name is None or name not in known:
                detail = "dropped: there is no such tool" if name else "dropped: no MCP server is called by the host"
                changes.append(Change("tool_changes", f"{change.kind} tool {detail}", place))
            elif change.kind == "added":
                offered[name] = known[name]
                changes.append(Change("tool_changes", f"tool {name!r} declared from the start", place))
            else:
                offered.pop(name, None)
                changes.append(Change("tool_changes", f"tool {name!r} withdrawn", place))
        if len(kept) == len(located.message.parts):
            out.append(located)
        elif kept:
            out.append(located.with_parts(*kept))
    # Without a block the list stays as it is: two tools of one name are an error, which is found later.
    return out, tools if len(changes) == reported else tuple(offered.values())
