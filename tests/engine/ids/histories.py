"""Histories for hypothesis: calls and results that repeat, collide, get lost and come out of order."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

__all__ = ["HISTORIES", "IDS", "NAMES", "assistant", "call", "result"]

IDS = st.sampled_from(
    [
        "",
        "x",
        "y",
        "call_ab",
        "call_a.b",
        "toolu_ab",
        "hist_tool_ab",
        "hist_tool_ab_2",
        "call_ab_2",
        "functions.ls:0",
        "functions.ls:1",
        "functions.cat:0",
        "D681PevKs",
        "..",
        "::",
        "call_" + "long" * 20,
        "call_" + "long" * 20 + "er",
    ]
) | st.text(max_size=6)
NAMES = st.sampled_from(["ls", "cat", "mcp.a-b", "", "with:colon"])


def call(id: Any, name: Any = "ls", arguments: str = "{}") -> dict[str, Any]:
    """An entry of `tool_calls`."""
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def assistant(*calls: dict[str, Any]) -> dict[str, Any]:
    """An assistant's message with these calls."""
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def result(id: Any, content: str = "", **more: Any) -> dict[str, Any]:
    """A tool's message."""
    return {"role": "tool", "tool_call_id": id, "content": content, **more}


CALLS = st.builds(call, IDS, NAMES, st.sampled_from(["{}", '{"a":1}']))
RESULTS = st.builds(result, IDS, st.sampled_from(["", "done"])) | st.builds(
    lambda id, name: result(id, name=name), IDS, NAMES
)
HISTORIES: st.SearchStrategy[list[dict[str, Any]]] = st.lists(
    st.lists(CALLS, min_size=1, max_size=3).map(lambda calls: assistant(*calls))
    | RESULTS
    | st.builds(lambda text: {"role": "user", "content": text}, st.text(max_size=3)),
    max_size=10,
)
