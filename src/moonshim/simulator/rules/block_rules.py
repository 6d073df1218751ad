"""The messages of a request in Anthropic's format -> what Moonshot has against them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from moonshim.simulator.rules.contracts import Contract, Json
from moonshim.simulator.rules.message_rules import check_arguments, unanswered

__all__ = ["check_block_messages"]

_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")
_BASE64URL: Final = re.compile(r"[A-Za-z0-9_-]*={0,2}")
_BLOCKS: Final = {
    "user": ("text", "image", "tool_result"),
    "assistant": ("text", "thinking", "redacted_thinking", "tool_use"),
}


def check_block_messages(body: Json, of: Contract, thinking: bool) -> Iterator[str]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        yield "messages must not be empty"
        return
    if any(not isinstance(message, dict) for message in messages):
        yield "messages must be objects"
        return
    if wrong := [message.get("role") for message in messages if message.get("role") not in _BLOCKS]:
        yield f"messages: role {wrong[0]!r} is not allowed, it is user or assistant"
        return
    yield from _turns(messages)
    shift = 1 if body.get("system") else 0  # the prompt counts as the first message
    for at, message in enumerate(messages):
        yield from _content(at, message, of)
    yield from _pairs(messages)
    yield from _ids(messages, of)
    for at, message in enumerate(messages):
        yield from _thinking_first(at + shift, message, of, thinking)


def blocks_of(message: Json, kind: str = "") -> list[Json]:
    content = message.get("content")
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    return [block for block in blocks if not kind or block.get("type") == kind]


def _turns(messages: list[Json]) -> Iterator[str]:
    if messages[0]["role"] != "user":
        yield "messages: the first message must have role user"
    for at in range(1, len(messages)):
        if messages[at]["role"] == messages[at - 1]["role"]:
            yield f"messages.{at}: roles must alternate between user and assistant"


def _content(at: int, message: Json, of: Contract) -> Iterator[str]:
    content = message.get("content")
    if content in (None, "", []):
        yield f"the message at position {at} with role '{message['role']}' must not be empty"
    elif not isinstance(content, str | list):
        yield f"messages.{at}.content must be a string or an array"
    for number, block in enumerate(blocks_of(message)):
        yield from _block(f"messages.{at}.content.{number}", message["role"], block, of)


def _block(place: str, role: str, block: Json, of: Contract) -> Iterator[str]:
    kind = block.get("type")
    if kind == "tool_reference" or any(inner.get("type") == "tool_reference" for inner in blocks_of(block)):
        yield "Invalid request Error"
    elif kind not in _BLOCKS[role]:
        yield f"{place}: type {kind!r} is not allowed with role {role}"
    elif (kind == "text" and not block.get("text")) or any(
        inner.get("type") == "text" and not inner.get("text") for inner in blocks_of(block)
    ):
        yield "text content is empty"
    elif kind == "tool_use":
        if not isinstance(block.get("id"), str) or not _ID.fullmatch(block["id"]):
            yield f"{place}.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
        if not isinstance(block.get("input"), dict):
            yield from check_arguments(str(block.get("name")), block.get("input"))
    elif kind == "thinking" and of.host.moonshots:
        signature = block.get("signature")
        if signature is not None and (not isinstance(signature, str) or not _BASE64URL.fullmatch(signature)):
            yield f"{place}.signature: malformed encrypted reasoning content: invalid base64url encoding"


def _pairs(messages: list[Json]) -> Iterator[str]:
    """Every call is answered at the beginning of the next message."""
    open_ids: list[str] = []
    for at, message in enumerate(messages):
        results = [str(block.get("tool_use_id") or "") for block in blocks_of(message, "tool_result")]
        kinds = [block.get("type") for block in blocks_of(message)]
        if "tool_result" in kinds[len(results) :]:
            yield f"messages.{at}: tool_result blocks must come first"
        for id in results:
            if id in open_ids:
                open_ids.remove(id)
            else:
                yield f"tool_call_id {id} is not found"
        if open_ids:
            yield unanswered(open_ids)
        open_ids = [str(block.get("id")) for block in blocks_of(message, "tool_use")]
    if open_ids:
        yield unanswered(open_ids)


def _ids(messages: list[Json], of: Contract) -> Iterator[str]:
    seen: set[Any] = set()
    for message in messages:
        for block in blocks_of(message, "tool_use"):
            if of.unique_ids and block.get("id") in seen:
                yield f"Invalid request: tool call id {block.get('id')} is duplicated"
            seen.add(block.get("id"))


def _thinking_first(index: int, message: Json, of: Contract, thinking: bool) -> Iterator[str]:
    blocks = blocks_of(message)
    if not of.needs_reasoning(thinking) or not blocks_of(message, "tool_use"):
        return
    if blocks[0].get("type") not in ("thinking", "redacted_thinking"):
        yield f"thinking is enabled but reasoning_content is missing in assistant tool call message at index {index}"
