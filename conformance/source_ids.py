"""Rows about identifiers and names -> what our identifiers are."""

from __future__ import annotations

from typing import Any, Final

import moonshim
from conformance.checked import Checked
from conformance.replies import Json, Request, read_body, replies
from conformance.source_contents import messages_of
from moonshim.engine.dialects.openai_chat.messages import render_messages
from moonshim.engine.ids import canonical_id
from moonshim.engine.values.conversation import Message, ToolCall, ToolResult

__all__ = ["check"]

_FORMATS: Final = {"normalize_to_openai": "openai", "normalize_to_anthropic": "anthropic"}


def check(row: Json) -> Checked:
    given: Json = row["input"]
    kind = row["name"].partition(" ")[0]
    match kind:
        case "is_kimi_model":
            return Checked(moonshim.is_kimi_model(given["model"]), row["expect"])
        case "normalize_to_openai" | "normalize_to_anthropic":
            return Checked(_spelled(given["id"], _FORMATS[kind]), row["expect"])
        case "normalize_to_history":
            return Checked(canonical_id(given["id"]), row["expect"])
        case "normalize_tool_name":
            return _name(given["name"], row["expect"])
    if "format" in given:
        return _rendered(given, row["expect"])
    return _mapped(given, row["expect"]) if "contents" in given else _repaired(given, row["expect"])


def _spelled(wire_id: str, format: str) -> str:
    call = ToolCall(wire_id, "t", "{}")
    return moonshim.tool_id_strategy(format).create_mapper([Message("assistant", (call,))]).resolve_tool_call_id(call)


def _name(header: str, expect: str) -> Checked:
    """The name in the place of an identifier: that is where such names arrive."""
    text = f"<|tool_call_begin|>{header}<|tool_call_argument_begin|>{{}}<|tool_call_end|>"
    ways = replies([text], Request())
    return Checked("".join(call.name for call in ways["as given"].calls), expect, ways)


def _parts(messages: list[Message], kind: type[Any]) -> list[Any]:
    return [part for message in messages for part in message.parts if isinstance(part, kind)]


def _mapped(given: Json, expect: Json) -> Checked:
    history = messages_of(given["contents"])
    mapper = moonshim.tool_id_strategy("kimi").create_mapper(history)
    calls, results = _parts(history, ToolCall), _parts(history, ToolResult)
    got: Json = {
        "calls": [mapper.resolve_tool_call_id(call) for call in calls],
        "responses": [mapper.resolve_tool_response_id(result) for result in results],
        "numbered": {call.id: mapper.resolve_tool_call_id(call) for call in calls if call.id},
    }
    if "resolve_response" in given:
        asked = given["resolve_response"]
        got["response"] = mapper.resolve_tool_response_id(ToolResult(asked["callId"], asked["toolName"]))
    expect = {key: value for key, value in expect.items() if key != "note"}
    return Checked({key: got[key] for key in expect}, expect)


def _rendered(given: Json, expect: Json) -> Checked:
    messages = render_messages(messages_of(given["contents"]), format=given["format"])
    calls = [call["id"] for message in messages for call in message.get("tool_calls", ())]
    results = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    return Checked({"assistant_tool_call_ids": calls, "tool_call_ids": results}, expect)


def _repaired(given: Json, expect: Json) -> Checked:
    request = Request(options=moonshim.KimiOptions.from_json(given["options"]), history=given["messages"])
    message = {"role": "assistant", "content": None, "tool_calls": given["tool_calls"]}
    body = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    reply = read_body(request.response(body))
    ids = [call.id for call in reply.calls]
    got: Json = {"ids": ids, "finish_reason": reply.finish, "ideal_indexes_unique": len({*_indexes(ids)}) == len(ids)}
    claims = {key: value for key, value in expect.items() if key in got}
    return Checked({key: got[key] for key in claims}, claims, ideal="ideal_indexes_unique" in claims)


def _indexes(ids: list[str]) -> list[str]:
    return [one.rpartition(":")[2] for one in ids]
