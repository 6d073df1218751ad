"""Calls -> the raw text in which a Kimi writes them, before any parser: K2's tokens, and K3's XTML."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from moonshim.simulator.request import SimCall

__all__ = [
    "ARGUMENT_BEGIN",
    "CALL_BEGIN",
    "CALL_END",
    "SECTION_BEGIN",
    "SECTION_END",
    "attribute",
    "k2_call",
    "k2_section",
    "k3_call",
    "k3_close",
    "k3_open",
    "k3_tools",
]

SECTION_BEGIN: Final = "<|tool_calls_section_begin|>"
SECTION_END: Final = "<|tool_calls_section_end|>"
CALL_BEGIN: Final = "<|tool_call_begin|>"
CALL_END: Final = "<|tool_call_end|>"
ARGUMENT_BEGIN: Final = "<|tool_call_argument_begin|>"

_KINDS: Final = {str: "string", bool: "boolean", int: "number", float: "number", list: "array", dict: "object"}


def k2_call(call: SimCall) -> str:
    """
    >>> k2_call(SimCall("functions.ls:0", "ls", "{}"))
    '<|tool_call_begin|>functions.ls:0<|tool_call_argument_begin|>{}<|tool_call_end|>'
    """
    return f"{CALL_BEGIN}{call.id}{ARGUMENT_BEGIN}{call.arguments}{CALL_END}"


def k2_section(calls: Iterable[SimCall]) -> str:
    """A section as K2 writes it: only the id contains the name."""
    return SECTION_BEGIN + "".join(k2_call(call) for call in calls) + SECTION_END


def attribute(value: str) -> str:
    """
    >>> attribute('a "b" & c')
    'a &quot;b&quot; &amp; c'
    """
    return value.replace("&", "&amp;").replace('"', "&quot;")


def k3_open(tag: str, **attributes: str) -> str:
    """
    >>> k3_open("call", tool="ls", index="1")
    '<|open|>call tool="ls" index="1"<|sep|>'
    """
    inside = "".join(f' {key}="{attribute(value)}"' for key, value in attributes.items())
    return f"<|open|>{tag}{inside}<|sep|>"


def k3_close(tag: str) -> str:
    return f"<|close|>{tag}<|sep|>"


def k3_call(call: SimCall, index: int) -> str:
    """`index` counts from 1 in each message. Arguments that are not a JSON object are written verbatim."""
    try:
        values = json.loads(call.arguments) if call.arguments.strip() else {}
        inside = "".join(_argument(key, value) for key, value in values.items())
    except (ValueError, AttributeError, RecursionError):
        inside = f"{k3_open('json', type='object')}{call.arguments}{k3_close('json')}"
    return k3_open("call", tool=call.name, index=str(index)) + inside + k3_close("call")


def k3_tools(calls: Iterable[SimCall]) -> str:
    """
    >>> print(k3_tools([SimCall("", "ls", '{"p":"/tmp"}')]).replace("<|open|>", "\\n<|open|>").strip())
    <|open|>tools<|sep|>
    <|open|>call tool="ls" index="1"<|sep|>
    <|open|>argument key="p" type="string"<|sep|>/tmp<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>
    """
    return k3_open("tools") + "".join(k3_call(call, at) for at, call in enumerate(calls, 1)) + k3_close("tools")


def _argument(key: str, value: Any) -> str:
    # Moonshot's encoder writes values other than strings with Python's own spaces, unlike the tools that it declares.
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    kind = _KINDS.get(type(value), "null")
    return k3_open("argument", key=key, type=kind) + text + k3_close("argument")
