"""The name of a call is read from the identifier that the model wrote, whole and streamed alike."""

from __future__ import annotations

import json
from typing import Any

import pytest

import moonshim


def tools(names: tuple[str, ...]) -> list[dict[str, Any]]:
    return [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in names]


def leaked(header: str, begin_arguments: str = "<|tool_call_argument_begin|>") -> str:
    call = f"<|tool_call_begin|>{header}{begin_arguments}{{}}<|tool_call_end|>"
    return f"<|tool_calls_section_begin|>{call}<|tool_calls_section_end|>"


def call_in(content: str, declared: tuple[str, ...]) -> tuple[str, str]:
    """Name and identifier of the only call, read from a whole answer and from a stream of single characters."""
    offered = tools(declared)
    message = {"role": "assistant", "content": content}
    body = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    mended = moonshim.mend_response(body, model="kimi-k2.6", tools=offered)
    [call] = mended.body["choices"][0]["message"]["tool_calls"]
    mender = moonshim.Mender(model="kimi-k2.6", tools=offered)
    for letter in content:
        chunk = {"choices": [{"index": 0, "delta": {"content": letter}, "finish_reason": None}]}
        mender.feed(b"data: " + json.dumps(chunk).encode() + b"\n\n")
    mender.feed(b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n')
    mender.flush()
    assert mender.message is not None
    [streamed] = [part for part in mender.message.parts if isinstance(part, moonshim.ToolCall)]
    assert (streamed.name, streamed.wire_id) == (call["function"]["name"], call["id"])
    return call["function"]["name"], call["id"]


@pytest.mark.parametrize("declared", [("ls",), ("ls", "mcp:srv:tool")], ids=["undeclared", "declared"])
@pytest.mark.parametrize("begin_arguments", ["<|tool_call_argument_begin|>", ""], ids=["marked", "unmarked"])
def test_the_index_follows_the_last_colon_of_an_identifier(declared: tuple[str, ...], begin_arguments: str) -> None:
    content = leaked("functions.mcp:srv:tool:7", begin_arguments)
    assert call_in(content, declared) == ("mcp:srv:tool", "functions.mcp:srv:tool:7")


def test_a_name_with_colons_needs_no_prefix() -> None:
    assert call_in(leaked("mcp:srv:tool:7"), ("ls",)) == ("mcp:srv:tool", "functions.mcp:srv:tool:0")


@pytest.mark.parametrize("header", ["functionslist_dir23", "functions_list_dir23", "functions.list_dir23"])
@pytest.mark.parametrize(
    ("declared", "name"),
    [
        (("list_dir", "list_dir2"), "list_dir2"),
        (("list_dir2",), "list_dir2"),
        (("list_dir", "list_dir23"), "list_dir23"),
        (("list_dir",), "list_dir"),
    ],
)
def test_the_longest_declared_name_that_leaves_digits_is_called(
    header: str, declared: tuple[str, ...], name: str
) -> None:
    assert call_in(leaked(header), declared)[0] == name
