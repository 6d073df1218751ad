"""The history of a source document (`contents` of `blocks`) -> canonical messages."""

from __future__ import annotations

import json
from typing import Any, Final

from conformance.replies import Json
from moonshim.engine.values.conversation import Message, Part, Role, Text, ToolCall, ToolResult

__all__ = ["messages_of"]

_SPEAKERS: Final[dict[str, Role]] = {"human": "user", "ai": "assistant", "tool": "tool"}


def messages_of(contents: list[Json]) -> list[Message]:
    """One message for each content; its metadata may say that it is the system that speaks."""
    out = []
    for content in contents:
        given = (content.get("metadata") or {}).get("role")
        role: Role = "system" if given == "system" else _SPEAKERS[content["speaker"]]
        out.append(Message(role, tuple(_part(block) for block in content["blocks"])))
    return out


def _part(block: Json) -> Part:
    match block["type"]:
        case "text":
            return Text(block["text"])
        case "tool_call":
            return ToolCall(block["id"], block["name"], _written(block["parameters"]))
        case _:
            result = block.get("result")
            parts = () if result is None else (Text(result if isinstance(result, str) else _written(result)),)
            return ToolResult(block["callId"], block["toolName"], parts)


def _written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
