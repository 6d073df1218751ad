"""A tool call -> the markers that a Kimi model writes for it, in the spellings that documents and models use."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

Json: TypeAlias = dict[str, Any]
Markers: TypeAlias = Literal["k2", "k3"]

_K3_TYPES: Final = {str: "string", bool: "boolean", int: "number", float: "number", dict: "object", list: "array"}


@dataclass(frozen=True)
class Spelling:
    """How a call is written: what may differ without a difference in what it means."""

    section: bool = True
    gap: str = ""
    """White space between markers."""
    indent: int | None = None
    """Indentation of JSON; None: one line."""
    spaces: bool = True
    """A space after `:` and `,` in JSON."""
    prefix: str = "functions."
    """K2: what is in front of the name."""
    part: Literal["whole", "open", "arguments"] = "whole"
    """`open`: without the markers at its end. `arguments`: only the marker of the arguments, they, and the end."""


PLAIN: Final = Spelling()


@dataclass(frozen=True)
class MarkedCall:
    """A call, and the number that its header has."""

    name: str
    arguments: Json = field(default_factory=dict)
    number: int = 0


def dump(value: Any, spelling: Spelling = PLAIN) -> str:
    separators = (", ", ": ") if spelling.spaces else (",", ":")
    if spelling.indent is not None:
        separators = (",", ": ")
    return json.dumps(value, ensure_ascii=False, indent=spelling.indent, separators=separators)


def write(markers: Markers, *calls: MarkedCall, spelling: Spelling = PLAIN) -> str:
    return (_write_k2 if markers == "k2" else _write_k3)(calls, spelling)


def _write_k2(calls: tuple[MarkedCall, ...], spelling: Spelling) -> str:
    gap = spelling.gap
    pieces: list[str] = []
    for call in calls:
        arguments = f"<|tool_call_argument_begin|>{gap}{dump(call.arguments, spelling)}"
        header = f"<|tool_call_begin|>{gap}{spelling.prefix}{call.name}:{call.number}"
        match spelling.part:
            case "whole":
                pieces += [header, arguments, "<|tool_call_end|>"]
            case "open":
                pieces += [header, arguments]
            case "arguments":
                pieces += [arguments, "<|tool_call_end|>"]
    if spelling.section and spelling.part != "arguments":
        pieces.insert(0, "<|tool_calls_section_begin|>")
        if spelling.part == "whole":
            pieces.append("<|tool_calls_section_end|>")
    return gap.join(pieces)


def _write_k3(calls: tuple[MarkedCall, ...], spelling: Spelling) -> str:
    pieces: list[str] = []
    for call in calls:
        if spelling.part != "arguments":
            pieces.append(f'<|open|>call tool="{_escape(call.name)}" index="{call.number + 1}"<|sep|>')
        for key, value in call.arguments.items():
            text = value if isinstance(value, str) else dump(value, replace(spelling, spaces=False, indent=None))
            kind = _K3_TYPES.get(type(value), "null")
            pieces.append(f'<|open|>argument key="{_escape(key)}" type="{kind}"<|sep|>{text}<|close|>argument<|sep|>')
        if spelling.part != "open":
            pieces.append("<|close|>call<|sep|>")
    if spelling.section and spelling.part != "arguments":
        pieces.insert(0, "<|open|>tools<|sep|>")
        if spelling.part == "whole":
            pieces.append("<|close|>tools<|sep|>")
    return spelling.gap.join(pieces)


def _escape(value: str) -> str:
    return value.replace("&", "&amp;").replace('"', "&quot;")


def object_schema(*required: str, **types: str) -> Json:
    properties = {name: {"type": kind} if kind else {} for name, kind in types.items()}
    return {"type": "object", "properties": properties, "required": list(required)}


TOOLS: Final[dict[str, Json]] = {
    "Bash": object_schema("command", command="string", description="string", timeout="number"),
    "Read": object_schema("path", path="string", offset="integer", limit="integer"),
    "write_file": object_schema("path", "content", path="string", content="string"),
    "edit_file": object_schema("path", "old", "new", path="string", old="string", new="string"),
    "delete_file": object_schema("path", path="string", force="boolean"),
    "web_search": object_schema("query", query="string", count="integer"),
    "send_mail": object_schema("to", "subject", "body", to="array", subject="string", body="string"),
    "list_files": object_schema(path="string"),
    "get_weather": object_schema("city", city="string", unit="string"),
    "mcp__github__create_issue": object_schema("title", title="string", labels="array", options="object"),
    "todo.write": object_schema("items", items="array"),
}
"""The tools that the requests of these tests declare."""
