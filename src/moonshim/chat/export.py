"""A conversation -> its text in another dialect, or for people to read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from json import dumps
from typing import Any, Final

from moonshim.chat.render.call_text import call_text
from moonshim.chat.render.screen import text_of_result
from moonshim.engine.dialects.registry import dialect_named
from moonshim.engine.values.conversation import Media, Message, Reasoning, Text, ToolCall, ToolResult

__all__ = ["EXPORTS", "as_markdown", "export_messages"]

_SPEAKERS: Final = {"system": "System", "user": "You", "assistant": "Model", "tool": "Tool"}


def export_messages(messages: Sequence[Message], format: str) -> str:
    """The conversation in one of the `EXPORTS`."""
    return EXPORTS[format][1](messages)


def _json(rendered: list[Any]) -> str:
    return dumps(rendered, ensure_ascii=False, indent=2) + "\n"


def _openai(messages: Sequence[Message]) -> str:
    return _json(dialect_named("openai_chat").render_messages(messages))


def _anthropic(messages: Sequence[Message]) -> str:
    return _json(dialect_named("anthropic").render_messages(messages))


def _vercel(messages: Sequence[Message]) -> str:
    return _json(import_module("moonshim.engine.dialects.vercel_ai.messages").render_messages(messages))


def as_markdown(messages: Sequence[Message]) -> str:
    """For people: reasoning as a quotation, calls and results as code."""
    parts: list[str] = []
    role = ""
    for message in messages:
        title = _SPEAKERS[message.role]
        if title != role and message.role != "tool":
            parts.append(f"## {title}")
            role = title
        parts += [_part(part) for part in message.parts]
    return "\n\n".join(part for part in parts if part) + "\n"


def _part(part: Any) -> str:
    match part:
        case Text(text=text):
            return text.strip()
        case Reasoning(text=text):
            return "\n".join(f"> {line}".rstrip() for line in text.strip().splitlines())
        case ToolCall(name=name, arguments=arguments):
            call = call_text(arguments)
            rest = [f"{key}: {value}" for key, value in call.rest]
            return _fence("\n".join([f"{name} {call.about}".strip(), *rest]))
        case ToolResult():
            return _fence(text_of_result(part))
        case Media(kind=kind, name=name, url=url):
            return f"[{kind}: {name or url or 'inline'}]"
    return ""


def _fence(text: str) -> str:
    """The text as a code block, however many backticks it contains."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text.rstrip()}\n{fence}"


EXPORTS: Final[dict[str, tuple[str, Callable[[Sequence[Message]], str]]]] = {
    "openai": ("json", _openai),
    "anthropic": ("json", _anthropic),
    "vercel": ("json", _vercel),
    "markdown": ("md", as_markdown),
}
"""The formats: their file extensions, and the functions that write them."""
