"""Rows about requests (the choice of tools, tool messages, reasoning in the history) -> what would be sent."""

from __future__ import annotations

from typing import Any, Final

import moonshim
from conformance.checked import Checked
from conformance.replies import Json

__all__ = ["check_choice", "check_messages", "check_thoughts"]

_HELLO: Final = {"role": "user", "content": "hi"}
_TOOL: Final = {"type": "function", "function": {"name": "ls", "parameters": {"type": "object", "properties": {}}}}


def check_choice(row: Json) -> Checked:
    """The choice of tools that is sent. An empty definition stands for any: nobody can be told of a tool like that."""
    asked = row["input"]["request"]
    tools = [tool or _TOOL for tool in asked["tools"]]
    body = _prepared([_HELLO], **asked | {"tools": tools}).body
    return Checked({"tool_choice": body.get("tool_choice")}, row["expect"])


def check_messages(row: Json) -> Checked:
    """Whether these messages are accepted, and with which error they are not."""
    options = moonshim.KimiOptions.from_json(row["input"].get("options", {}))
    got: Json = {"ok": True}
    try:
        _prepared(row["input"]["messages"], options=options)
    except moonshim.InvalidInput as error:
        got = {"error": str(error)}
    return Checked(got, row["expect"])


def check_thoughts(row: Json) -> Checked:
    """The reasoning of each answer that goes back to the host, under whichever policy the row names."""
    history: list[Json] = [_HELLO]
    for number, thought in enumerate(row["input"]["thoughts_per_message"]):
        call = {"id": f"ls:{number}", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
        history += [
            {"role": "assistant", "content": None, "reasoning_content": thought, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": "a.txt"},
        ]
    sent = _prepared(history, tools=[_TOOL]).body["messages"]
    kept = [message.get("reasoning_content") for message in sent if message["role"] == "assistant"]
    return Checked(dict.fromkeys(row["expect"], kept), row["expect"])


def _prepared(messages: list[Json], *, options: moonshim.KimiOptions | None = None, **fields: Any) -> moonshim.Prepared:
    body = {"model": "kimi-k2.5", "messages": messages} | fields
    return moonshim.prepare_request(body, host="generic", options=options)
