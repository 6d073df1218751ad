"""The messages of a chat request -> the objections of Moonshot, or of another host, to them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from moonshim.simulator.rules.contracts import Contract, Json
from moonshim.simulator.rules.objection import Objection
from moonshim.simulator.rules.pairing_rules import CallsAndResults, check_pairs
from moonshim.simulator.rules.shapes import describe, objects

__all__ = ["check_arguments", "check_chat_messages", "check_partial", "missing_reasoning", "no_messages"]

ROLES: Final = ("system", "user", "assistant", "tool")


def no_messages(messages: Any) -> Objection | None:
    """The objection to something that is not a list of messages; the same in both dialects."""
    if messages is None or messages == []:
        return Objection("Invalid request: messages must not be empty")
    if not isinstance(messages, list) or len(objects(messages)) < len(messages):
        return Objection("Invalid request: messages must be an array of objects")
    return None


def check_chat_messages(messages: Any, of: Contract, thinking: bool) -> Iterator[Objection]:
    """In Moonshot's order: shape, empty messages, pairs, arguments, reasoning."""
    if (wrong := no_messages(messages)) is not None:
        yield wrong
        return
    shape = [found for at, message in enumerate(messages) for found in _shape(at, message, of)]
    yield from shape
    if any(not found.ours for found in shape):
        return  # the other checks need messages of the right shape
    for at, message in enumerate(messages):
        yield from _empty(at, message, of)
    yield from check_pairs([_calls_and_results(message) for message in messages], of, positional=True)
    for message in messages:
        for call in calls_of(message):
            yield from check_arguments(call["function"]["name"], call["function"].get("arguments"))
    for at, message in enumerate(messages):
        yield from _reasoning(at, message, of, thinking)


def calls_of(message: Json) -> list[Json]:
    return objects(message.get("tool_calls")) if message["role"] == "assistant" else []


def _calls_and_results(message: Json) -> CallsAndResults:
    calls = tuple((call["id"], call["function"]["name"]) for call in calls_of(message))
    if message["role"] != "tool":
        return CallsAndResults(calls, (), continues=False)
    return CallsAndResults((), (message.get("tool_call_id") or "",), continues=True)


def _shape(at: int, message: Json, of: Contract) -> Iterator[Objection]:
    role, content, calls = message.get("role"), message.get("content"), message.get("tool_calls")
    if role not in ROLES:
        yield Objection(f"Invalid request: messages.{at}.role {describe(role)} is not one of {', '.join(ROLES)}")
        return
    if content is not None and not isinstance(content, str | list):
        yield Objection(f"Invalid request: messages.{at}.content must be a string or an array")
    for number, part in enumerate(content if isinstance(content, list) else ()):
        if not isinstance(part, dict) or not isinstance(part.get("type"), str):
            yield Objection(f"Invalid request: messages.{at}.content.{number} must be an object with a type")
        elif part["type"] == "text" and not isinstance(part.get("text"), str):
            yield Objection(f"Invalid request: messages.{at}.content.{number}.text must be a string")
    if role == "tool" and not isinstance(message.get("tool_call_id"), str | None):
        yield Objection(f"Invalid request: messages.{at}.tool_call_id must be a string")
    if calls is None:
        return
    if not isinstance(calls, list):
        yield Objection(f"Invalid request: messages.{at}.tool_calls must be an array")
        return
    if role != "assistant":
        yield Objection(f"messages.{at}.tool_calls is only allowed with role assistant", ours=True)
    elif not calls:
        yield Objection(f"messages.{at}.tool_calls must be a non-empty array", ours=True)
    for number, call in enumerate(calls if role == "assistant" else ()):
        match call:
            case {"id": str(id), "type": "function", "function": {"name": str(name)}} if id and name:
                pass
            case {"id": str(id), "type": "builtin_function", "function": {"name": str(name)}} if id and name[:1] == "$":
                pass  # Moonshot's guide sends a call of its own search back as it came
            case _:
                yield Objection(
                    f"Invalid request: messages.{at}.tool_calls.{number} needs an id, type function, and a function "
                    "with a name"
                )


