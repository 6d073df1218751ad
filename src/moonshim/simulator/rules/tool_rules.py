"""The tools of a request, and its tool choice -> Moonshot's objections to them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from moonshim.simulator.rules.contracts import Contract
from moonshim.simulator.rules.objection import Objection
from moonshim.simulator.rules.schema_rules import check_schema_value
from moonshim.simulator.rules.shapes import describe, objects

__all__ = [
    "INVALID_NAME",
    "INVALID_SCHEMA",
    "check_chat_choice",
    "check_dynamic_tools",
    "check_messages_choice",
    "check_messages_tools",
    "check_tools",
]

INVALID_NAME: Final = (
    "function name is invalid, must start with a letter and can contain letters, numbers, underscores, and dashes"
)
INVALID_SCHEMA: Final = "tools.function.parameters is not a valid moonshot flavored json schema, details: <{}>"
LONGEST_NAME: Final = 256
LONGEST_OLD_NAME: Final = 64
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


def check_tools(tools: Any, of: Contract, thinking: bool, taken: set[str]) -> Iterator[Objection]:
    """Adds names to `taken`, so that tools declared later can be compared with them."""
    if tools is None:
        return
    if not isinstance(tools, list):
        yield Objection("Invalid request: tools must be an array")
        return
    for at, tool in enumerate(tools):
        if not isinstance(tool, dict):
            yield Objection(f"Invalid request: tools.{at} must be an object")
            continue
        kind, function = tool.get("type"), tool.get("function")
        if kind not in ("function", "builtin_function"):
            yield Objection(f"Invalid request: tools.{at}.type {describe(kind)} is not supported")
        elif not isinstance(function, dict):
            yield Objection(f"Invalid request: tools.{at}.function is missing")
        elif kind == "builtin_function":
            yield from _check_built_in(at, function.get("name"), of, thinking, taken)
        else:
            yield from _check_function(function.get("name"), function.get("parameters", {}), of, taken)


def check_messages_tools(tools: Any, of: Contract, taken: set[str]) -> Iterator[Objection]:
    """The tools of Anthropic's format: server tools have their own types, none of which Kimi supports."""
    if tools is None:
        return
    if not isinstance(tools, list):
        yield Objection("Invalid request: tools must be an array")
        return
    for at, tool in enumerate(tools):
        if not isinstance(tool, dict):
            yield Objection(f"Invalid request: tools.{at} must be an object")
        elif "function" in tool:
            # The host ignores it, and the model then writes text that looks like calls.
            yield Objection(f"tools.{at} is in OpenAI's format, which this endpoint ignores", ours=True)
        elif tool.get("type") not in (None, "custom"):
            yield Objection(f"Invalid request: tools.{at}.type {describe(tool['type'])} is not supported")
        elif not isinstance(tool.get("input_schema"), dict):
            yield Objection(f"Invalid request: tools.{at}.input_schema is missing")
        else:
            yield from _check_function(tool.get("name"), tool["input_schema"], of, taken)


def _check_built_in(at: int, name: Any, of: Contract, thinking: bool, taken: set[str]) -> Iterator[Objection]:
    if not isinstance(name, str) or not name.startswith("$"):
        yield Objection(f"Invalid request: tools.{at}.function.name of a builtin_function must start with $")
        return
    yield from _check_unique(name, of, taken)
    if thinking and name == "$web_search":
        yield Objection(
            "builtin_function $web_search is incompatible with thinking enabled", assumed="web-search-thinks-not"
        )


def _check_function(name: Any, parameters: Any, of: Contract, taken: set[str]) -> Iterator[Objection]:
    if not isinstance(name, str) or not name:
        yield Objection("Invalid request: function name is missing")
        return
    if of.moonshots and (not _NAME.fullmatch(name) or len(name) > LONGEST_NAME):
        yield Objection(INVALID_NAME)
    elif of.moonshots and of.generation.family == "k2" and len(name) > LONGEST_OLD_NAME:
        yield Objection(INVALID_NAME, assumed="names-of-64")
    yield from _check_unique(name, of, taken)
    if of.moonshots and (fault := check_schema_value(parameters)):
        yield Objection(INVALID_SCHEMA.format(fault))


def _check_unique(name: str, of: Contract, taken: set[str]) -> Iterator[Objection]:
    if name in taken:
        yield of.objection(f"function name {name} is duplicated")
    taken.add(name)


def check_dynamic_tools(messages: Any, of: Contract, thinking: bool, taken: set[str]) -> Iterator[Objection]:
    """Tools declared in a message, which K3 supports. Other models ignore the field, and see an empty message."""
    for at, message in enumerate(messages if isinstance(messages, list) else ()):
        if not isinstance(message, dict) or message.get("tools") is None:
            continue
        tools = message["tools"]
        if of.generation.family != "k3":
            yield Objection(f"messages.{at}.tools is not supported by this model", ours=True)
        elif message.get("role") != "system":
            yield of.objection(f"Invalid request: messages.{at}.tools is only allowed with role system")
        elif message.get("content") not in (None, ""):
            yield of.objection(f"Invalid request: messages.{at}.content must be empty if tools is set")
        elif not isinstance(tools, list) or len(objects(tools)) < len(tools):
            yield of.objection(f"Invalid request: messages.{at}.tools must be an array of objects")
        else:
            yield from check_tools(tools, of, thinking, taken)


def check_chat_choice(choice: Any, of: Contract, thinking: bool, names: set[str]) -> Iterator[Objection]:
    match choice:
        case None:
            return
        case "auto" | "none" | "required":
            yield from _choice(str(choice), of, thinking, names)
        case {"type": "function", "function": {"name": str()}}:
            yield from _choice("specified", of, thinking, names)
        case _:
            yield of.objection(f"Invalid request: invalid tool_choice: {describe(choice)}")


def check_messages_choice(choice: Any, of: Contract, thinking: bool, names: set[str]) -> Iterator[Objection]:
    match choice:
        case None:
            return
        case {"type": "auto" | "none" as kind}:
            yield from _choice(str(kind), of, thinking, names)
        case {"type": "any"}:
            yield from _choice("required", of, thinking, names)
        case {"type": "tool", "name": str()}:
            yield from _choice("specified", of, thinking, names)
        case _:
            yield of.objection(f"Invalid request: invalid tool_choice: {describe(choice)}")


def _choice(word: str, of: Contract, thinking: bool, names: set[str]) -> Iterator[Objection]:
    """K3 combines thinking with calls, and ignores a named tool; it was also seen to refuse one, more than once."""
    if not of.moonshots:
        return
    message = f"tool_choice '{word}' is incompatible with thinking enabled"
    if thinking and word in ("required", "specified") and of.generation.family == "k2":
        yield Objection(message)
    elif thinking and word == "specified":
        yield Objection(message, assumed="k3-refuses-named-choice")
    elif word == "required" and not names:
        yield Objection("Invalid request: tool_choice 'required' needs tools")
