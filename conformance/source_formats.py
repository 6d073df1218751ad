"""Rows about tool formats, definitions and the AI SDK's messages -> what ours are."""

from __future__ import annotations

from typing import Any

import moonshim
from conformance.checked import Checked, plain_arguments
from conformance.replies import Json
from conformance.source_contents import messages_of
from moonshim.engine.dialects import vercel_ai
from moonshim.engine.dialects.openai_chat.messages import parse_messages
from moonshim.engine.dialects.registry import dialect_named
from moonshim.engine.values.conversation import ToolCall

__all__ = ["check"]


def check(row: Json) -> Checked:
    given: Json = row["input"]
    kind = row["name"].partition(" ")[0]
    got: Any
    match kind:
        case "detect":
            got = moonshim.detect_tool_format(given["model"])
        case "resolve":
            got = _or_error(lambda: moonshim.detect_tool_format(given["model"], override=given["override"]))
        case "to" | "to_provider":
            got = _or_error(lambda: moonshim.format_tools(given["tools"], given["format"]))
        case "schema:":
            tool = {"type": "function", "function": {"name": "t", "parameters": given["schema"]}}
            parameters = moonshim.format_tools([tool], "openai")[0]["function"]["parameters"]
            return Checked({"parameters": parameters}, {"parameters": row["expect"]})
        case "from":
            got = _or_error(lambda: _call(given["raw"], given["format"]))
        case _:
            got = _vercel(given)
    return Checked(got, row["expect"])


def _or_error(work: Any) -> Any:
    try:
        return work()
    except moonshim.MoonshimError as error:
        return {"error": str(error)}


def _call(raw: Json, kind: str) -> list[Json]:
    if kind == "anthropic":
        parts = dialect_named("anthropic").parse_messages([{"role": "assistant", "content": [raw]}])[0].parts
    else:
        parts = parse_messages([{"role": "assistant", "content": None, "tool_calls": [raw]}])[0].parts
    return [
        {"type": "tool_call", "id": part.wire_id, "name": part.name, "parameters": plain_arguments(part.arguments)}
        for part in parts
        if isinstance(part, ToolCall)
    ]


def _vercel(given: Json) -> list[Json]:
    messages = messages_of(given["contents"])
    if "format" not in given:
        return vercel_ai.render_messages(messages)
    mapper = moonshim.tool_id_strategy(given["format"]).create_mapper(messages)
    return vercel_ai.render_messages(
        messages, resolve_tool_call_id=lambda id, name: mapper.resolve_tool_call_id({"id": id, "name": name})
    )
