"""The messages of a request in Anthropic's format -> Moonshot's objections to them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from moonshim.simulator.rules.contracts import Contract, Json
from moonshim.simulator.rules.message_rules import check_arguments, missing_reasoning, no_messages
from moonshim.simulator.rules.objection import Objection
from moonshim.simulator.rules.pairing_rules import CallsAndResults, check_pairs
from moonshim.simulator.rules.shapes import describe, objects

__all__ = ["check_block_messages", "check_system"]

_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")
_BASE64URL: Final = re.compile(r"[A-Za-z0-9_-]*={0,2}")
_USER: Final = ("text", "image", "tool_result")
_ASSISTANT: Final = ("text", "thinking", "redacted_thinking", "tool_use")
_EMPTY_TEXT: Final = "text content is empty"


def check_system(system: Any, of: Contract) -> Iterator[Objection]:
    if system is None or isinstance(system, str):
        return
    if not isinstance(system, list):
        yield Objection("Invalid request: system must be a string or an array of text blocks")
        return
    for block in system:
        if not isinstance(block, dict) or block.get("type") != "text" or not isinstance(block.get("text"), str):
            yield Objection("Invalid request: system must be a string or an array of text blocks")
        elif not block["text"]:
            yield of.objection(_EMPTY_TEXT)


def check_block_messages(body: Json, of: Contract, thinking: bool) -> Iterator[Objection]:
    """In the order of Chat: shape, empty messages, pairs, arguments, reasoning; then signed values."""
    messages = body.get("messages")
    if (wrong := no_messages(messages)) is not None:
        yield wrong
        return
    assert isinstance(messages, list)
    shape = [found for at, message in enumerate(messages) for found in _shape(at, message)]
    yield from shape
    if shape:
        return  # the other checks need messages of the right shape
    yield from _turns(messages)
    shift = 1 if body.get("system") else 0  # the prompt counts as the first message
    for at, message in enumerate(messages):
        yield from _empty(at + shift, message, of)
    for at, message in enumerate(messages):
        yield from _order(at, message)
    yield from check_pairs([_calls_and_results(message) for message in messages], of, positional=of.host.self_hosted)
    for at, message in enumerate(messages):
        yield from _uses(at, message, of)
    for at, message in enumerate(messages):
        yield from _thinking_first(at + shift, message, of, thinking)
    for at, message in enumerate(messages):
        yield from _signatures(at, message, of)


def blocks_of(message: Json, kind: str = "") -> list[Json]:
    return [block for block in objects(message.get("content")) if not kind or block.get("type") == kind]


def _shape(at: int, message: Json) -> Iterator[Objection]:
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant"):
        yield Objection(f"Invalid request: messages.{at}.role {describe(role)} is not user or assistant")
        return
    if content is not None and not isinstance(content, str | list):
        yield Objection(f"Invalid request: messages.{at}.content must be a string or an array")
    for number, block in enumerate(content if isinstance(content, list) else ()):
        yield from _block(f"messages.{at}.content.{number}", role, block)


def _block(place: str, role: str, block: Any) -> Iterator[Objection]:
    if not isinstance(block, dict) or not isinstance(block.get("type"), str):
        yield Objection(f"Invalid request: {place} must be an object with a type")
        return
    kind = block["type"]
    if kind == "tool_reference" or any(inner.get("type") == "tool_reference" for inner in blocks_of(block)):
        yield Objection("Invalid request Error")
    elif kind not in (_USER if role == "user" else _ASSISTANT):
        yield Objection(f"Invalid request: {place}: type {describe(kind)} is not allowed with role {role}")
    elif kind == "text" and not isinstance(block.get("text"), str):
        yield Objection(f"Invalid request: {place}.text must be a string")
    elif kind == "tool_use" and not all(isinstance(block.get(name), str) and block[name] for name in ("id", "name")):
        yield Objection(f"Invalid request: {place} needs an id and a name")
    elif kind == "tool_result":
        if not isinstance(block.get("tool_use_id"), str | None):
            yield Objection(f"Invalid request: {place}.tool_use_id must be a string")
        if not isinstance(block.get("content"), str | list | None):
            yield Objection(f"Invalid request: {place}.content must be a string or an array")


def _turns(messages: list[Json]) -> Iterator[Objection]:
    if messages[0]["role"] != "user":
        yield Objection("messages: the first message must have role user", ours=True)
    for at in range(1, len(messages)):
        if messages[at]["role"] == messages[at - 1]["role"]:
            yield Objection(f"messages.{at}: roles must alternate between user and assistant", ours=True)


def _empty(position: int, message: Json, of: Contract) -> Iterator[Objection]:
    if message.get("content") in (None, "", []):
        yield of.objection(f"the message at position {position} with role '{message['role']}' must not be empty")
    for block in blocks_of(message):
        if _is_empty(block) or any(_is_empty(inner) for inner in blocks_of(block)):
            yield of.objection(_EMPTY_TEXT)


def _is_empty(block: Json) -> bool:
    return block.get("type") == "text" and not block.get("text")


def _order(at: int, message: Json) -> Iterator[Objection]:
    kinds = [block["type"] for block in blocks_of(message)]
    if "tool_result" in kinds[kinds.count("tool_result") :]:
        yield Objection(f"messages.{at}: tool_result blocks must come first", ours=True)


def _calls_and_results(message: Json) -> CallsAndResults:
    return CallsAndResults(
        tuple((block["id"], block["name"]) for block in blocks_of(message, "tool_use")),
        tuple(block.get("tool_use_id") or "" for block in blocks_of(message, "tool_result")),
        continues=False,
    )


def _uses(at: int, message: Json, of: Contract) -> Iterator[Objection]:
    for number, block in enumerate(blocks_of(message)):
        if block["type"] != "tool_use":
            continue
        if not isinstance(block.get("input"), dict):
            # The endpoint itself has been seen to send a string with JSON in it.
            yield from check_arguments(block["name"], block.get("input"))
        own = of.host.self_hosted and of.positional_ids
        if not own and not _ID.fullmatch(block["id"]):
            place = f"messages.{at}.content.{number}.id"
            yield Objection(f"{place}: String should match pattern '^[a-zA-Z0-9_-]+$'", ours=True)


def _thinking_first(index: int, message: Json, of: Contract, thinking: bool) -> Iterator[Objection]:
    kinds = [block["type"] for block in blocks_of(message)]
    if thinking and "tool_use" in kinds and kinds[0] not in ("thinking", "redacted_thinking"):
        yield from missing_reasoning(index, of)


def _signatures(at: int, message: Json, of: Contract) -> Iterator[Objection]:
    for number, block in enumerate(blocks_of(message)):
        signature = block.get("signature")
        if block["type"] != "thinking" or signature is None or not of.moonshots:
            continue
        if not isinstance(signature, str) or not _BASE64URL.fullmatch(signature):
            place = f"messages.{at}.content.{number}.signature"
            yield Objection(f"{place}: malformed encrypted reasoning content: invalid base64url encoding")
