"""The tools of a request, and the choice among them -> what Moonshot has against them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from moonshim.simulator.rules.contracts import Contract
from moonshim.simulator.rules.schema_rules import check_schema

__all__ = [
    "INVALID_NAME",
    "INVALID_SCHEMA",
    "check_choice",
    "check_dynamic_tools",
    "check_messages_tools",
    "check_tools",
]

INVALID_NAME: Final = (
    "function name is invalid, must start with a letter and can contain letters, numbers, underscores, and dashes"
)
INVALID_SCHEMA: Final = "tools.function.parameters is not a valid moonshot flavored json schema, details: <{}>"
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_CHOICES: Final = {"any": "required", "tool": "specified"}


def check_tools(tools: Any, of: Contract, taken: set[str]) -> Iterator[str]:
    """Names go into `taken`, so that tools declared later can be compared with them."""
    if tools is None:
        return
    if not isinstance(tools, list):
        yield "tools must be an array"
        return
    for at, tool in enumerate(tools):
        if not isinstance(tool, dict):
            yield f"tools.{at} must be an object"
            continue
        kind, function = tool.get("type"), tool.get("function")
        if kind not in ("function", "builtin_function"):
            yield f"tools.{at}.type {kind!r} is not supported"
        elif not isinstance(function, dict):
            yield f"tools.{at}.function is missing"
        elif kind == "builtin_function":
            if not str(function.get("name", "")).startswith("$"):
                yield f"tools.{at}.function.name of a builtin_function must start with $"
        else:
            yield from _function(function.get("name"), function.get("parameters"), of, taken)


def check_messages_tools(tools: Any, of: Contract, taken: set[str]) -> Iterator[str]:
    """The tools of Anthropic's format: a server tool has a type of its own, and Kimi has none of these."""
    if tools is None:
        return
    if not isinstance(tools, list):
        yield "tools must be an array"
        return
    for at, tool in enumerate(tools):
        if not isinstance(tool, dict):
            yield f"tools.{at} must be an object"
        elif "function" in tool:
            yield f"tools.{at} is in OpenAI's format, which this endpoint ignores"
        elif tool.get("type", "custom") != "custom":
            yield f"tools.{at}.type {tool['type']!r} is not supported"
        elif not isinstance(tool.get("input_schema"), dict):
            yield f"tools.{at}.input_schema is missing"
        else:
            yield from _function(tool.get("name"), tool["input_schema"], of, taken)


def _function(name: Any, parameters: Any, of: Contract, taken: set[str]) -> Iterator[str]:
    if not isinstance(name, str) or not name:
        yield "function name is missing"
    elif of.host.moonshots and (not _NAME.fullmatch(name) or len(name) > of.generation.name_length):
        yield INVALID_NAME
    if name in taken:
        yield f"function name {name} is duplicated"
    elif isinstance(name, str):
        taken.add(name)
    if of.host.moonshots and parameters is not None and (fault := check_schema(parameters)):
        yield INVALID_SCHEMA.format(fault)


def check_dynamic_tools(messages: Any, of: Contract, taken: set[str]) -> Iterator[str]:
    for at, message in enumerate(messages if isinstance(messages, list) else ()):
        if not isinstance(message, dict) or "tools" not in message:
            continue
        tools = message["tools"]
        if of.generation.family != "k3":
            yield f"messages.{at}.tools is not allowed for this model"
        elif message.get("role") != "system":
            yield f"messages.{at}.tools is only allowed with role system"
        elif message.get("content") not in (None, ""):
            yield f"messages.{at}.content must be empty beside tools"
        elif not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
            yield f"messages.{at}.tools must be an array of objects"
        else:
            yield from check_tools(tools, of, taken)


def check_choice(choice: Any, of: Contract, thinking: bool, names: set[str]) -> Iterator[str]:
    """The choice as OpenAI writes it (a word, or an object that names a function) or as Anthropic does."""
    if choice is None or not of.host.moonshots:
        return
    word = _word(choice)
    if word is None:
        yield f"invalid tool_choice: {choice!r}"
    elif of.generation.family == "k2" and thinking and word in ("required", "specified"):
        yield f"tool_choice '{word}' is incompatible with thinking enabled"
    elif word == "required" and not names:
        yield "tool_choice 'required' needs tools"


def _word(choice: Any) -> str | None:
    match choice:
        case "auto" | "none" | "required":
            return str(choice)
        case {"type": "function", "function": {"name": str()}}:
            return "specified"
        case {"type": "auto" | "none" | "any" | "tool" as kind}:
            return _CHOICES.get(str(kind), str(kind))
    return None
