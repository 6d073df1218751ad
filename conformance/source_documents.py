"""A row of `source_documents.jsonl` (what a source document, or its project, expects) -> what we do."""

from __future__ import annotations

from typing import Any, Final

import msgspec

import moonshim
from conformance import (
    source_agent,
    source_command,
    source_events,
    source_formats,
    source_ids,
    source_messages,
    source_requests,
    source_texts,
)
from conformance.checked import Checked
from conformance.replies import Json, Request, replies
from moonshim.engine.dialects.openai_chat.messages import render_messages
from moonshim.engine.response.reply import form_of
from moonshim.engine.values.conversation import Message, Reasoning

__all__ = ["area_of", "check", "key_of"]

_AGENT: Final = {
    "yields",
    "assistant",
    "api_messages",
    "tool_message_content",
    "tool_output",
    "llm_calls",
    "status",
}
"""What only an agent, or the API that it talks to, can be asked for."""


def key_of(row: Json) -> str:
    """The row's number."""
    return str(row["id"])


def area_of(row: Json) -> str:
    return str(row["area"])


def check(row: Json) -> Checked:
    """Chosen by the area, and there by what the row gives."""
    given: Json = row["input"]
    match row["area"]:
        case "tool_ids":
            return source_ids.check(row)
        case "toolformat":
            return source_command.check(row) if row["name"].startswith("command ") else source_formats.check(row)
        case "markers_full":
            return source_texts.check_text(row) if "text" in given else source_texts.check_transformed(row)
        case "markers_stream":
            return _stream(row)
        case "anthropic_stream":
            return source_messages.check_limits(row) if "max_tokens" in given else source_messages.check_stream(row)
        case "reasoning":
            return _reasoning(row)
        case _:
            return _options(row)


def _stream(row: Json) -> Checked:
    given = row["input"]
    if "pieces" in given:
        return source_texts.check_pieces(row)
    if "chunks" in given:
        return source_events.check_assembled(row)
    if "stop_reason" in row["expect"]:
        return source_messages.check_leak(row)
    return source_events.check_shape(row) if "call" in given or "args" in given else source_events.check_events(row)


def _reasoning(row: Json) -> Checked:
    given = row["input"]
    if row["source"] == "jeremysball/alfred" and _AGENT & row["expect"].keys():
        return source_agent.check(row)
    if "delta" in given:
        return source_events.check_delta(row)
    if "deltas" in given:
        return source_events.check_interleaved(row)
    if "thoughts_per_message" in given:
        return source_requests.check_thoughts(row)
    if "blocks" in given:
        message = Message("assistant", tuple(Reasoning(text) for text in given["blocks"]))
        return Checked({"reasoning_content": render_messages([message])[0]["reasoning_content"]}, row["expect"])
    ways = replies([given["text"]], Request())
    return Checked({"clean": ways["as given"].content}, row["expect"], ways)


def _options(row: Json) -> Checked:
    given = row["input"]
    if "content_types" in given:
        return Checked([form_of(one) != "json" for one in given["content_types"]], row["expect"])
    if "response" in given:
        return source_events.check_finish(row)
    if "request" in given:
        return source_requests.check_choice(row)
    if "messages" in given:
        return source_requests.check_messages(row)
    options: Any = msgspec.to_builtins(moonshim.KimiOptions.from_json(given.get("options", {})))
    if "option" in given:
        return Checked(options[given["option"]], row["expect"])
    got = {f"toolTokens.{name}": text for name, text in options["toolTokens"].items()}
    return Checked({key: got.get(key) for key in row["expect"]}, row["expect"])
