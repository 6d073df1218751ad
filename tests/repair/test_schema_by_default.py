"""Without any option, arguments are mended by the declared schema, where it declares more than strings."""

from __future__ import annotations

from typing import Any

from moonshim import Mender
from moonshim.conversation import ToolCall
from tests.streams import chunk, sse


def test_zero_configuration_mends_by_the_schema_and_reads_none_where_there_are_only_strings() -> None:
    def tool(name: str, kind: str) -> dict[str, Any]:
        schema = {"type": "object", "properties": {"a": {"type": kind}}}
        return {"type": "function", "function": {"name": name, "parameters": schema}}

    tools = [tool("plan", "array"), tool("say", "string")]
    calls = [
        {"index": n, "id": f"functions.{name}:{n}", "type": "function", "function": {"name": name, "arguments": given}}
        for n, (name, given) in enumerate([("plan", '{"a": "[1]"}'), ("say", '{"a": "[1]"}')])
    ]
    mender = Mender(model="kimi-k2.5", tools=tools)
    mender.feed(sse([chunk({"tool_calls": calls}), chunk({}, "tool_calls")]))
    assert [part.arguments for part in mender.message.parts if isinstance(part, ToolCall)] == [
        '{"a": [1]}',
        '{"a": "[1]"}',
    ]
