"""What Responses holds of a message, a part, a tool or a request beside the canonical value.

The canonical fields always win; a record only says how they were written. Nothing in it is
copied: it holds the client's own objects, and nothing changes them.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from moonshim.engine.dialects.extras import read_extras
from moonshim.engine.values.conversation import Media, Message, Request, Tool

__all__ = [
    "DIALECT",
    "Json",
    "ResponsesMediaExtras",
    "ResponsesMessageExtras",
    "ResponsesRequestExtras",
    "ResponsesToolExtras",
    "body_fields",
    "extras_of",
    "holds_unknown",
    "is_loaded",
    "media_fields",
    "request_extras",
    "tool_extras",
]

DIALECT: Final = "openai_responses"
Json: TypeAlias = dict[str, Any]


class ResponsesMessageExtras(Struct, frozen=True, omit_defaults=True):
    """How the items were written that a message was made of."""

    items: tuple[Json, ...] = ()
    at: tuple[int, ...] = ()
    """Where in the input each item stood."""
    instructions: bool = False
    """The message was the `instructions` of the body."""
    bare: bool = False
    """The message was the `input` itself, a string."""


class ResponsesMediaExtras(Struct, frozen=True, omit_defaults=True):
    """The fields of an entry of content that its part does not say."""

    fields: Json = {}


class ResponsesToolExtras(Struct, frozen=True, omit_defaults=True):
    """How a tool was declared."""

    definition: Json | None = None
    namespace: Json | None = None
    """The definition of its namespace, less the tools in it."""
    flat: str | None = None
    """The joined name that a tool of a namespace was read under."""
    loaded: bool = False
    """Whether an item of the input has declared it, not the body's `tools`."""


class ResponsesRequestExtras(Struct, frozen=True, omit_defaults=True):
    """How a request was written."""

    fields: Json = {}
    """The body as it came, all but the input: also what only a store of earlier answers can act on
    (`previous_response_id`, `conversation`, `prompt`), and the tools as they were declared."""
    input: Literal["null", "missing"] | None = None
    """What stood in the place of an input."""


_NO_MESSAGE: Final = ResponsesMessageExtras()
_NO_MEDIA: Final = ResponsesMediaExtras()
_NO_TOOL: Final = ResponsesToolExtras()
_NO_REQUEST: Final = ResponsesRequestExtras()


def extras_of(message: Message) -> ResponsesMessageExtras:
    return read_extras(message.extras, DIALECT, _NO_MESSAGE)


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
    """The fields of the client's body, as far as the request came in this dialect."""
    return request_extras(request).fields


def holds_unknown(message: Message) -> bool:
    """No: no host speaks this dialect, so nothing of it is left where this is asked."""
    return False
