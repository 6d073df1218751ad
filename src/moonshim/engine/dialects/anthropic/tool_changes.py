"""`tool_addition` and `tool_removal` blocks of Messages -> which tools they add and withdraw.

They stand in a message with the role `system`, and apply from there on. `NAME` is that of a tool of the request or
of an earlier block (betas `mid-conversation-tool-changes-2026-07-01` and `inline-tools-2026-09-15`):

    {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "NAME"}}
    {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": {"name": "new", "input_schema": {}}}}
    {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "NAME"}}
"""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

from moonshim.engine.dialects.anthropic.extras import media_extras
from moonshim.engine.dialects.anthropic.tools import parse_tool
from moonshim.engine.values.conversation import Media, Part, Tool
from moonshim.engine.wire.json_fields import OBJECT, STRING, read_not_empty, read_required

__all__ = ["ToolChange", "read_tool_change"]

_KINDS: Final[dict[str, Literal["added", "withdrawn"]]] = {"tool_addition": "added", "tool_removal": "withdrawn"}


class ToolChange(Struct, frozen=True):
    """One block: a tool is added or withdrawn."""

    kind: Literal["added", "withdrawn"]
    name: str | None
    """None: a tool of an MCP server that the host would call."""
    tool: Tool | None = None
    """Its definition, if the block has one."""


def read_tool_change(part: Part, place: str) -> ToolChange | None:
    """What a part of a system message changes; None if it is something else. Raises `InvalidInput` with the field."""
    block = media_extras(part).block if isinstance(part, Media) else None
    kind = None if block is None else _KINDS.get(block["type"])
    if block is None or kind is None:
        return None
    tool = read_required(block, "tool", OBJECT, f"{place}.")
    where = f"{place}.tool."
    match read_required(tool, "type", STRING, where):
        case "tool_reference":
            return ToolChange(kind, read_not_empty(tool, "name", STRING, where))
        case "tool_definition":
            defined = parse_tool(read_required(tool, "definition", OBJECT, where), f"{where}definition")
            return ToolChange(kind, defined.name, defined)
    return ToolChange(kind, None)
