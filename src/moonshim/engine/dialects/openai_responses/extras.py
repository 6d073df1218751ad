"""What Responses stores with a message, a part, a tool or a request besides the canonical value.

Canonical fields always win; a record only describes how they were written. Records hold the client's own objects,
uncopied and never modified.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from moonshim.engine.dialects.extras import read_extras
from moonshim.engine.values.conversation import Media, Message, Request, Tool

__all__ = [
    "DIALECT",
    "TRIGGER",
    "Json",
    "ResponsesMediaExtras",
    "ResponsesMessageExtras",
    "ResponsesRequestExtras",
    "ResponsesToolExtras",
    "asks_for_compaction",
    "body_fields",
    "compaction_place",
    "extras_of",
    "holds_unknown",
    "is_loaded",
    "max_tool_calls",
    "media_fields",
    "request_extras",
    "tool_extras",
]

DIALECT: Final = "openai_responses"
TRIGGER: Final = "compaction_trigger"
"""The type of an item after a conversation that is to be shortened (Remote Compaction V2)."""
Json: TypeAlias = dict[str, Any]


class ResponsesMessageExtras(Struct, frozen=True, omit_defaults=True):
    """The items that a message was parsed from."""

    items: tuple[Json, ...] = ()
    at: tuple[int, ...] = ()
    """The position of each item in the input."""
    instructions: bool = False
    """The message was the body's `instructions`."""
    bare: bool = False
    """The message was the `input` itself, a string."""


class ResponsesMediaExtras(Struct, frozen=True, omit_defaults=True):
    """The fields of a content entry that its part does not determine."""

    fields: Json = {}


class ResponsesToolExtras(Struct, frozen=True, omit_defaults=True):
    """How a tool was declared."""

    definition: Json | None = None
    namespace: Json | None = None
    """The definition of its namespace, without the tools in it."""
    flat: str | None = None
    """The joined name under which a tool of a namespace was parsed."""
    loaded: bool = False
    """Whether an item of the input declared it, not the body's `tools`."""


class ResponsesRequestExtras(Struct, frozen=True, omit_defaults=True):
    """How a request was written."""

    fields: Json = {}
    """The body as received, without the input: including what requires stored responses (`previous_response_id`,
    `conversation`, `prompt`), and the tools as declared."""
    input: Literal["null", "missing"] | None = None
    """What was in place of an input."""


_NO_MESSAGE: Final = ResponsesMessageExtras()
_NO_MEDIA: Final = ResponsesMediaExtras()
_NO_TOOL: Final = ResponsesToolExtras()
_NO_REQUEST: Final = ResponsesRequestExtras()


def extras_of(message: Message) -> ResponsesMessageExtras:
    return read_extras(message.extras, DIALECT, _NO_MESSAGE)


def compaction_place(request: Request) -> int | None:
    """The index of the message after which the client asks for a summary of the conversation, if it does.

    What follows that message is not the client's, but of further rounds for the same response.
    """
    if DIALECT not in request.extras:
        return None
    for place in range(len(request.messages) - 1, -1, -1):
        if items := extras_of(request.messages[place]).items:
            return place if items[-1].get("type") == TRIGGER else None
    return None


def asks_for_compaction(request: Request) -> bool:
    """Whether the response is to be an item that takes the place of the conversation."""
    return compaction_place(request) is not None


def media_fields(media: Media) -> Json:
    return read_extras(media.extras, DIALECT, _NO_MEDIA).fields


def tool_extras(tool: Tool) -> ResponsesToolExtras:
    return read_extras(tool.extras, DIALECT, _NO_TOOL)


def is_loaded(tool: Tool) -> bool:
    """Whether a tool was declared in the middle of a conversation, not in the list of tools."""
    return tool_extras(tool).loaded


def request_extras(request: Request) -> ResponsesRequestExtras:
    return read_extras(request.extras, DIALECT, _NO_REQUEST)


def body_fields(request: Request) -> Json:
    """The fields of the client's body, if the request was received in this dialect."""
    return request_extras(request).fields


def max_tool_calls(request: Request) -> int | None:
    """How many calls of hosted tools the client allows in its response."""
    limit = body_fields(request).get("max_tool_calls")
    return limit if type(limit) is int and limit >= 0 else None


def holds_unknown(message: Message) -> bool:
    """Always False: no host speaks this dialect, so nothing of it is left at this point."""
    return False
