"""The messages of a chat request -> what Moonshot, or another host of the model, has against them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from moonshim.simulator.rules.contracts import Contract, Json

__all__ = ["check_arguments", "check_chat_messages", "check_partial", "unanswered"]

ROLES: Final = ("system", "user", "assistant", "tool")


def check_chat_messages(messages: Any, of: Contract, thinking: bool) -> Iterator[str]:
    """In the order of Moonshot: shape, empty ones, pairs, ids, arguments, reasoning."""
    if not isinstance(messages, list) or not messages:
        yield "messages must not be empty"
        return
    if any(not isinstance(message, dict) or message.get("role") not in ROLES for message in messages):
        yield f"messages must be objects with a role of {', '.join(ROLES)}"
        return
    if shape := list(_calls_shape(messages)):
        yield from shape
        return
    for at, message in enumerate(messages):
        yield from _empty(at, message, of)
    yield from _pairs(messages)
    yield from _ids(messages, of)
    for message in messages:
        for call in calls_of(message):
            yield from check_arguments(call["function"]["name"], call["function"].get("arguments"))
    for at, message in enumerate(messages):
        yield from _reasoning(at, message, of, thinking)


def calls_of(message: Json) -> list[Json]:
    calls = message.get("tool_calls")
    return calls if message["role"] == "assistant" and isinstance(calls, list) else []


def _calls_shape(messages: list[Json]) -> Iterator[str]:
    for at, message in enumerate(messages):
        calls = message.get("tool_calls")
        if calls is None:
            continue
        if message["role"] != "assistant":
            yield f"messages.{at}.tool_calls is only allowed with role assistant"
        elif not isinstance(calls, list) or not calls:
            yield f"messages.{at}.tool_calls must be a non-empty array"
        for number, call in enumerate(calls if isinstance(calls, list) else ()):
            match call:
                case {"id": str(id), "type": "function", "function": {"name": str(name)}} if id and name:
                    pass
                case _:
                    yield f"messages.{at}.tool_calls.{number} needs an id, type function and a function with a name"


def _empty(at: int, message: Json, of: Contract) -> Iterator[str]:
    role, content = message["role"], message.get("content")
    texts = [part.get("text") for part in content if _is_text(part)] if isinstance(content, list) else []
    if of.host.refuses_empty_text and ("" in texts or (content == "" and calls_of(message))):
        yield "text content is empty"
    if role == "tool":
        if content is None:
            yield _no_content(at, of)
        return
    filled = content not in (None, "", []) and not (texts and len(texts) == len(content or ()) and not any(texts))
    excused = (role == "assistant" and (calls_of(message) or message.get("partial"))) or "tools" in message
    if not filled and not excused:
        yield f"the message at position {at} with role '{role}' must not be empty"


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "text"


def _no_content(at: int, of: Contract) -> str:
    if of.host_name == "groq":
        return (
            f"'messages.{at}' : for 'role:tool' the following must be satisfied"
            f"[('messages.{at}.content' : property 'content' is missing)]"
        )
    return f"the message at position {at} with role 'tool' has no content"


def unanswered(ids: list[str]) -> str:
    return (
        "an assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
        f"The following tool_call_ids did not have response messages: {', '.join(ids)}"
    )


def _pairs(messages: list[Json]) -> Iterator[str]:
    """Results stand directly behind the message with their calls, one for each."""
    open_ids: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            id = message.get("tool_call_id") or ""
            if id in open_ids:
                open_ids.remove(id)
            else:
                yield f"tool_call_id {id} is not found"
            continue
        if open_ids:
            yield unanswered(open_ids)
        open_ids = [call["id"] for call in calls_of(message)]
    if open_ids:
        yield unanswered(open_ids)


def _ids(messages: list[Json], of: Contract) -> Iterator[str]:
    seen: set[str] = set()
    calls = [call for message in messages for call in calls_of(message)]
    for number, call in enumerate(calls):
        right = f"functions.{call['function']['name']}:{number}"
        if of.unique_ids and call["id"] in seen:
            yield f"Invalid request: tool call id {call['id']} is duplicated"
        elif of.positional_ids and call["id"] != right:
            yield f"the model reads ids as they are on this host: {call['id']} has to be {right}"
        seen.add(call["id"])


def check_arguments(name: str, arguments: Any) -> Iterator[str]:
    subject = f"tool_calls[].function.arguments for function '{name}'"
    value = arguments
    if isinstance(arguments, str):
        try:
            value = json.loads(arguments)
        except (ValueError, RecursionError):
            yield f"{subject} is not valid JSON"
            return
    if not isinstance(value, dict) or not isinstance(arguments, str):
        yield f"{subject} must decode to a JSON object, got {type(value).__name__}"


def _reasoning(at: int, message: Json, of: Contract, thinking: bool) -> Iterator[str]:
    if message["role"] != "assistant":
        return
    given = [name for name in of.host.reasoning if message.get(name) is not None]
    if of.needs_reasoning(thinking) and calls_of(message) and not given:
        yield f"thinking is enabled but reasoning_content is missing in assistant tool call message at index {at}"
    if of.host.reasoning == ("reasoning",) and message.get("reasoning_content") is not None:
        yield f"the message at position {at} has its reasoning in reasoning_content, and this host reads only reasoning"
    details = message.get("reasoning_details")
    for number, entry in enumerate(details if isinstance(details, list) else ()):
        if not of.host.indexes_details and isinstance(entry, dict) and "index" in entry:
            yield f"the reasoning_details at position {at} entry {number} must not contain streaming index"


def check_partial(messages: Any) -> Iterator[str]:
    """Only the last message can be continued, and only the assistant's."""
    for at, message in enumerate(messages if isinstance(messages, list) else ()):
        if isinstance(message, dict) and message.get("partial"):
            if at != len(messages) - 1 or message.get("role") != "assistant":
                yield f"messages.{at}.partial is only allowed on the last message with role assistant"
            elif message.get("tool_calls"):
                yield f"messages.{at}.partial is not allowed beside tool_calls"