def _empty(at: int, message: Json, of: Contract) -> Iterator[Objection]:
    role, content = message["role"], message.get("content")
    texts = [part["text"] for part in content if part["type"] == "text"] if isinstance(content, list) else []
    if of.host.refuses_empty_text and ("" in texts or (content == "" and calls_of(message))):
        yield of.objection("text content is empty")
    if role == "tool":
        if content is None:
            yield _no_content(at, of)
        return
    filled = content not in (None, "", []) and not (texts and len(texts) == len(content or ()) and not any(texts))
    brings_tools = of.generation.family == "k3" and message.get("tools") is not None
    excused = (role == "assistant" and (calls_of(message) or message.get("partial"))) or brings_tools
    if not filled and not excused:
        yield of.objection(f"the message at position {at} with role '{role}' must not be empty")


def _no_content(at: int, of: Contract) -> Objection:
    if of.host_name == "groq":
        return Objection(
            f"'messages.{at}' : for 'role:tool' the following must be satisfied"
            f"[('messages.{at}.content' : property 'content' is missing)]"
        )
    return of.objection(f"the message at position {at} with role 'tool' must not be empty")


def check_arguments(name: str, arguments: Any) -> Iterator[Objection]:
    """Arguments must be a string with JSON in it."""
    subject = f"tool_calls[].function.arguments for function '{name}'"
    value = arguments
    if isinstance(arguments, str):
        try:
            value = json.loads(arguments)
        except (ValueError, RecursionError):
            yield Objection(f"{subject} is not valid JSON")
            return
    if not isinstance(value, dict) or not isinstance(arguments, str):
        yield Objection(f"{subject} must decode to a JSON object, got {type(value).__name__}")


def missing_reasoning(index: int, of: Contract) -> Iterator[Objection]:
    """While thinking is on, a message with calls needs the reasoning before them. An empty string is enough."""
    message = f"thinking is enabled but reasoning_content is missing in assistant tool call message at index {index}"
    if of.moonshots and of.generation.needs_reasoning:
        yield Objection(message)
    elif of.moonshots and of.generation.family == "k3":
        yield Objection(message, assumed="" if of.host.always_needs_reasoning else "k3-needs-reasoning")


def _reasoning(at: int, message: Json, of: Contract, thinking: bool) -> Iterator[Objection]:
    if message["role"] != "assistant":
        return
    if thinking and calls_of(message) and not any(_is_reasoning(message.get(name)) for name in of.host.reasoning):
        yield from missing_reasoning(at, of)
    if of.host.reasoning == ("reasoning",) and message.get("reasoning_content") is not None:
        yield Objection(
            f"the message at position {at} has reasoning_content, but this host only reads reasoning",
            ours=True,
        )
    if of.host.details == "indexed":
        return
    details = message.get("reasoning_details")
    for number, entry in enumerate(details if isinstance(details, list) else ()):
        if isinstance(entry, dict) and "index" in entry:
            yield Objection(
                f"the reasoning_details at position {at} entry {number} must not contain streaming index",
                ours=of.host.details != "bare",
            )


def _is_reasoning(reasoning: Any) -> bool:
    return isinstance(reasoning, str | list)


def check_partial(messages: Any, of: Contract) -> Iterator[Objection]:
    """Only the last message can be continued, and only the assistant's."""
    for at, message in enumerate(messages if isinstance(messages, list) else ()):
        if isinstance(message, dict) and message.get("partial") not in (None, False):
            if message["partial"] is not True:
                yield of.objection(f"Invalid request: messages.{at}.partial must be a boolean")
            elif at != len(messages) - 1 or message.get("role") != "assistant":
                yield of.objection(
                    f"Invalid request: messages.{at}.partial is only allowed on the last message with role assistant"
                )
            elif message.get("tool_calls"):
                yield of.objection(f"Invalid request: messages.{at}.partial is not allowed together with tool_calls")
