"""Print which modules one streaming request runs through, and how often control switches between them.

    python scripts/trace_path.py [--order]

The request is prepared, and its response is mended: reasoning, text, a tool call in native deltas, another one in
leaked markers, finish and usage, each in a separate chunk. A switch is a call into another module of Moonshim, or the
return from it. The slow path is measured on a piece of text that is parsed and passed on (`fast_path=False`).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import moonshim

PACKAGE = "moonshim"
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOLS = [{"type": "function", "function": {"name": "read_file", "parameters": SCHEMA}}]
CHAT = {
    "model": "kimi-k2.5",
    "stream": True,
    "tools": TOOLS,
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Read a.py"}],
}
MESSAGES = {
    "model": "kimi-k2.5",
    "stream": True,
    "max_tokens": 1024,
    "system": "Be brief.",
    "tools": [{"name": "read_file", "input_schema": SCHEMA}],
    "messages": [{"role": "user", "content": "Read a.py"}],
}
MARKERS = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.read_file:1<|tool_call_argument_begin|>"
    '{"path": "b.py"}<|tool_call_end|><|tool_calls_section_end|>'
)
CALL = {"name": "read_file", "arguments": ""}
SLOW_FRAME = 4
"""The second piece of the text: it opens no block."""
DELTAS: list[dict[str, Any]] = [
    {"role": "assistant", "content": ""},
    {"reasoning_content": "The user"},
    {"reasoning_content": " wants a file."},
    {"content": "I will"},
    {"content": " read it."},
    {
        "tool_calls": [
            {
                "index": 0,
                "id": "functions.read_file:0",
                "type": "function",
                "function": {"name": "read_file", "arguments": ""},
            }
        ]
    },
    {"tool_calls": [{"index": 0, "function": {"arguments": '{"path": '}}]},
    {"tool_calls": [{"index": 0, "function": {"arguments": '"a.py"}'}}]},
    {"content": MARKERS},
]


class Trace:
    """The modules that ran, and how often control switched between them."""

    def __init__(self) -> None:
        self.modules: list[str] = []
        self.switches = 0
        self._stack: list[str] = []

    def run(self, work: Callable[[], Any]) -> Any:
        sys.setprofile(self._observe)
        try:
            return work()
        finally:
            sys.setprofile(None)

    def _observe(self, frame: FrameType, event: str, _: object) -> None:
        module = frame.f_globals.get("__name__", "")
        if not module.startswith(PACKAGE) or frame.f_code.co_name == "<module>":
            return
        if event == "call":
            self._enter(module)
            self._stack.append(module)
        elif event == "return" and self._stack:
            left = self._stack.pop()
            self.switches += bool(self._stack) and self._stack[-1] != left

    def _enter(self, module: str) -> None:
        if module not in self.modules:
            self.modules.append(module)
        self.switches += bool(self._stack) and self._stack[-1] != module


def frames() -> list[bytes]:
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in DELTAS
    ]
    chunks += [
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
        {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}},
    ]
    head: dict[str, Any] = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "kimi-k2.5"}
    return [b"data: " + json.dumps(head | chunk).encode() + b"\n\n" for chunk in chunks] + [b"data: [DONE]\n\n"]


class Request:
    """One request through the engine, traced: prepared, and its response mended frame by frame."""

    def __init__(self, body: dict[str, Any], dialect: str, *, fast_path: bool = True) -> None:
        self.request, self.response = Trace(), Trace()
        self.by_frame: list[int] = []
        prepared = self.request.run(
            partial(moonshim.prepare_request, body, dialect=dialect, upstream="openai_chat", host="moonshot")
        )
        mender = self.response.run(partial(moonshim.Mender, plan=prepared.plan, fast_path=fast_path))
        for data in frames():
            before = self.response.switches
            self.response.run(partial(mender.feed, data))
            self.by_frame.append(self.response.switches - before)
        self.response.run(mender.flush)

    @property
    def modules(self) -> list[str]:
        return list(dict.fromkeys(self.request.modules + self.response.modules))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--order", action="store_true", help="list the modules in order of first use")
    arguments = parser.parse_args()
    for title, dialect, body in (("Chat to Chat", "openai_chat", CHAT), ("Messages to Chat", "anthropic", MESSAGES)):
        Request(body, dialect)  # what is loaded or built once is not part of a request
        traced, slow = Request(body, dialect), Request(body, dialect, fast_path=False)
        request, response = traced.request, traced.response
        print(f"{title}: {len(traced.modules)} modules, {request.switches + response.switches} switches")
        print(f"  request   {len(request.modules)} modules, {request.switches} switches")
        print(f"  response  {len(response.modules)} modules, {response.switches} switches")
        print(f"  one frame of text on the slow path: {slow.by_frame[SLOW_FRAME]} switches")
        if arguments.order:
            print("".join(f"    {module}\n" for module in traced.modules), end="")


if __name__ == "__main__":
    main()
