"""What Messages stores with a message, a tool or a request besides the canonical value, and functions to query it.

Canonical fields always win; a record only describes how they were written. Records hold the client's own objects,
uncopied and never modified. The steps that adapt a request to its host use the functions below and never read the
fields of a record.
"""

from __future__ import annotations

from operator import is_
from typing import Any, Final, Literal, TypeAlias

from msgspec import UNSET, Struct
from msgspec.structs import replace

from moonshim.engine.dialects.extras import read_extras, with_extras
from moonshim.engine.values.conversation import Media, Message, Request, Tool

__all__ = [
    "DIALECT",
    "Json",
    "MessagesMediaExtras",
    "MessagesMessageExtras",
    "MessagesRequestExtras",
    "MessagesToolExtras",
    "as_system_prompt",
    "body_fields",
    "definition_of",
    "extras_of",
    "has_listed_results",
    "has_second_half",
    "holds_unknown",
    "is_received",
    "is_second_half",
    "is_typed",
    "mark_merged",
    "media_extras",
    "request_extras",
    "stays_separate",
    "with_results_first",
]

DIALECT: Final = "anthropic"
Json: TypeAlias = dict[str, Any]

_CUSTOM: Final = "custom"
_KNOWN_BLOCKS: Final = (
    *("text", "thinking", "redacted_thinking", "image", "document"),
    *("tool_use", "tool_result", "search_result", "tool_reference"),
)


class MessagesMessageExtras(Struct, frozen=True, omit_defaults=True):
    """How a message was written in Messages."""

    came: Json | None = None
    """The message as received."""
    half: Literal[1, 2] | None = None
    """A user message with results and other content became two: 1 has the results, 2 the rest."""
    top: Any = None
    """The request's `system` as received: a string or a list of blocks."""

    @property
    def blocks(self) -> list[Json]:
        """The received content, if it was a list."""
        content = None if self.came is None else self.came.get("content")
        return content if isinstance(content, list) else []


class MessagesMediaExtras(Struct, frozen=True, omit_defaults=True):
    """How a block was written that is media in the canonical form."""

    block: Json | None = None
    """The block as received, if only Messages knows it."""
    fields: Json = {}
    """Its other fields, if the block has a canonical form."""
    opened: tuple[str | None, ...] = ()
    """What the model was given of each result of a web search, where it is known."""


class MessagesToolExtras(Struct, frozen=True, omit_defaults=True):
    """How a tool was declared."""

    definition: Json = {}


class MessagesRequestExtras(Struct, frozen=True, omit_defaults=True):
    """How a request was written."""

    fields: Json = {}
    """The body as received, without messages, system and tools."""
    system: Any = UNSET
    """`system`, if it was present but empty (`""`, `[]`, null)."""
    tools: Any = UNSET
    """`tools`, if it was present but empty."""
    marks_cache: bool = False
    """Whether the system prompt or a tool has a `cache_control`."""


_NO_MESSAGE: Final = MessagesMessageExtras()
_NO_MEDIA: Final = MessagesMediaExtras()
_NO_TOOL: Final = MessagesToolExtras()
_NO_REQUEST: Final = MessagesRequestExtras()


# --- requests, tools, media -----------------------------------------------------------------------------------------


def request_extras(request: Request) -> MessagesRequestExtras:
    return read_extras(request.extras, DIALECT, _NO_REQUEST)


def body_fields(request: Request) -> Json:
    """The fields of the client's body without messages, system and tools; empty for another dialect."""
    return request_extras(request).fields


def definition_of(tool: Tool) -> Json:
    """The received definition of a tool; empty for another dialect."""
    return read_extras(tool.extras, DIALECT, _NO_TOOL).definition


def media_extras(media: Media) -> MessagesMediaExtras:
    return read_extras(media.extras, DIALECT, _NO_MEDIA)


def is_typed(tool: Tool) -> bool:
    """Whether it is declared by a type that only some hosts know (`bash_20250124`)."""
    return (definition_of(tool).get("type") or _CUSTOM) != _CUSTOM


# --- messages: reading ------------------------------------------------------------------------------------------


def extras_of(message: Message) -> MessagesMessageExtras:
    return read_extras(message.extras, DIALECT, _NO_MESSAGE) if message.extras else _NO_MESSAGE


def holds_unknown(message: Message) -> bool:
    """Whether it has a block that only Messages knows. Such a message is not empty, even without parts."""
    return any(map(_is_unknown, extras_of(message).blocks))


def _is_unknown(block: Json) -> bool:
    source = block.get("source")
    by_file = isinstance(source, dict) and source.get("type") == "file"
    return by_file or block.get("type") not in _KNOWN_BLOCKS


def is_received(message: Message) -> bool:
    """Whether it was received in Messages, and is therefore written as close to that as possible."""
    return extras_of(message).came is not None


def stays_separate(message: Message) -> bool:
    """Whether Messages keeps it separate from a preceding message of the same role, as real hosts allow."""
    extras = extras_of(message)
    return extras.came is not None and extras.half != 2


def has_second_half(message: Message) -> bool:
    """Whether it holds the results of a received message whose other content is in the next message."""
    return extras_of(message).half == 1


def is_second_half(message: Message) -> bool:
    """Whether Messages merges it with the message before it."""
    return extras_of(message).half == 2


def has_listed_results(message: Message) -> bool:
    """Whether it was received in Messages with a result whose content is a list of blocks."""
    return any(isinstance(block.get("content"), list) for block in extras_of(message).blocks)


# --- messages: changing -----------------------------------------------------------------------------------------


def mark_merged(message: Message) -> Message:
    """The message, marked to be merged with the one before it."""
    extras = None if message.role == "tool" else replace(extras_of(message), half=2)
    return with_extras(message, DIALECT, extras)


def as_system_prompt(message: Message) -> Message:
    """Turn a system message from the message list into a part of the body's `system`."""
    return with_extras(message, DIALECT, None)


def with_results_first(message: Message) -> Message:
    """One half of a received message, as if that had been received in the order that hosts require."""
    extras = extras_of(message)
    if extras.came is None:
        return message
    blocks = extras.came["content"]
    ordered = sorted(blocks, key=lambda block: block["type"] != "tool_result")
    if all(map(is_, ordered, blocks)):
        return message
    return with_extras(message, DIALECT, replace(extras, came={**extras.came, "content": ordered}))
